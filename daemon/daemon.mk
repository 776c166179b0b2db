# SPDX-License-Identifier: MIT
# gpushmd.

LEFT_OUT += $(if $(CUDA_INCLUDE),daemon/pool/nocuda.c,$(addprefix daemon/pool/,cuda.c backend_vmm.c backend_mempool.c))
DAEMON_SRC := $(filter-out daemon/main.c,$(call in_folders,$(addprefix daemon/,util keeper config pool catalog state ipc) daemon))
DAEMON_LIBS = $(if $(ARCHIVES),$(ARCHIVES)/libuv_a.a,-luv) $(PROTOBUF_LIBS) $(SYSTEMD_LIBS) -ldl -lpthread

$(BUILD)/gen/%.pb-c.c: daemon/state/%.proto
	$(call SAY,GEN)mkdir -p $(@D) && protoc-c --proto_path=daemon/state --c_out=$(@D) $<
$(BUILD)/gen/journal.pb-c.h: $(BUILD)/gen/journal.pb-c.c ;

# All but main(), which tests link with other functions, too.
$(BUILD)/daemon.a: $(call objects,$(DAEMON_SRC)) $(BUILD)/obj/gen/journal.pb-c.o
DAEMON_PARTS := $(call objects,daemon/main.c) $(BUILD)/daemon.a $(BUILD)/systemd.a $(BUILD)/proto.a
$(BUILD)/gpushmd: $(DAEMON_PARTS)
	$(link) $(DAEMON_LIBS)

daemon: $(BUILD)/gpushmd ## gpushmd
