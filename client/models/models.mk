# SPDX-License-Identifier: MIT
# libgpushm-load: loads, saves, verifies and pulls models. Its door is client/gpushm_load.h.

# Built with libcurl's headers, or instead of them; the library is opened at run time, so that another system's compiler can
# use these headers, too. Empty: URLs can't be loaded.
CURL_INCLUDE ?= $(patsubst %/curl/curl.h,%,$(firstword $(wildcard /usr/include/$(MULTIARCH)/curl/curl.h /usr/include/curl/curl.h)))
CURL_SRC = $(addprefix client/models/web/,curl.c fetch.c)
$(call objects,$(CURL_SRC)): ALL_CFLAGS += $(if $(CURL_INCLUDE),-idirafter $(CURL_INCLUDE))
LEFT_OUT += $(if $(CURL_INCLUDE),client/models/web/nofetch.c,$(CURL_SRC)) client/models/copy/$(if $(CUDA_INCLUDE),no)gpu.c
MODELS_SRC := $(call in_folders,client/models $(addprefix client/models/,files copy web nixl))
# As shared ones in a wheel, too: nettle is under the LGPL, and the archive of jansson has no position-independent code.
MODELS_LIBS = $(call library,jansson.so) $(call library,nettle.so) -ldl -lpthread

# One source, compiled for each set of instructions that makes it faster; the library chooses when it runs.
BLOCK_HASHES := $(if $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null)),$(addprefix $(BUILD)/obj/client/models/copy/block_hash_,avx512f.o avx2.o))
$(BLOCK_HASHES): $(BUILD)/obj/client/models/copy/block_hash_%.o: client/models/copy/block_hash.c
	$(call SAY,CC)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -m$* -DBLOCK_HASH=block_hash_$* -MMD -MP -c -o $@ $<

MODELS_OBJ := $(call objects,$(MODELS_SRC)) $(BLOCK_HASHES)
# It has hidden copies of what it uses of proto.
$(BUILD)/libgpushm-load.so.$(VERSION): $(MODELS_OBJ) $(BUILD)/proto.a $(BUILD)/gen/libgpushm-load.sym $(BUILD)/libgpushm.so
	$(call link_shared,.) -lgpushm $(PROTOBUF_LIBS) $(MODELS_LIBS)
$(BUILD)/libgpushm-load.a: $(MODELS_OBJ)

models: $(BUILD)/libgpushm-load.so $(BUILD)/libgpushm-load.a ## libgpushm-load
NOTES += $(if $(CURL_INCLUDE),,'built without URLs (no curl/curl.h found): load reads files alone')
