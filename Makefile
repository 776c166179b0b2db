# SPDX-License-Identifier: MIT
#
# gpushm: make deps, make, make demo, make check, make install. "make help" lists what people use.
# Each product has a fragment beside its sources, which says what it is made of; what all of them use is here.
# Everything that is made lies under $(BUILD); nothing generated is in git.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
CFLAGS  ?= -O2 -g
VERSION := 0.3.0
SOVERSION := 1

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := all

# The CUDA Toolkit's headers, or those that "make deps" has fetched; without them only host pools are built.
CUDA_HOME ?= /usr/local/cuda
CUDA_INCLUDE ?= $(firstword $(patsubst %/cuda.h,%,$(wildcard $(CUDA_HOME)/include/cuda.h /usr/include/cuda.h \
	$(abspath $(BUILD))/cuda/nvidia/cu*/include/cuda.h)))

# What "deps" installs is looked for when make starts. So another make makes the goals beside it.
AFTER_DEPS := $(if $(filter deps,$(MAKECMDGOALS)),$(filter-out deps,$(MAKECMDGOALS)))
.PHONY: deps $(AFTER_DEPS)
deps: ## installs what the goals beside it need: make deps demo, make deps check; alone: what check needs
	@CUDA_INCLUDE='$(CUDA_INCLUDE)' tests/deps.sh $(BUILD) $(or $(AFTER_DEPS),check)
ifneq ($(AFTER_DEPS),)
$(firstword $(AFTER_DEPS)): deps
	@$(MAKE) $(AFTER_DEPS)
$(wordlist 2,$(words $(AFTER_DEPS)),$(AFTER_DEPS)): $(firstword $(AFTER_DEPS)) ;
else

export CUDA_INCLUDE
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
PKG_CONFIG ?= pkg-config
MULTIARCH := $(shell gcc -print-multiarch 2>/dev/null)
PROCESSORS := $(shell nproc)
# Large builds use all processors, unless make was told a number.
MAKE_ALL = $(MAKE) $(if $(V),,-s) $(if $(findstring -j,$(MAKEFLAGS)),,-j$(PROCESSORS))

# ---- flags ----

WARNINGS = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wpointer-arith -Wvla -Wformat=2 -Wundef -Wwrite-strings -Wno-unused-parameter
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DGPUSHM_VERSION='"$(VERSION)"' \
	-DGPUSHM_SOVERSION='"$(SOVERSION)"' -DGPUSHM_SYSCONFDIR='"$(SYSCONFDIR)"' -fPIC -fvisibility=hidden -I. -Iclient \
	-I$(BUILD)/gen $(if $(CUDA_INCLUDE),-isystem $(CUDA_INCLUDE)) $(WARNINGS) $(CFLAGS) $(SANITIZE_FLAGS) $(EXTRA_CFLAGS)
ALL_LDFLAGS = -Wl,--as-needed $(SANITIZE_FLAGS) $(LDFLAGS)
SANITIZE_FLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all)
SYSCONFDIR ?= /etc

# The libraries of others. For a wheel ARCHIVES is the folder of their archives.
ARCHIVES ?=
library = $(if $(ARCHIVES),$(ARCHIVES)/lib$(1),-l$(basename $(1)))
PROTOBUF_LIBS = $(call library,protobuf-c.a)
CLIENT_LIBS = $(PROTOBUF_LIBS) -ldl -lpthread

# ---- rules ----

# One line for each file; V=1 shows the commands.
V ?=
SAY = $(if $(V),,@printf '  %-6s %s\n' $(1) $@;)
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
# The sources of folders, without those that this machine can't build: LEFT_OUT, to which fragments add.
in_folders = $(filter-out $(LEFT_OUT),$(wildcard $(addsuffix /*.c,$(1))))
# Links the objects and archives that a target needs. Libraries of ours are looked for in the folder that is named, from
# the program's own: $(call link,.) or $(call link,../lib).
comma := ,
link = $(call SAY,LD)mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) $(patsubst %,-Wl$(comma)-rpath$(comma)'$$ORIGIN/%',$(1)) -o $@ \
	$(filter %.o,$^) $(filter %.a,$^) -L$(BUILD)
$(BUILD)/%.a:
	@rm -f $@; ar rcs $@ $(filter %.o,$^)
# Shared libraries and their links.
SHARED := $(BUILD)/libgpushm.so $(BUILD)/libgpushm-load.so
$(SHARED): %: %.$(SOVERSION)
$(SHARED:%=%.$(SOVERSION)): %.$(SOVERSION): %.$(VERSION)
$(SHARED) $(SHARED:%=%.$(SOVERSION)):
	@ln -sf $(<F) $@
link_shared = $(link) -shared -Wl,-soname,$(firstword $(subst .so, ,$(@F))).so.$(SOVERSION) -Wl,--version-script,$(filter %.sym,$^) \
	-Wl,-z,defs,-z,nodelete

$(BUILD)/gen/%.sym: client/%.sym
	@mkdir -p $(@D); sed 's/@version@/$(VERSION)/' $< >$@
$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c
	$(call SAY,CC)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -c -o $@ $<
$(BUILD)/obj/%.o: %.c | $(addprefix $(BUILD)/gen/,gpushm.pb-c.h journal.pb-c.h gpushm_records.h records_table.h)
	$(call SAY,CC)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

all: daemon lib models ctl relay examples ## everything but the Python package
	@$(if $(strip $(NOTES)),printf '%s\n' $(NOTES),:)
NOTES = $(if $(CUDA_INCLUDE),,'built without the CUDA Toolkit (no cuda.h found): host pools only')
help: ## this list
	@grep -hE '^[a-z-]+:.* ## ' $(filter-out %.d,$(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.* ## /\1\t/' | sort | \
		awk -F'\t' '{ printf "  make %-18s %s\n", $$1, $$2 }'
	@echo "  make suite-NAME         one suite alone; \"make suites\" names them all"

# ---- products ----

include proto/proto.mk daemon/daemon.mk client/lib/lib.mk client/common/common.mk client/models/models.mk client/ctl/ctl.mk
include client/relay/relay.mk client/examples/examples.mk client/python/py.mk
PRODUCT_SRC := daemon/main.c $(PROTO_SRC) $(SYSTEMD_SRC) $(DAEMON_SRC) $(LIB_SRC) $(COMMON_SRC) $(MODELS_SRC) $(CTL_SRC) $(if $(EXPORTER),$(EXPORTER_SRC)) $(if $(RELAY),$(RELAY_SRC))
include tests/suites.mk systemd/install.mk

# A target that is a plain word is no file.
.PHONY: $(shell sed -nE 's/^([a-z]+[a-z -]*):.*/\1/p' $(MAKEFILE_LIST)) $(PRODUCT_CHECKS) $(LINTS:%=lint-%) $(VENVS)
# Objects are kept, also those that patterns alone name. What has the version in it is made again when that changes.
.PRECIOUS: $(BUILD)/obj/%.o
version_is := $(BUILD)/gen/version-$(VERSION)
$(if $(wildcard $(version_is)),,$(shell mkdir -p $(BUILD)/gen; rm -f $(BUILD)/gen/version-*; touch $(version_is)))
$(call objects,$(PRODUCT_SRC) $(PYTHON_SRC) $(wildcard tests/system/*/*.c)): $(version_is)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

endif # AFTER_DEPS
