# SPDX-License-Identifier: MIT
# libgpushm: creates, opens and maps buffers, arrays and streams. Its doors are client/gpushm.h, gpushm_stream.h and
# gpushm_metrics.h, and for our other products client/gpushm_private.h.

LEFT_OUT += $(addprefix client/lib/map/,$(if $(CUDA_INCLUDE),nocuda.c,cuda.c context.c window.c vmm.c mempool.c pinned.c copy.c order.c))
LIB_SRC := $(call in_folders,$(addprefix client/lib/,base map link buffer array stream))
LIB_OBJ := $(call objects,$(LIB_SRC) $(PROTO_SRC)) $(GEN_OBJ)

$(BUILD)/libgpushm.so.$(VERSION): $(LIB_OBJ) $(BUILD)/gen/libgpushm.sym
	$(link_shared) $(CLIENT_LIBS)
$(BUILD)/libgpushm.a: $(LIB_OBJ)
	$(ARCHIVE)

lib: $(BUILD)/libgpushm.so $(BUILD)/libgpushm.a ## libgpushm
all: lib
