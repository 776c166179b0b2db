# SPDX-License-Identifier: MIT
# What the daemon and its clients agree on. Both sides are linked with proto.a.

PROTO_SRC := $(call in_folders,proto/base proto)
GEN_OBJ := $(BUILD)/obj/gen/gpushm.pb-c.o

$(BUILD)/gen/%.pb-c.c: proto/%.proto
	@mkdir -p $(@D)
	$(call SAY,GEN)protoc-c --proto_path=proto --c_out=$(@D) $<
$(BUILD)/gen/gpushm.pb-c.h: $(BUILD)/gen/gpushm.pb-c.c ;

$(BUILD)/proto.a: $(call objects,$(PROTO_SRC)) $(GEN_OBJ)
