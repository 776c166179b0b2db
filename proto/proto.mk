# SPDX-License-Identifier: MIT
# What the daemon and its clients agree on. Both sides are linked with proto.a, and services with systemd.a.

PROTO_SRC := $(call in_folders,proto/base proto)
GEN_OBJ := $(BUILD)/obj/gen/gpushm.pb-c.o

$(BUILD)/gen/%.pb-c.c: proto/%.proto
	$(call SAY,GEN)mkdir -p $(@D) && protoc-c --proto_path=proto --c_out=$(@D) $<
$(BUILD)/gen/gpushm.pb-c.h: $(BUILD)/gen/gpushm.pb-c.c ;

# SYSTEMD=no leaves libsystemd out. So does a wheel, whose glibc is older.
SYSTEMD ?= $(if $(ARCHIVES),no,$(shell $(PKG_CONFIG) --exists libsystemd 2>/dev/null && echo yes))
SYSTEMD_LIBS := $(if $(filter yes,$(SYSTEMD)),-lsystemd)
LEFT_OUT += proto/systemd/$(if $(SYSTEMD_LIBS),no,lib)systemd.c
SYSTEMD_SRC := $(call in_folders,proto/systemd)
NOTES += $(if $(SYSTEMD_LIBS),,'built without libsystemd')

$(BUILD)/systemd.a: $(call objects,$(SYSTEMD_SRC))
$(BUILD)/proto.a: $(call objects,$(PROTO_SRC)) $(GEN_OBJ)
