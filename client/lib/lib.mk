# SPDX-License-Identifier: MIT
# libgpushm: creates, opens and maps buffers, arrays and streams. Its doors are HEADERS, and for our other products
# client/gpushm_private.h. client/records.txt makes the structs that it returns, and tables of them.

HEADERS := $(addprefix client/,gpushm.h $(addprefix gpushm_,array.h async.h query.h events.h handle.h metrics.h cleanup.h memory.h stream.h)) $(BUILD)/gen/gpushm_records.h
RECORDS = @mkdir -p $(@D); awk -v out=$(1) -f client/records.awk client/records.txt
$(BUILD)/gen/gpushm_records.h: client/gpushm_records.h.in client/records.awk client/records.txt
	$(call RECORDS,structs) | sed -e '/^@structs@$$/{r /dev/stdin' -e 'd}' $< >$@
$(BUILD)/gen/records_table.h: client/records.awk client/records.txt
	$(call RECORDS,table) >$@
LEFT_OUT += $(addprefix client/lib/map/,$(if $(CUDA_INCLUDE),nocuda.c,cuda.c context.c window.c vmm.c mempool.c pinned.c copy.c order.c))
LIB_SRC := $(call in_folders,$(addprefix client/lib/,base map link buffer array stream))
LIB_OBJ := $(call objects,$(LIB_SRC) $(PROTO_SRC)) $(GEN_OBJ)

$(BUILD)/libgpushm.so.$(VERSION): $(LIB_OBJ) $(BUILD)/gen/libgpushm.sym
	$(link_shared) $(CLIENT_LIBS)
$(BUILD)/libgpushm.a: $(LIB_OBJ)

lib: $(BUILD)/libgpushm.so $(BUILD)/libgpushm.a ## libgpushm
