# SPDX-License-Identifier: MIT
#
# gpushm: make deps, make, make demo, make check, make install. See README.md.
# Everything that is made lies under $(BUILD); nothing generated is in git.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
CFLAGS  ?= -O2 -g
VERSION := 0.2.0
SOVERSION := 0

MAKEFLAGS += --no-print-directory

# What "deps" installs is looked for when make starts. So another make makes the goals beside it.
AFTER_DEPS := $(if $(filter deps,$(MAKECMDGOALS)),$(filter-out deps,$(MAKECMDGOALS)))
ifneq ($(AFTER_DEPS),)
.PHONY: deps $(AFTER_DEPS)
deps:
	@$(MAKE) deps
$(firstword $(AFTER_DEPS)): deps
	@$(MAKE) $(AFTER_DEPS)
$(wordlist 2,$(words $(AFTER_DEPS)),$(AFTER_DEPS)): $(firstword $(AFTER_DEPS)) ;
else

# ---- what this machine has ----

# The CUDA Toolkit's headers, or those that "make deps" has fetched; without them only host pools are built.
CUDA_HOME ?= /usr/local/cuda
CUDA_INCLUDE ?= $(firstword $(patsubst %/cuda.h,%,$(wildcard $(CUDA_HOME)/include/cuda.h /usr/include/cuda.h \
	$(abspath $(BUILD))/cuda/nvidia/cu*/include/cuda.h)))
export CUDA_INCLUDE
# The folder of ncurses.h; empty: gpushmctl top has no screen. The library is opened at run time, so that another
# system's compiler can use this header, too.
NCURSES_INCLUDE ?= $(patsubst %/ncurses.h,%,$(firstword $(wildcard /usr/include/ncurses.h /usr/include/ncursesw/ncurses.h)))
# The folder that has curl/curl.h; empty: URLs can't be loaded. This library is opened at run time, too.
CURL_INCLUDE ?= $(patsubst %/curl/curl.h,%,$(firstword $(wildcard /usr/include/$(MULTIARCH)/curl/curl.h /usr/include/curl/curl.h)))
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
	-DGPUSHM_SYSCONFDIR='"$(SYSCONFDIR)"' -fPIC -fvisibility=hidden -I. -Iclient -I$(BUILD)/gen \
	$(if $(CUDA_INCLUDE),-isystem $(CUDA_INCLUDE)) $(WARNINGS) $(CFLAGS) $(SANITIZE_FLAGS) $(EXTRA_CFLAGS)
ALL_LDFLAGS = -Wl,--as-needed $(SANITIZE_FLAGS) $(LDFLAGS)
SANITIZE ?=
SANITIZE_FLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all)
SYSCONFDIR ?= /etc

# The libraries of others. For a wheel ARCHIVES is the folder of their archives.
ARCHIVES ?=
library = $(if $(ARCHIVES),$(ARCHIVES)/lib$(1),-l$(basename $(1)))
PROTOBUF_LIBS = $(call library,protobuf-c.a)
DAEMON_LIBS = $(if $(ARCHIVES),$(ARCHIVES)/libuv_a.a,-luv) $(PROTOBUF_LIBS) -ldl -lpthread
CLIENT_LIBS = $(PROTOBUF_LIBS) -ldl -lpthread
# As shared ones in a wheel, too: nettle is under the LGPL, and the archive of jansson has no position-independent code.
LOAD_LIBS = $(call library,jansson.so) $(call library,nettle.so) -ldl -lpthread
CTL_LIBS = -lm

# ---- sources ----

CUDA_SRC = $(addprefix daemon/pool/,cuda.c backend_vmm.c backend_mempool.c) \
	$(addprefix client/lib/map/,cuda.c context.c window.c vmm.c mempool.c pinned.c copy.c order.c) client/models/copy/gpu.c client/ctl/doctor_cuda.c
NOCUDA_SRC = daemon/pool/nocuda.c client/lib/map/nocuda.c client/models/copy/nogpu.c client/ctl/doctor_nocuda.c
# Built with libcurl's headers, or instead of them.
CURL_SRC = $(addprefix client/models/web/,curl.c fetch.c reader.c remote.c request.c status.c)
NOCURL_SRC = client/models/web/noremote.c
LEFT_OUT = $(if $(CUDA_INCLUDE),$(NOCUDA_SRC),$(CUDA_SRC)) $(if $(CURL_INCLUDE),$(NOCURL_SRC),$(CURL_SRC)) client/ctl/top/$(if $(NCURSES_INCLUDE),no)screen.c
in_folders = $(filter-out $(LEFT_OUT),$(wildcard $(addsuffix /*.c,$(1))))
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

PROTO_SRC  := $(call in_folders,proto/base proto)
DAEMON_SRC := $(filter-out daemon/main.c,$(call in_folders,$(addprefix daemon/,util keeper config pool catalog state ipc) daemon))
CLIENT_SRC := $(call in_folders,$(addprefix client/lib/,base map link buffer array stream))
LOAD_SRC   := $(call in_folders,client/models $(addprefix client/models/,files copy web nixl))
CTL_SRC    := $(call in_folders,client/ctl client/ctl/top client/ctl/model client/ctl/stream) client/common/exposition.c client/common/npy.c client/models/nixl/library.c client/models/nixl/agent.c
# gpushm-exporter is built where libmicrohttpd is, and gpushm-relay where GnuTLS is, too.
HTTP_SRC   := $(addprefix client/common/,clients.c listen.c process.c exposition.c)
EXPORTER_SRC := $(call in_folders,client/ctl/exporter) $(HTTP_SRC) client/ctl/snapshot.c
EXPORTER   := $(if $(shell $(PKG_CONFIG) --exists libmicrohttpd 2>/dev/null && echo yes),$(BUILD)/gpushm-exporter)
RELAY_SRC  := $(call in_folders,client/relay $(addprefix client/relay/,serve offer fleet)) $(HTTP_SRC)
RELAY      := $(if $(shell $(PKG_CONFIG) --exists libmicrohttpd gnutls 2>/dev/null && echo yes),$(BUILD)/gpushm-relay)
GEN_OBJ    := $(BUILD)/obj/gen/gpushm.pb-c.o
JOURNAL_OBJ := $(BUILD)/obj/gen/journal.pb-c.o

.PHONY: all
all: $(BUILD)/gpushmd $(BUILD)/gpushmctl $(addprefix $(BUILD)/,libgpushm.so libgpushm.a libgpushm-load.so libgpushm-load.a) $(EXPORTER) $(RELAY) examples
ifeq ($(CUDA_INCLUDE),)
	@echo "built without the CUDA Toolkit (no cuda.h found): host pools only"
endif
ifeq ($(CURL_INCLUDE),)
	@echo "built without URLs (no curl/curl.h found): load reads files alone"
endif
ifeq ($(EXPORTER),)
	@echo "built without gpushm-exporter (no libmicrohttpd found)"
endif
ifeq ($(RELAY),)
	@echo "built without gpushm-relay (no libmicrohttpd or no GnuTLS found)"
endif

# ---- rules ----

# One line for each file; V=1 shows the commands.
V ?=
SAY = $(if $(V),,@printf '  %-6s %s\n' $(1) $@;)

$(BUILD)/gen/%.pb-c.c: proto/%.proto
	@mkdir -p $(@D)
	$(call SAY,GEN)protoc-c --proto_path=proto --c_out=$(@D) $<
$(BUILD)/gen/%.pb-c.c: daemon/state/%.proto
	@mkdir -p $(@D)
	$(call SAY,GEN)protoc-c --proto_path=daemon/state --c_out=$(@D) $<
$(BUILD)/gen/gpushm.pb-c.h: $(BUILD)/gen/gpushm.pb-c.c ;
$(BUILD)/gen/journal.pb-c.h: $(BUILD)/gen/journal.pb-c.c ;

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(call SAY,CC)$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(BUILD)/obj/%.o: %.c | $(BUILD)/gen/gpushm.pb-c.h $(BUILD)/gen/journal.pb-c.h
	@mkdir -p $(@D)
	$(call SAY,CC)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/proto.a: $(call objects,$(PROTO_SRC)) $(GEN_OBJ)
	@rm -f $@; ar rcs $@ $^
$(BUILD)/daemon.a: $(call objects,$(DAEMON_SRC)) $(JOURNAL_OBJ)
	@rm -f $@; ar rcs $@ $^
$(BUILD)/libgpushm.a: $(call objects,$(CLIENT_SRC) $(PROTO_SRC)) $(GEN_OBJ)
	@rm -f $@; ar rcs $@ $^

$(BUILD)/gpushmd: $(call objects,daemon/main.c) $(BUILD)/daemon.a $(BUILD)/proto.a
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(DAEMON_LIBS)

LIBRARY_OBJ := $(call objects,$(CLIENT_SRC) $(PROTO_SRC)) $(GEN_OBJ)
LIBRARY_LD = $(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libgpushm.so.$(SOVERSION) -Wl,--version-script,client/libgpushm.sym \
	-Wl,-z,defs,-z,nodelete
$(BUILD)/libgpushm.so.$(VERSION): $(LIBRARY_OBJ) client/libgpushm.sym
	$(call SAY,LD)$(LIBRARY_LD) -o $@ $(filter %.o,$^) $(CLIENT_LIBS)
$(BUILD)/libgpushm.so.$(SOVERSION): $(BUILD)/libgpushm.so.$(VERSION)
	@ln -sf $(<F) $@
$(BUILD)/libgpushm.so: $(BUILD)/libgpushm.so.$(SOVERSION)
	@ln -sf $(<F) $@

# One source, compiled for each set of instructions that makes it faster; the library chooses when it runs.
BLOCK_HASHES := $(if $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null)),$(addprefix $(BUILD)/obj/client/models/copy/block_hash_,avx512f.o avx2.o))
$(BLOCK_HASHES): $(BUILD)/obj/client/models/copy/block_hash_%.o: client/models/copy/block_hash.c
	@mkdir -p $(@D)
	$(call SAY,CC)$(CC) $(ALL_CFLAGS) -m$* -DBLOCK_HASH=block_hash_$* -MMD -MP -c -o $@ $<

# The second library: what loads and saves models. It has hidden copies of what it uses of proto.
LOAD_OBJ := $(call objects,$(LOAD_SRC)) $(BLOCK_HASHES) $(BUILD)/proto.a
LOAD_LD = $(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libgpushm-load.so.$(SOVERSION) -Wl,--version-script,client/libgpushm-load.sym \
	-Wl,-z,defs,-z,nodelete -Wl,-rpath,'$$ORIGIN'
$(BUILD)/libgpushm-load.a: $(call objects,$(LOAD_SRC)) $(BLOCK_HASHES)
	@rm -f $@; ar rcs $@ $^
$(BUILD)/libgpushm-load.so.$(VERSION): $(LOAD_OBJ) client/libgpushm-load.sym $(BUILD)/libgpushm.so
	$(call SAY,LD)$(LOAD_LD) -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lgpushm $(PROTOBUF_LIBS) $(LOAD_LIBS)
$(BUILD)/libgpushm-load.so.$(SOVERSION): $(BUILD)/libgpushm-load.so.$(VERSION)
	@ln -sf $(<F) $@
$(BUILD)/libgpushm-load.so: $(BUILD)/libgpushm-load.so.$(SOVERSION)
	@ln -sf $(<F) $@

$(call objects,$(CURL_SRC)): ALL_CFLAGS += $(if $(CURL_INCLUDE),-idirafter $(CURL_INCLUDE))
$(BUILD)/obj/client/ctl/top/screen.o: ALL_CFLAGS += -idirafter $(NCURSES_INCLUDE)

# For unit tests: all of gpushmctl but main().
$(BUILD)/ctl.a: $(call objects,$(filter-out client/ctl/main.c,$(CTL_SRC)))
	@rm -f $@; ar rcs $@ $^

# It finds its library beside itself here, and in ../lib where it is installed, with no need of ldconfig.
$(BUILD)/gpushmctl: $(call objects,$(CTL_SRC)) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -o $@ $(call objects,$(CTL_SRC)) $(BUILD)/proto.a -L$(BUILD) -lgpushm \
		$(CLIENT_LIBS) $(CTL_LIBS)

$(BUILD)/gpushm-exporter: $(call objects,$(EXPORTER_SRC)) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lgpushm \
		-lmicrohttpd $(CLIENT_LIBS)

# It uses parts of the loading library that are not exported, so it has its own copy.
$(BUILD)/gpushm-relay: $(call objects,$(RELAY_SRC)) $(BUILD)/libgpushm-load.a $(BUILD)/proto.a \
		$(BUILD)/libgpushm.so
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib' -o $@ $(filter %.o,$^) $(filter %.a,$^) -L$(BUILD) -lgpushm \
		-lmicrohttpd -lgnutls $(LOAD_LIBS) $(CLIENT_LIBS)

.PHONY: examples
EXAMPLES := $(patsubst client/examples/%.c,$(BUILD)/examples/%,\
	$(filter-out client/examples/digits%,$(wildcard client/examples/*.c))) $(BUILD)/examples/demo
examples: $(EXAMPLES)
$(BUILD)/examples/%: $(BUILD)/obj/client/examples/%.o $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/..' -o $@ $(filter %.o,$^) -L$(BUILD) -lgpushm -ldl -lm

# ---- demo ----

# With headers and nvcc the worker has a kernel; the driver makes code of its PTX when it is loaded.
KERNEL := $(and $(CUDA_INCLUDE),$(NVCC))
DIGITS := $(call objects,client/examples/digits.c client/examples/$(if $(KERNEL),digits_gpu.c,digits_nogpu.c) proto/base/libcuda.c)

$(BUILD)/examples/classify: $(DIGITS) $(if $(KERNEL),$(BUILD)/examples/classify.ptx)
$(BUILD)/examples/classify.ptx: client/examples/digits.cu client/examples/digits.h client/gpushm.h
	@mkdir -p $(@D)
	$(call SAY,NVCC)$(NVCC) -ptx -arch=compute_75 -I. -Iclient -o $@ $<

CUDART = $(wildcard $(dir $(realpath $(NVCC)))../lib64/libcudart_static.a)
# A stage that is one CUDA graph. Only gpu-bundle makes it: it needs a GPU, and the runtime of the Toolkit.
$(BUILD)/examples/graph_stage: client/examples/graph_stage.cu client/gpushm_stream.h client/gpushm.h | $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,NVCC)$(NVCC) -O2 -arch=compute_75 -I. -Iclient -Xcompiler -fno-exceptions,-fno-threadsafe-statics -c -o $@.o $<
	@$(CC) -Wl,-rpath,'$$ORIGIN/..' -o $@ $@.o -L$(BUILD) -lgpushm $(CUDART) \
		-lrt -ldl -lpthread && rm $@.o

# The demo reads .npy files with gpushmctl's parser.
$(BUILD)/examples/demo: $(call objects,$(wildcard client/examples/demo/*.c) client/common/npy.c) $(DIGITS) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/..' -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lgpushm -ldl -lm

.PHONY: demo
demo: $(BUILD)/gpushmd $(BUILD)/examples/classify $(BUILD)/examples/demo
	$(BUILD)/examples/demo $(BUILD)/gpushmd $(BUILD)/examples/classify tests/data

# ---- python ----

# client/python: an extension for Python 3.11 and all that follow, and what it is linked with beside it. Needs Python's
# headers, and pip for the wheel; nothing else here does.
PYTHON ?= python3
PYTHON_INCLUDE = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)
PYTHON_SRC  := $(wildcard client/python/core/*.c)
PYTHON_OBJ  := $(call objects,$(PYTHON_SRC))
PYTHON_HERE := $(BUILD)/python/gpushm
PYTHON_TEXT := $(patsubst client/python/gpushm/%,$(PYTHON_HERE)/%,$(wildcard $(addprefix client/python/gpushm/,*.py* py.typed */*.py)))
$(PYTHON_OBJ): ALL_CFLAGS += -isystem $(PYTHON_INCLUDE)

# With PYTHONPATH=$(BUILD)/python the package can be used from here.
.PHONY: python python-core
python-core: $(PYTHON_HERE)/_core.abi3.so $(PYTHON_HERE)/libgpushm-load.so.$(SOVERSION) $(PYTHON_TEXT)
	@rm -f $(filter-out $(PYTHON_TEXT),$(wildcard $(PYTHON_HERE)/*.py $(PYTHON_HERE)/*/*.py)) # modules that were removed
$(PYTHON_TEXT): $(PYTHON_HERE)/%: client/python/gpushm/%
	@mkdir -p $(@D); cp $< $@
# Its own copies of the libraries and of gpushmctl, which find each other in one folder.
$(PYTHON_HERE)/libgpushm.so.$(SOVERSION): $(LIBRARY_OBJ) client/libgpushm.sym
	@mkdir -p $(@D)
	$(call SAY,LD)$(LIBRARY_LD) -o $@ $(filter %.o,$^) $(CLIENT_LIBS)
$(PYTHON_HERE)/libgpushm-load.so.$(SOVERSION): $(LOAD_OBJ) client/libgpushm-load.sym $(PYTHON_HERE)/libgpushm.so.$(SOVERSION)
	$(call SAY,LD)$(LOAD_LD) -o $@ $(filter %.o %.a,$^) $(PYTHON_HERE)/libgpushm.so.$(SOVERSION) $(PROTOBUF_LIBS) $(LOAD_LIBS)
# Python's own symbols come from whoever loads it.
$(PYTHON_HERE)/_core.abi3.so: $(PYTHON_OBJ) $(PYTHON_HERE)/libgpushm.so.$(SOVERSION)
	$(call SAY,LD)$(CC) -shared $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) $(PYTHON_HERE)/libgpushm.so.$(SOVERSION)

# For a distribution's package: linked with the system's library, and without copies of others.
.PHONY: python-extension
python-extension: $(BUILD)/python-extension/_core.abi3.so
$(BUILD)/python-extension/_core.abi3.so: $(PYTHON_OBJ) $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) -shared $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -L$(BUILD) -lgpushm

.PHONY: python-programs
python-programs: $(BUILD)/python/gpushmd $(PYTHON_HERE)/gpushmctl
$(BUILD)/python/gpushmd: $(BUILD)/gpushmd
	@mkdir -p $(@D); cp $< $@
$(PYTHON_HERE)/gpushmctl: $(BUILD)/gpushmctl
	@mkdir -p $(@D); cp $< $@

# A wheel of all of it for this machine, in $(BUILD)/wheel.
PIP_WHEEL = $(call SAY,PIP)GPUSHM_MADE=1 BUILD=$(BUILD) $(1)/bin/pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
	-w $(BUILD)/wheel ./client/python
python: $(BUILD)/venv/ready python-core python-programs
	@rm -rf $(BUILD)/wheel
	$(call PIP_WHEEL,$(BUILD)/venv)

# What a build needs, with its Debian package; setup.py asks first, so that pip shows all of it at once.
NEEDS = uv.h:libuv1-dev protobuf-c/protobuf-c.h:libprotobuf-c-dev jansson.h:libjansson-dev nettle/sha2.h:nettle-dev \
	xxhash.h:libxxhash-dev Python.h:python3-dev
.PHONY: needs
needs:
	@missing=; command -v protoc-c >/dev/null || missing=" protobuf-c-compiler"; \
	echo 'int main(void) { return 0; }' | $(CC) -fsyntax-only -x c - 2>/dev/null || missing="$$missing gcc libc6-dev"; \
	for n in $(NEEDS); do \
		echo "#include <$${n%%:*}>" | $(CC) $(addprefix -isystem ,$(PYTHON_INCLUDE)) -fsyntax-only -x c - 2>/dev/null || \
			missing="$$missing $${n##*:}"; done; \
	[ -z "$$missing" ] || { echo "to build gpushm, install what these Debian packages hold:$$missing" >&2; exit 1; }

# ---- wheel and sdist ----

# A wheel for other machines: manylinux with the glibc below. zig is a C compiler that knows the symbols of each glibc; it
# comes from pip. libuv and protobuf-c are linked from Debian's archives, and auditwheel packs the other libraries. Where
# Debian's need a newer glibc than the wheel's, the linker or auditwheel says so: those of Debian 12 do not.
# WHEEL_ARCH=aarch64 makes the wheel for another machine, with Debian's packages for that one in WHEEL_OTHER; auditwheel takes
# "auto" alone for another machine, so the name is looked for afterwards.
WHEEL_GLIBC = 2.28
WHEEL_ARCH ?= $(shell uname -m)
WHEEL_TAG = manylinux_$(subst .,_,$(WHEEL_GLIBC))_$(WHEEL_ARCH)
WHEEL_BUILD = $(BUILD)/manylinux-$(WHEEL_ARCH)
WHEEL_OTHER = $(if $(filter-out $(shell uname -m),$(WHEEL_ARCH)),$(abspath $(BUILD))/packages-$(WHEEL_ARCH))
WHEEL_LIBS = $(if $(WHEEL_OTHER),$(WHEEL_OTHER)/usr/lib/$(WHEEL_ARCH)-linux-gnu,$(shell $(PKG_CONFIG) --variable=libdir libprotobuf-c))
WHEEL_VENV = $(BUILD)/venv-wheel
WHEEL_PACKAGES = libuv1-dev libprotobuf-c-dev libjansson-dev nettle-dev
WHEEL_CC = $(abspath $(WHEEL_VENV))/zig cc -target $(WHEEL_ARCH)-linux-gnu.$(WHEEL_GLIBC) -idirafter /usr/include \
	-idirafter /usr/include/$(MULTIARCH) $(if $(WHEEL_OTHER),-idirafter $(WHEEL_OTHER)/usr/include)
WHEEL_MAKE = $(MAKE_ALL) BUILD=$(WHEEL_BUILD) WHEEL_VENV=$(WHEEL_VENV) CC='$(WHEEL_CC)' CFLAGS=-O2 \
	LDFLAGS='-s $(if $(WHEEL_OTHER),$(shell echo $(WHEEL_OTHER)/usr/lib/gcc/*/*/libgcc.a))' ARCHIVES=$(WHEEL_LIBS)
WHEEL_ENV = $(if $(WHEEL_OTHER),_PYTHON_HOST_PLATFORM=linux-$(WHEEL_ARCH)) SOURCE_DATE_EPOCH=$(EPOCH) GPUSHM_LICENSES=$(WHEEL_BUILD)/licenses \
	ZIG_GLOBAL_CACHE_DIR=$(abspath $(BUILD))/zig ZIG_LOCAL_CACHE_DIR=$(abspath $(BUILD))/zig
# The time of the commit, so that the same commit gives the same bytes.
EPOCH = $(shell git log -1 --format=%ct)
DIST = $(BUILD)/dist

.PHONY: wheel wheel-here wheel-tools sdist
wheel-tools: $(WHEEL_VENV)/ready
wheel: $(WHEEL_VENV)/ready $(if $(WHEEL_OTHER),$(WHEEL_OTHER)/ready)
	$(if $(CUDA_INCLUDE),,$(error no cuda.h was found, and a wheel has all kinds of pools: make deps))
	@rm -rf $(WHEEL_BUILD)/licenses; mkdir -p $(WHEEL_BUILD)/licenses $(DIST)
	@for p in $(WHEEL_PACKAGES); do cp /usr/share/doc/$$p/copyright $(WHEEL_BUILD)/licenses/$${p%-dev} || exit 1; done
	@cp /usr/share/common-licenses/LGPL-3 /usr/share/common-licenses/GPL-3 $(WHEEL_BUILD)/licenses/
	@$(WHEEL_ENV) $(WHEEL_MAKE) wheel-here
	@rm -f $(DIST)/*.whl
	$(call SAY,WHEEL)$(WHEEL_ENV) $(if $(WHEEL_OTHER),LD_LIBRARY_PATH=$(WHEEL_LIBS)) PATH=$(abspath $(WHEEL_VENV))/bin:$$PATH \
		auditwheel repair --plat $(if $(WHEEL_OTHER),auto,$(WHEEL_TAG)) --only-plat -w $(DIST) $(WHEEL_BUILD)/wheel/*.whl
	@ls $(DIST)/*-$(WHEEL_TAG).whl
wheel-here: python-core python-programs
	@rm -rf $(BUILD)/wheel $(BUILD)/python/setuptools
	$(call PIP_WHEEL,$(WHEEL_VENV))
$(WHEEL_VENV)/ready: tests/requirements-wheel.txt
	@mkdir -p $(BUILD); rm -rf $(@D); python3 -m venv $(@D)
	$(call SAY,PIP)$(@D)/bin/pip install -q --disable-pip-version-check --no-compile -r $<
	@ln -s "$$(realpath $(@D)/lib/python3*/site-packages/ziglang/zig)" $(@D)/zig
	@touch $@

# Nothing is installed: apt has folders of its own, as if this were such a machine without any package.
OTHER_APT = apt-get -qy -o Dir::State=$(@D)/apt -o Dir::State::status=$(@D)/apt/status -o Dir::Cache=$(@D)/apt \
	-o APT::Architecture=$(DEBIAN_$(WHEEL_ARCH)) -o APT::Architectures=$(DEBIAN_$(WHEEL_ARCH)) --no-install-recommends
# libuv's archive calls gcc's atomics, of which zig lacks some; Debian's Python.h asks for the machine's pyconfig.h.
OTHER_PACKAGES = libgcc-$(firstword $(subst ., ,$(shell gcc -dumpversion)))-dev libpython3-dev
DEBIAN_aarch64 = arm64
DEBIAN_x86_64 = amd64
$(abspath $(BUILD))/packages-%/ready:
	@rm -rf $(@D); mkdir -p $(@D)/apt/lists/partial $(@D)/apt/archives/partial; touch $(@D)/apt/status
	$(call SAY,GET){ $(OTHER_APT) update && $(OTHER_APT) install --download-only $(WHEEL_PACKAGES) $(OTHER_PACKAGES); } \
		>$(@D)/apt/log 2>&1 || { tail -n 3 $(@D)/apt/log >&2; exit 1; }
	@for p in $(@D)/apt/archives/*.deb; do dpkg-deb -x $$p $(@D) || exit 1; done; rm -r $(@D)/apt; touch $@

# What is in git at HEAD, with what pip looks for in the root.
SDIST = gpushm-$(VERSION)
sdist: $(BUILD)/venv/ready
	@rm -rf $(BUILD)/sdist; mkdir -p $(BUILD)/sdist $(DIST)
	@git archive --prefix=$(SDIST)/ HEAD . ':(exclude).ci' | tar -x -C $(BUILD)/sdist
	@cp client/python/setup.py $(BUILD)/sdist/$(SDIST)/
	@sed 's|^readme = .*|readme = "client/python/README.md"|' client/python/pyproject.toml >$(BUILD)/sdist/$(SDIST)/pyproject.toml
	@cd $(BUILD)/sdist/$(SDIST) && BUILD=../metadata $(abspath $(BUILD))/venv/bin/python -c \
		'from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel(".."))' >/dev/null
	@cp $(BUILD)/sdist/gpushm-*.dist-info/METADATA $(BUILD)/sdist/$(SDIST)/PKG-INFO
	@tar -C $(BUILD)/sdist --sort=name --mtime=@$(EPOCH) --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX-w \
		--format=ustar -c $(SDIST) | gzip -9n >$(DIST)/$(SDIST).tar.gz
	@rm -rf $(BUILD)/sdist; ls $(DIST)/$(SDIST).tar.gz

# ---- tests ----

# tests/unit/test_X.c: tests a file or two, linked with the archives. tests/system/test_X.c: real daemons and clients.
UNIT_SRC     := $(filter-out $(if $(CUDA_INCLUDE),,tests/unit/fakes/% tests/unit/models/test_ring.c),$(wildcard tests/unit/*/test_*.c))
SYSTEM_SRC   := $(wildcard tests/system/*/test_*.c)
UNIT_TESTS   := $(patsubst %.c,$(BUILD)/tests/unit/%,$(notdir $(UNIT_SRC)))
SYSTEM_TESTS := $(patsubst %.c,$(BUILD)/tests/system/%,$(notdir $(SYSTEM_SRC))) $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/adversary/test_*.c))
TEST_LIB     := $(call objects,$(wildcard tests/lib/*.c))
CHECK_LIBS   = $(shell $(PKG_CONFIG) --libs check)
.SECONDARY:

# The sub-folders of the sources are not in the path of a program.
$(foreach s,$(UNIT_SRC) $(SYSTEM_SRC),$(eval $(BUILD)/tests/$(word 2,$(subst /, ,$s))/$(basename $(notdir $s)): $(call objects,$s)))
$(filter $(BUILD)/tests/adversary/%,$(SYSTEM_TESTS)): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o

$(UNIT_TESTS): $(TEST_LIB) $(BUILD)/daemon.a $(BUILD)/ctl.a $(BUILD)/libgpushm-load.a $(BUILD)/libgpushm.a
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CHECK_LIBS) $(DAEMON_LIBS) $(CTL_LIBS) $(LOAD_LIBS)
$(BUILD)/tests/unit/test_manifest: $(call objects,client/relay/serve/range.c)
$(BUILD)/tests/unit/test_mirrors: $(call objects,$(addprefix client/relay/fleet/,announcement.c mirrors.c transfers.c))
# Calls from our archives go through tests/unit/memory_fixture.h; not those of the gpushmd that one of them starts (private).
MEMORY_TESTS := $(filter %_memory,$(UNIT_TESTS))
$(MEMORY_TESTS): private ALL_LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=reallocarray
$(BUILD)/tests/unit/test_remote_memory: private ALL_LDFLAGS += -Wl,--wrap=strdup,--wrap=strndup,--wrap=asprintf
$(BUILD)/tests/unit/test_remote_memory: | $(BUILD)/gpushmd

$(SYSTEM_TESTS): $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so $(BUILD)/libgpushm-load.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..' -o $@ $(filter %.o,$^) $(filter %.a,$^) -L$(BUILD) -lgpushm-load -lgpushm \
		$(CHECK_LIBS) $(CLIENT_LIBS)

# A model of the daemon, and what plays both.
$(BUILD)/tests/adversary/test_model: $(call objects,$(wildcard tests/model/*.c))

# The protocol of streams, compiled with operations on words that are steps of the checker.
STREAMS_MODEL_SRC := $(wildcard tests/model/streams/*.c) client/lib/stream/writer.c client/lib/stream/reader.c daemon/catalog/stream_words.c
STREAMS_MODEL := $(BUILD)/tests/model/streams
$(BUILD)/obj/model/%.o: %.c
	@mkdir -p $(@D)
	$(call SAY,CC)$(CC) $(ALL_CFLAGS) -O2 -fno-sanitize=all -DSTREAM_STEPS='"tests/model/streams/steps.h"' -MMD -MP -c -o $@ $<
$(STREAMS_MODEL): $(patsubst %.c,$(BUILD)/obj/model/%.o,$(STREAMS_MODEL_SRC))
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^

# What an honest user notices of a hostile one: a test, and the program that prints the table of tests/adversary/RESULTS.md.
ATTACK_OBJ := $(call objects,tests/adversary/fairness.c tests/adversary/hostile.c)
$(BUILD)/tests/adversary/test_fairness: $(ATTACK_OBJ)
$(BUILD)/tests/adversary/attack: $(call objects,tests/adversary/attack.c) $(ATTACK_OBJ) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..' -o $@ $(filter %.o,$^) $(filter %.a,$^) -L$(BUILD) -lgpushm $(CHECK_LIBS) $(CLIENT_LIBS)

# A gpushmd whose own allocations can be made to fail; tests/adversary/test_*memory start it.
$(BUILD)/tests/gpushmd-failmalloc: $(call objects,daemon/main.c tests/adversary/failmalloc.c) $(BUILD)/daemon.a $(BUILD)/proto.a
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=reallocarray,--wrap=strdup -o $@ $^ $(DAEMON_LIBS)
$(BUILD)/tests/adversary/test_memory $(BUILD)/tests/adversary/test_successors_memory: | $(BUILD)/tests/gpushmd-failmalloc
# One that kills itself at the n-th place; tests/adversary/test_crash starts it.
$(BUILD)/tests/gpushmd-crashat: $(call objects,daemon/main.c tests/adversary/crashat.c) $(BUILD)/daemon.a $(BUILD)/proto.a
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,--wrap=journal_append,--wrap=fdstore_keep,--wrap=fdstore_forget,--wrap=reply_send,--wrap=fd_list_exec,--wrap=fd_list_receive -o $@ $^ $(DAEMON_LIBS)
$(BUILD)/tests/adversary/test_crash: | $(BUILD)/tests/gpushmd-crashat

# Tests of a real GPU, and those among them that run over our own libcuda.so.1 as well (GPU_FAKE).
GPU_TESTS  := $(if $(CUDA_INCLUDE),$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/gpu/test_*.c)))
GPU_DEATHS := $(filter %/test_gpu_kill_race %/test_gpu_restart,$(GPU_TESTS))
GPU_FAKE   := $(GPU_DEATHS) $(filter %/test_gpu_streams %/test_gpu_stream_failures,$(GPU_TESTS))
GPU_LIB    := $(call objects,$(filter-out tests/gpu/nopidfd.c $(wildcard tests/gpu/test_*.c),$(wildcard tests/gpu/*.c)))
$(GPU_TESTS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(GPU_LIB) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..' -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lgpushm $(CHECK_LIBS) \
		$(CLIENT_LIBS)
# One that can't watch any process; the kill race starts it to see what its rule is for.
$(BUILD)/tests/gpushmd-nopidfd: $(call objects,daemon/main.c tests/gpu/nopidfd.c) $(BUILD)/daemon.a $(BUILD)/proto.a
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -Wl,--wrap=pidfd_of_peer -o $@ $^ $(DAEMON_LIBS)
$(BUILD)/tests/gpu/test_gpu_kill_race $(BUILD)/tests/gpu/test_gpu_streams: | $(BUILD)/tests/gpushmd-nopidfd

# Our own libcuda.so.1, made of memfds; tests put its folder into LD_LIBRARY_PATH.
FAKECUDA := $(if $(CUDA_INCLUDE),$(BUILD)/fakecuda/libcuda.so.1)
$(BUILD)/fakecuda/libcuda.so.1: $(call objects,$(wildcard tests/fakecuda/*.c))
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $^ -lpthread

# Our own libnixl_capi.so, which checks how it is used; tests name it in GPUSHM_NIXL.
FAKENIXL := $(BUILD)/fakenixl/libnixl_capi.so
$(FAKENIXL): $(call objects,$(wildcard tests/fakenixl/*.c))
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libnixl_capi.so -o $@ $^ -lpthread
$(BUILD)/tests/unit/test_nixl: | $(FAKENIXL)

# ---- fuzz ----

# A parser each, for FUZZ_SECONDS, from its corpus; what is found stays in the build folder.
FUZZ_SECONDS ?= 10
FUZZ_CC ?= clang
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/bin/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_LIB := $(call objects,$(filter-out tests/fuzz/fuzz_%,$(wildcard tests/fuzz/*.c)))
FUZZ_MAKE = $(MAKE_ALL) BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) SANITIZE=fuzzer-no-link,address,undefined CFLAGS='-O1 -g' $(FUZZ_TARGETS)
.PHONY: fuzz-targets
fuzz-targets:
	@$(FUZZ_MAKE)
# Archives: each fuzzer has what it calls, since the daemon and the library have functions of the same name.
$(BUILD)/fuzz.a: $(FUZZ_LIB)
	@rm -f $@; ar rcs $@ $^
$(BUILD)/bin/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/fuzz.a $(BUILD)/daemon.a $(BUILD)/ctl.a $(BUILD)/libgpushm-load.a $(BUILD)/libgpushm.a
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) -fsanitize=fuzzer,address,undefined -o $@ $^ $(DAEMON_LIBS) $(CTL_LIBS) $(LOAD_LIBS)

# ---- bench ----

# What gpushm costs over the calls that must be made anyway: tests/bench/RESULTS.md. BENCH= are its options.
BENCH ?=
BENCH_SRC := $(filter-out tests/bench/bare_start.c tests/bench/models_load.c tests/bench/models_ring.c $(if $(CUDA_INCLUDE),tests/bench/gpu_none.c,\
	tests/bench/gpu_driver.c tests/bench/gpu_memory.c tests/bench/gpu_sweep.c),$(wildcard tests/bench/*.c)) \
	$(if $(CUDA_INCLUDE),tests/gpu/driver.c)
STREAMS_BIN := $(BUILD)/tests/bench/streams
BENCH_BIN := $(BUILD)/gpushm-bench $(BUILD)/tests/bench/bare_start $(if $(CUDA_INCLUDE),$(addprefix $(BUILD)/tests/bench/,models_load models_ring) $(STREAMS_BIN))
$(BUILD)/gpushm-bench: $(call objects,$(BENCH_SRC) daemon/util/verb_counts.c) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lgpushm $(CHECK_LIBS) \
		$(CLIENT_LIBS) -lm
$(BUILD)/tests/bench/models_ring: $(call objects,tests/bench/models_ring.c tests/bench/sample.c) $(BUILD)/libgpushm-load.a $(BUILD)/libgpushm.a
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CLIENT_LIBS) $(LOAD_LIBS) -lm
$(BUILD)/tests/bench/bare_start: $(call objects,tests/bench/bare_start.c)
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ldl

$(BUILD)/tests/bench/models_load: $(call objects,tests/bench/models_load.c) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so $(BUILD)/libgpushm-load.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..' -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lgpushm-load -lgpushm $(CHECK_LIBS) \
		$(CLIENT_LIBS)

# Frames from process to process, beside the other ways.
STREAMS_BENCH_SRC := $(wildcard tests/bench/streams/*.c) tests/bench/sample.c
$(STREAMS_BIN): $(call objects,$(STREAMS_BENCH_SRC)) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..' -o $@ $(filter %.o %.a,$^) -L$(BUILD) -lgpushm $(CHECK_LIBS) \
		$(CLIENT_LIBS)

BENCH_OUT = $(or $(OUT),$(BUILD))

PLOT = $(or $(wildcard $(BUILD)/venv/bin/python),python3) -B tests/bench/plot.py $(BENCH_OUT)

.PHONY: bench bench-plots bench-gpu
bench: $(BUILD)/gpushmd $(BENCH_BIN)
	$(BUILD)/gpushm-bench --json $(BENCH_OUT)/bench.json $(BENCH)
	@$(PLOT)
# Draws the plots again from the .json files of a run: make bench-plots OUT=FOLDER.
bench-plots: $(BUILD)/venv/ready
	@$(PLOT)
# On a machine with a GPU, from a gpu-bundle (below): all of it, and beside what people use today. Writes to $OUT, if it
# is set, and has no prerequisites.
bench-gpu:
	@bad=0; export $(GPU_PATH); \
	$(BUILD)/gpushm-bench --json $(BENCH_OUT)/bench.json $(BENCH) || bad=1; \
	python3 tests/bench/peers.py $(BUILD) --out $(BENCH_OUT) || bad=1; $(PLOT) || bad=1; exit $$bad
# Likewise for streams, without MPS and, where its daemon is, with it. STREAMS= are the options of tests/bench/streams.
STREAMS ?=
.PHONY: bench-streams
bench-streams: $(if $(wildcard $(BUILD)/deps),,$(BUILD)/gpushmd $(STREAMS_BIN))
	@bad=0; export $(GPU_PATH); \
	$(STREAMS_BIN) --json $(BENCH_OUT)/streams.json $(STREAMS) || bad=1; \
	if command -v nvidia-cuda-mps-control >/dev/null && [ -z "$(STREAMS)" ]; then \
		$(STREAMS_BIN) --mps --json $(BENCH_OUT)/streams-mps.json || bad=1; fi; \
	python3 tests/bench/markdown.py $(BENCH_OUT) >$(BENCH_OUT)/streams.md || bad=1; $(PLOT) || bad=1; exit $$bad
# Likewise for models: a file of MODELS_GIB in MODELS_FOLDER, loaded, saved and verified, beside what people use today; then
# an attach of a model of transformers, and what many arrays cost the daemon.
MODELS_FOLDER ?= /dev/shm
MODELS_GIB ?= 16
MODELS_JSON = $(BENCH_OUT)/models.json
.PHONY: bench-models
bench-models:
	@bad=0; export $(GPU_PATH); \
	$(BUILD)/tests/bench/models_load $(MODELS_FOLDER) --gib $(MODELS_GIB) --json $(MODELS_JSON) || bad=1; \
	$(BUILD)/tests/bench/models_ring $(MODELS_FOLDER)/gpushm-bench.safetensors --json $(BENCH_OUT)/models-ring.json || bad=1; \
	python3 tests/bench/models_peers.py $(MODELS_FOLDER)/gpushm-bench.safetensors --json $(MODELS_JSON) || bad=1; \
	rm -f $(MODELS_FOLDER)/gpushm-bench.safetensors; \
	export BUILD=$(BUILD) PYTHONPATH=$(BUILD)/python:$$PYTHONPATH; \
	python3 -B tests/bench/models_attach.py --json $(MODELS_JSON) || bad=1; \
	python3 -B tests/bench/models_memory.py --json $(MODELS_JSON) || bad=1; \
	$(PLOT) || bad=1; exit $$bad
# Pulls and loads between namespaces of this machine, beside iperf3 and curl; then a fleet by simulation, with the rates
# that were measured and with those of a network of 25 Gb/s. NODES= are the options of tests/bench/nodes/bench.py.
NODES ?=
FLEET = python3 -B tests/bench/nodes/fleet.py
.PHONY: bench-nodes
bench-nodes: $(if $(wildcard $(BUILD)/deps),,all)
	@$(if $(wildcard $(BUILD)/deps),export $(GPU_PATH);) BUILD=$(BUILD) python3 -B tests/bench/nodes/bench.py --out $(BENCH_OUT) $(NODES)
	@$(FLEET) --sizes 100 $(if $(wildcard $(BENCH_OUT)/nodes.json),--measured $(BENCH_OUT)/nodes.json)
	@$(FLEET) --sizes 100,1000 --rules all
	@$(FLEET) --sizes 8,100,1000,10000 --out $(BENCH_OUT)
	@$(PLOT)

# ---- check ----

# "check" is for everybody, "check-deep" for what takes longer. The programs of all parts are one queue of tests/run.sh,
# which runs JOBS of them at a time: most of them wait for timers and other processes. Counts and seconds of each
# program are lines of $(RESULTS): sort -k5 -nr $(RESULTS) | head.
RESULTS := $(abspath $(BUILD))/results
RUN := tests/run.sh --results $(RESULTS)
JOBS ?= $(shell expr 2 \* $(PROCESSORS))
QUEUE = $(RUN) -j $(JOBS)
FAKE_PATH = LD_LIBRARY_PATH=$(abspath $(BUILD))/fakecuda
FAKE_ENV = $(FAKE_PATH) FAKECUDA_STRICT=1
# pick NAMES,PROGRAMS: those of the programs; a name that none of them has is an error.
pick = $(foreach n,$(1),$(or $(filter %/test_$(n),$(2)),$(error there is no test_$(n))))
# The programs, with those that take longest first.
longest_first = $(foreach n,$(LONG),$(filter %/test_$(n),$(1))) $(filter-out $(addprefix %/test_,$(LONG)),$(1))
LONG = crash model serialize ctl_scripts watches flood

# Storms and long runs of the model are for check-deep.
STORMS      = $(call pick,storm reexec_storm,$(SYSTEM_TESTS))
QUICK_TESTS = $(call longest_first,$(filter-out $(STORMS),$(SYSTEM_TESTS)))
QUICK_ENV   = MODEL_SEQUENCES=200

# A part of a queue: its name, its environment, its programs. "host" has no driver, "fake" is over our own libcuda.so.1.
UNIT_PART   = unit $(if $(FAKECUDA),$(FAKE_PATH)) $(call longest_first,$(UNIT_TESTS))
STREAMS_QUICK = $(if $(CUDA_INCLUDE),"$(STREAMS_BIN) --quick$(1)")
HOST_PART   = host $(QUICK_ENV) BUILD=$(BUILD) tests/system/ctl/exporter.py "python3 -B tests/bench/nodes/test_fleet.py" $(QUICK_TESTS) tests/system/protocol_client.py $(call STREAMS_QUICK, --host)
FAKE_PART   = $(if $(FAKECUDA),fake $(FAKE_ENV) $(QUICK_ENV) $(QUICK_TESTS) $(GPU_FAKE) $(call STREAMS_QUICK))
# Over gpushmd's own keeper: the tests of what outlives a daemon.
KEEPER_PART = keeper $(if $(FAKECUDA),$(FAKE_ENV)) SUPERVISOR=keeper $(call pick,fdstore reexec_kept restart versions places successors stream_processes,$(SYSTEM_TESTS))
PYTHON_PART = $(if $(PYTHON_READY),python $(if $(FAKECUDA),$(FAKE_ENV)) $(PYTEST))
# Over two GPUs: the tests that a second one changes.
GPUS_TESTS  = $(patsubst %,tests/python/test_%.py,two_gpus order compute resource)
PYTHON_GPUS_PART = $(if $(and $(PYTHON_READY),$(FAKECUDA)),python-gpus $(FAKE_ENV) FAKECUDA_DEVICES=2 BUILD=$(BUILD) \
	"$(BUILD)/venv/bin/python -B -m pytest $(GPUS_TESTS)")
# Several machines: network namespaces. A program is a file; check-deep runs the tests that are marked as deep.
NODES_TESTS = $(wildcard tests/nodes/test_*.py)
NODES_DEEP_TESTS = $(shell grep -l 'mark\.deep' $(NODES_TESTS))
nodes_part  = $(if $(and $(PYTHON_READY),$(2)),$(1) BUILD=$(BUILD) $(foreach t,$(2),"$(BUILD)/venv/bin/python -B -m pytest --nodes $(3) $(t)"))
NODES_PART  = $(call nodes_part,nodes,$(NODES_TESTS),quick)
NODES_DEEP_PART = $(call nodes_part,nodes-deep,$(NODES_DEEP_TESTS),deep)
DEMO_PART   = demo "tests/demo.sh $(BUILD)"
STREAMS_PART = streams $(STREAMS_MODEL)
STREAMS_DEEP_PART = streams-deep "$(STREAMS_MODEL) --deep" "tests/model/streams/mutants.sh $(BUILD)"
# Parts as the arguments of tests/run.sh.
parts = $(foreach p,$(1),$(if $($(p)),-- $($(p))))

# A build, and how long it took: $(call built,NAME,COMMAND).
built = start=$$(date +%s); $(2) && echo "== built $(1): $$(($$(date +%s) - start)) s"

.PHONY: check check-here check-programs
check:
	@mkdir -p $(BUILD); rm -f $(RESULTS)
	@$(TORCH_SKIPPED)
	@$(PYTHON_VENV)
	@$(MAKE) check-here
check-here:
	@$(call built,programs and tests,$(MAKE_ALL) all check-programs $(if $(PYTHON_READY),python))
	@$(if $(PYTHON_READY),$(PYTHON_INSTALL))
	@bad=0; $(QUEUE) $(call parts,PYTHON_PART NODES_PART PYTHON_GPUS_PART FAKE_PART HOST_PART KEEPER_PART UNIT_PART STREAMS_PART DEMO_PART) || bad=1; \
		tests/run.sh --sum $(RESULTS) && exit $$bad

# For the build of a package: neither a driver, nor Python, nor what takes longer than some seconds.
LONGER = $(call pick,$(LONG) ctl_load load load_engine load_once many_arrays reconfigured save threads,$(UNIT_TESTS) $(SYSTEM_TESTS))
SHORT_TESTS = $(filter-out $(LONGER) $(STORMS) $(BUILD)/tests/adversary/%,$(UNIT_TESTS) $(SYSTEM_TESTS))
SHORT_UNIT_PART = unit $(if $(FAKECUDA),$(FAKE_PATH)) $(filter $(UNIT_TESTS),$(SHORT_TESTS))
SHORT_HOST_PART = host $(filter $(SYSTEM_TESTS),$(SHORT_TESTS))
.PHONY: check-short
check-short: all $(SHORT_TESTS) $(FAKECUDA)
	@rm -f $(RESULTS)
	@bad=0; $(QUEUE) $(call parts,SHORT_UNIT_PART SHORT_HOST_PART) || bad=1; tests/run.sh --sum $(RESULTS) && exit $$bad

# A test that was renamed and is chosen by its old name stops this build.
check-programs: $(BUILD)/gpushmd $(BUILD)/gpushmctl $(STREAMS_MODEL) $(EXPORTER) $(RELAY) $(UNIT_TESTS) $(SYSTEM_TESTS) $(GPU_FAKE) $(FAKECUDA) $(FAKENIXL) $(if $(CUDA_INCLUDE),$(STREAMS_BIN))
	@$(if $(STORMS)$(THREAD_TESTS)$(VALGRIND_TESTS)$(GPU_SYSTEM_TESTS),:)

# One part alone.
.PHONY: check-unit check-host check-fake check-keeper check-python check-python-here check-nodes check-nodes-here check-demo
check-unit: $(UNIT_TESTS) $(FAKECUDA)
	@$(QUEUE) $(UNIT_PART)
check-host: check-programs
	@$(QUEUE) $(HOST_PART)
check-fake: check-programs
	@$(QUEUE) $(FAKE_PART)
check-keeper: check-programs
	@$(QUEUE) $(call parts,KEEPER_PART KEEPER_CRASH_PART KEEPER_DEEP_PART)
check-demo: all
	@$(RUN) $(DEMO_PART)
check-python:
	@$(PYTHON_VENV)
	@$(MAKE) check-python-here
check-python-here: $(if $(PYTHON_READY),python) $(BUILD)/gpushmd $(FAKECUDA)
	@$(if $(PYTHON_READY),$(PYTHON_INSTALL) && $(QUEUE) $(call parts,PYTHON_PART PYTHON_GPUS_PART))

check-nodes:
	@$(PYTHON_VENV)
	@$(MAKE) check-nodes-here
check-nodes-here: all $(if $(PYTHON_READY),python) $(FAKECUDA) $(FAKENIXL)
	@$(if $(PYTHON_READY),$(PYTHON_INSTALL) && $(QUEUE) $(call parts,NODES_PART NODES_DEEP_PART))

# A fleet whose relays and daemons are killed at random moments, for STORM_SECONDS; it prints its seed.
.PHONY: storm-nodes
storm-nodes: all
	@BUILD=$(BUILD) $(PYTHON) -B tests/nodes/storm.py $(or $(STORM_SECONDS),600) $(STORM_SEED)

# The wheel, installed, with NumPy. Where Python is too old, has no headers, or pip reaches no index, there is no package
# to test.
PYTHON_FITS  = $(and $(filter 1,$(shell $(PYTHON) -c 'import sys; print(int(sys.version_info >= (3, 11)))' 2>/dev/null)), \
	$(wildcard $(PYTHON_INCLUDE)/Python.h))
PYTHON_READY = $(and $(PYTHON_FITS),$(wildcard $(BUILD)/venv/ready))
PYTHON_VENV  = $(if $(PYTHON_FITS),$(MAKE) -s venv,echo "the Python package needs Python 3.11 and its headers"; false) || \
	{ echo "skipped: the Python package"; echo "python 0 0 1 0 s" >>$(RESULTS); }
PYTHON_INSTALL = $(BUILD)/venv/bin/pip install -q --disable-pip-version-check --no-deps --force-reinstall $(BUILD)/wheel/*.whl
PYTEST = BUILD=$(BUILD) "$(BUILD)/venv/bin/python -B -m pytest tests/python"

# What needs PyTorch, transformers and safetensors: 5 GB, in a virtual environment of their own. TORCH_TESTS= chooses.
TORCH_TESTS ?= tests/python/models
TORCH_PYTEST = "$(BUILD)/venv-torch/bin/python -B -m pytest -c tests/python/gpu/pytest.ini --rootdir tests/python --confcutdir tests/python $(TORCH_TESTS)"
TORCH_SKIPPED = echo "skipped: models of PyTorch (make check-torch)"; echo "torch 0 0 1 0 s" >>$(RESULTS)
.PHONY: check-torch
check-torch: $(BUILD)/venv-torch/ready python-core $(BUILD)/gpushmd $(BUILD)/gpushmctl
	@rm -f $(RESULTS)
	@$(RUN) torch BUILD=$(BUILD) PYTHONPATH=$(abspath $(BUILD))/python $(TORCH_PYTEST)
	@tests/run.sh --sum $(RESULTS)

# The examples for distributed engines, with two nodes or workers on this machine. check-deep runs them if venv-fleet was made.
FLEET_PYTEST = "$(BUILD)/venv-fleet/bin/python -B -m pytest -c tests/python/gpu/pytest.ini --rootdir tests/python --confcutdir tests/python/fleet tests/python/fleet"
FLEET_PART = $(if $(and $(PYTHON_READY),$(wildcard $(BUILD)/venv-fleet/ready)),fleet BUILD=$(BUILD) PYTHONPATH=$(abspath $(BUILD))/python $(FLEET_PYTEST))
FLEET_SKIPPED = $(if $(wildcard $(BUILD)/venv-fleet/ready),:,echo "skipped: Ray and Dask (make venv-fleet)"; echo "fleet 0 0 1 0 s" >>$(RESULTS))
.PHONY: check-fleet
check-fleet: $(BUILD)/venv-fleet/ready python-core $(BUILD)/gpushmd $(BUILD)/gpushmctl
	@$(RUN) fleet BUILD=$(BUILD) PYTHONPATH=$(abspath $(BUILD))/python $(FLEET_PYTEST)

# What an attach costs in Python above C. Measures; asserts nothing.
.PHONY: bench-python
bench-python: python-core $(BUILD)/gpushmd $(BUILD)/tests/python/attach
	BUILD=$(BUILD) PYTHONPATH=$(BUILD)/python $(PYTHON) -B tests/python/bench_attach.py
$(BUILD)/tests/python/attach: $(BUILD)/obj/tests/python/attach.o $(BUILD)/libgpushm.so
	@mkdir -p $(@D)
	$(call SAY,LD)$(CC) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/../..' -o $@ $(filter %.o,$^) -L$(BUILD) -lgpushm

# ---- check-deep ----

# The same programs, built with sanitizers. What runs by the clock or by the thousand runs at length without them.
ASAN_MAKE = $(MAKE_ALL) BUILD=$(BUILD)/asan SANITIZE=address,undefined CFLAGS='-O1 -g'
TSAN_MAKE = $(MAKE_ALL) BUILD=$(BUILD)/tsan SANITIZE=thread CFLAGS='-O1 -g'
asan = $(patsubst $(BUILD)/%,$(BUILD)/asan/%,$(1))
tsan = $(patsubst $(BUILD)/%,$(BUILD)/tsan/%,$(1))
SHORT_ENV = STORM_SECONDS=10 MODEL_SEQUENCES=100
ASAN_ENV  = ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 $(SHORT_ENV) \
	$(if $(FAKECUDA),LD_LIBRARY_PATH=$(abspath $(BUILD))/asan/fakecuda)
TSAN_ENV  = TSAN_OPTIONS=halt_on_error=1 $(SHORT_ENV) $(if $(FAKECUDA),LD_LIBRARY_PATH=$(abspath $(BUILD))/tsan/fakecuda)
ASAN_UNIT_PART = asan-unit $(ASAN_ENV) $(call asan,$(call longest_first,$(UNIT_TESTS)))
ASAN_FAKE_PART = asan-fake $(ASAN_ENV) FAKECUDA_STRICT=1 $(call asan,$(STORMS) $(QUICK_TESTS) $(GPU_FAKE))
# Client and workers: what has threads; and a daemon that serves while they open its pools.
THREAD_TESTS = $(call pick,hashtable worker pool deferred_free pool_request map connection buffer defer stream_words ring,$(UNIT_TESTS)) \
	$(call pick,threads buffer_state watch restart reset streams stream_waits verify,$(SYSTEM_TESTS))
TSAN_PART    = tsan $(TSAN_ENV) $(call tsan,$(THREAD_TESTS))

empty :=
space := $(empty) $(empty)
PYTHON_PRELOAD = $(wildcard $(shell $(CC) -print-file-name=libasan.so) $(shell $(CC) -print-file-name=libubsan.so))
PYTHON_ASAN_PART = $(if $(and $(PYTHON_READY),$(PYTHON_PRELOAD)),python-asan $(if $(FAKECUDA),$(FAKE_PATH)) \
	PYTHONPATH=$(BUILD)/asan/python PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
	LD_PRELOAD=$(subst $(space),:,$(PYTHON_PRELOAD)) $(PYTEST))
PYTHON_HOST_PART = $(if $(and $(PYTHON_READY),$(FAKECUDA)),python-host $(PYTEST))

VALGRIND = --under 'prlimit --nofile=1024 valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --trace-children=no'
VALGRIND_TESTS = $(call pick,table table_view wire config ini view array status_page npy deferred_free pool dlpack,$(UNIT_TESTS))
VALGRIND_PART = valgrind $(VALGRIND) $(VALGRIND_TESTS)
STORM_HOST_PART = storm-host $(STORMS)
STREAM_STORM_PART = stream-storm STORM_SECONDS=60 $(call pick,stream_storm,$(SYSTEM_TESTS))
STORM_FAKE_PART = $(if $(FAKECUDA),storm-fake $(FAKE_ENV) $(STORMS))
KEEPER_DEEP_PART = keeper-deep $(if $(FAKECUDA),$(FAKE_PATH)) SUPERVISOR=keeper STORM_SECONDS=45 MODEL_SEQUENCES=100 \
	$(call pick,stream_storm storm model watches buffer_state no_reply pid_namespace reconfigured unmap_fails,$(SYSTEM_TESTS))
KEEPER_CRASH_PART = keeper-crash SUPERVISOR=keeper $(call pick,crash,$(SYSTEM_TESTS))
MODEL_PART   = model $(if $(FAKECUDA),$(FAKE_ENV)) MODEL_SEQUENCES=1000 $(call pick,model,$(SYSTEM_TESTS))
FUZZ_PART    = fuzz $(foreach t,$(FUZZ_TARGETS),"tests/fuzz/run.sh $(BUILD) $(notdir $(t)) $(FUZZ_SECONDS)")
BENCH_PART   = bench "tests/bench/smoke.sh $(BUILD)"
INSTALL_PART = install "tests/install.sh $(BUILD)"
PROMETHEUS_PART = prometheus "tests/prometheus/run.sh $(BUILD)"
SYSTEMD_PART = systemd "tests/system/systemd.sh $(BUILD)"
PACKAGES_PART = packages "tests/packages/lint.sh $(BUILD)"
IMAGE_PART   = image "tests/image.sh $(BUILD)"
LINT_PART    = lint "$(MAKE) -s lint"
WHEEL_PART   = wheel "tests/wheel.sh $(BUILD)"
BARE_PART    = bare tests/bare_root.sh
DEEP_PARTS   = BARE_PART NODES_DEEP_PART STORM_FAKE_PART STORM_HOST_PART STREAM_STORM_PART KEEPER_CRASH_PART KEEPER_DEEP_PART PYTHON_ASAN_PART ASAN_FAKE_PART ASAN_UNIT_PART LINT_PART MODEL_PART \
	TSAN_PART FUZZ_PART VALGRIND_PART PYTHON_HOST_PART BENCH_PART INSTALL_PART STREAMS_DEEP_PART SYSTEMD_PART WHEEL_PART IMAGE_PART PACKAGES_PART PROMETHEUS_PART FLEET_PART

.PHONY: check-deep check-deep-here
check-deep: | $(filter check,$(MAKECMDGOALS))
	@mkdir -p $(BUILD); $(if $(filter check,$(MAKECMDGOALS)),,rm -f $(RESULTS); $(TORCH_SKIPPED); $(PYTHON_VENV))
	@$(MAKE) check-deep-here
check-deep-here:
	@$(FLEET_SKIPPED)
	@$(call built,programs and tests,$(MAKE_ALL) all check-programs $(BENCH_BIN) $(if $(PYTHON_READY),python))
	@$(if $(PYTHON_READY),$(PYTHON_INSTALL))
	@$(call built,with AddressSanitizer,$(ASAN_MAKE) check-programs $(if $(PYTHON_READY),python-core))
	@$(call built,with ThreadSanitizer,$(TSAN_MAKE) $(TSAN_BUILT))
	@$(call built,fuzzers,$(FUZZ_MAKE))
	@bad=0; $(QUEUE) $(call parts,$(DEEP_PARTS)) || bad=1; tests/run.sh --sum $(RESULTS) && exit $$bad
TSAN_BUILT = $(call tsan,$(BUILD)/gpushmd $(THREAD_TESTS) $(FAKECUDA))

# One part alone.
.PHONY: check-sanitize check-threads check-valgrind check-storms check-model check-fuzz check-bench check-install check-systemd check-wheel check-bare check-prometheus
check-sanitize:
	@$(ASAN_MAKE) check-programs
	@$(QUEUE) $(call parts,ASAN_FAKE_PART ASAN_UNIT_PART)
check-threads:
	@$(TSAN_MAKE) $(TSAN_BUILT)
	@$(QUEUE) $(TSAN_PART)
check-valgrind: $(UNIT_TESTS)
	@$(QUEUE) $(VALGRIND_PART)
check-storms: check-programs
	@$(QUEUE) $(call parts,STORM_FAKE_PART STORM_HOST_PART STREAM_STORM_PART)
check-model: check-programs
	@$(QUEUE) $(MODEL_PART)
check-fuzz:
	@$(FUZZ_MAKE)
	@$(QUEUE) $(FUZZ_PART)
check-bench: $(BUILD)/gpushmd $(BENCH_BIN) $(FAKECUDA)
	@$(RUN) $(BENCH_PART)
check-install: all
	@$(RUN) $(INSTALL_PART)
check-systemd: all
	@$(RUN) $(SYSTEMD_PART)
check-wheel:
	@$(RUN) $(WHEEL_PART)
check-bare:
	@$(RUN) $(BARE_PART)
check-prometheus: all $(FAKECUDA)
	@$(RUN) $(PROMETHEUS_PART)

# What takes longer of packages: a build as package builders make it, with its tests; a second build with the same bytes;
# README's commands in a root that has almost nothing; installation, upgrades and purge under systemd.
.PHONY: check-packages
check-packages: all
	@rm -f $(RESULTS)
	@DEB_BUILD_OPTIONS=nocheck $(MAKE) deb
	@bad=0; $(RUN) packages "tests/packages/lint.sh $(BUILD) --built" || bad=1; \
		for test in reproducible upgrade chroot; do $(RUN) packages "tests/packages/$$test.sh $(BUILD)" || bad=1; done; \
		BARE=deb $(RUN) packages tests/bare_root.sh || bad=1; tests/run.sh --sum $(RESULTS) && exit $$bad

# ---- a real GPU ----

# Built where there are packages, run where there is a GPU: the few libraries that a GPU machine may lack go along.
#   make gpu-bundle BUILD=build-gpu        then, there, from the same tree:  make check-gpu BUILD=build-gpu
# For its Python they need be of its version; libraries like CuPy and PyTorch are the machine's.
GPU_PYTHON ?= 3.12
GPU_WHEELS = pytest pluggy iniconfig packaging pygments ml_dtypes gunicorn pyte wcwidth
.PHONY: gpu-bundle check-gpu check-gpu-deaths check-gpu-python
$(BUILD)/deps/python/ready:
	@mkdir -p $(@D); python3 -m venv $(BUILD)/pip
	$(BUILD)/pip/bin/pip install -q --disable-pip-version-check --no-compile --no-deps --upgrade --target $(@D) --only-binary :all: \
		--python-version $(GPU_PYTHON) --platform manylinux_2_17_x86_64 $(GPU_WHEELS)
	@rm -rf $(BUILD)/pip; touch $@
gpu-bundle: all $(SYSTEM_TESTS) $(GPU_TESTS) $(BENCH_BIN) $(if $(and $(KERNEL),$(CUDART)),$(BUILD)/examples/graph_stage) python-core $(BUILD)/deps/python/ready
	@mkdir -p $(BUILD)/deps
	ldd $(BUILD)/gpushmd $(BUILD)/gpushmctl $(wildcard $(BUILD)/gpushm-relay) $(BUILD)/libgpushm-load.so $(GPU_TESTS) $(BUILD)/gpushm-bench | \
		awk '/lib(uv|protobuf-c|check|subunit|jansson|nettle|microhttpd)\.so/ { print $$3 }' | sort -u | \
		xargs -I{} cp -L {} $(BUILD)/deps/
	rm -rf $(BUILD)/obj $(BUILD)/tests/unit $(BUILD)/fakecuda
	strip $(BUILD)/tests/*/test_* $(BUILD)/tests/gpushmd-* $(BUILD)/tests/bench/* $(BUILD)/gpushmd \
		$(BUILD)/gpushmctl $(BUILD)/gpushm-bench $(BUILD)/python/gpushm/*.so*

# Has no prerequisites: it runs what is there. Of the system tests those that mean something else on real memory.
GPU_SYSTEM_TESTS = $(call pick,share containers restart reset names deaths copies dirty defer flush threads ctl_scripts ctl_streams layout load load_changes load_once load_engine save verify,$(SYSTEM_TESTS))
GPU_PATH = LD_LIBRARY_PATH=$$(tests/gpu/lacking.sh $(BUILD)):$$LD_LIBRARY_PATH
check-gpu:
	@rm -f $(RESULTS)
	V=1 $(GPU_PATH) $(RUN) gpu --under 'timeout 200' $(filter-out $(GPU_DEATHS),$(GPU_TESTS)) $(GPU_SYSTEM_TESTS) || true
	$(GPU_PATH) python3 tests/gpu/consumers.py $(BUILD) && \
		echo "gpu:consumers 1 0 0" >>$(RESULTS) || echo "gpu:consumers 0 1 0" >>$(RESULTS)
	@$(CHECK_GPU_PYTHON)
	$(GPU_PATH) $(BUILD)/examples/demo $(BUILD)/gpushmd $(BUILD)/examples/classify tests/data && \
		echo "gpu:demo 1 0 0" >>$(RESULTS) || echo "gpu:demo 0 1 0" >>$(RESULTS)
	@tests/run.sh --sum $(RESULTS)
# The Python package with the libraries that are there, or with PARTS of them; LIMIT is the seconds for each.
PARTS ?= torch torch-memory models models-examples transformers numba numba-kernels cupy-cai cuda-core-resource core streams jax cupy cuda-core handles numpy
CHECK_GPU_PYTHON = for p in $(PARTS); do \
	V=1 $(GPU_PATH) $(RUN) gpu-python-$$p "tests/python/gpu/run.sh $(BUILD) $$p" || true; done
check-gpu-python:
	@rm -f $(RESULTS)
	@$(CHECK_GPU_PYTHON)
	@tests/run.sh --sum $(RESULTS)
# Clients and daemons that die while a kernel writes. Their figures are lines of tests/gpu/RESULTS.md.
check-gpu-deaths:
	@rm -f $(RESULTS)
	V=1 $(GPU_PATH) $(RUN) gpu --under 'timeout 500' $(GPU_DEATHS) || true
	@tests/run.sh --sum $(RESULTS)

# ---- deps ----

# Names that Debian 12 and Ubuntu 24.04 share. libclang-rt-dev has the sanitizers and libFuzzer, ca-certificates is for pip,
# procps has pgrep, and rpmlint asks rpm.
DEPS = gcc g++ cmake libc6-dev binutils git pkgconf protobuf-c-compiler libprotobuf-c-dev libuv1-dev libncurses-dev check libjansson-dev libxxhash-dev nettle-dev libmicrohttpd-dev libcurl4-openssl-dev nginx-light libgnutls28-dev curl \
	clang libclang-rt-dev clang-format cppcheck shellcheck universal-ctags mandoc groff valgrind procps unzip \
	iproute2 iptables iperf3 openssl \
	python3 python3-dev python3-venv ca-certificates \
	build-essential debhelper dh-python chrpath lintian rpmlint rpm
.PHONY: deps
deps:
	@missing=; for p in $(DEPS); do \
		dpkg-query -W -f '$${db:Status-Status}' $$p 2>/dev/null | grep -qx installed || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then echo "deps: all packages are installed"; exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "deps: no apt-get here. Install what these Debian packages hold:$$missing" >&2; exit 1; fi; \
	as=; if [ "$$(id -u)" != 0 ]; then as=$$(command -v sudo) || { \
		echo "deps: neither root nor sudo. Ask for: apt-get install$$missing" >&2; exit 1; }; fi; \
	echo "deps: installing$$missing"; \
	$$as env DEBIAN_FRONTEND=noninteractive apt-get update -q && \
		$$as env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing
	@$(MAKE) -s venv || echo "deps: pip has no packages here: the tests in Python are left out"
	@$(MAKE) $(BUILD)/prometheus/ready || echo "deps: apt-get has no prometheus here: tests with it are left out"
	@$(if $(CUDA_INCLUDE),echo "deps: cuda.h is in $(CUDA_INCLUDE)",$(MAKE) $(BUILD)/cuda/ready || \
		echo "deps: no cuda.h here, and pip has none: host pools alone are built and tested")

# Prometheus and promtool, for check-deep. They are unpacked here: the installed package would start a service.
$(BUILD)/prometheus/ready:
	@rm -rf $(@D); mkdir -p $(@D)
	$(call SAY,GET)cd $(@D) && apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb
	@touch $@

# Python packages in the build folder: venv for tests, and for check-torch, for check-fleet (Ray and Dask), and for
# tests/nodes/test_nixl_tcp.py: NVIDIA's NIXL, whose C library alone is used, without PyTorch, which the package wants.
define VENV
.PHONY: $(1)
$(1): $$(BUILD)/$(1)/ready
$$(BUILD)/$(1)/ready: tests/requirements$(1:venv%=%).txt
	@mkdir -p $$(BUILD); rm -rf $$(@D)
	@python3 -m venv $$(@D) || { echo "$(1): python3 -m venv failed: apt-get install python3-venv" >&2; exit 1; }
	$$(call SAY,PIP)$$(@D)/bin/pip install -q --disable-pip-version-check $(2) -r $$< || { \
		echo "$(1): pip could not install $$<: is there a network, or a PIP_INDEX_URL? Tests in Python need it." >&2; \
		exit 1; }
	@touch $$@
endef
$(eval $(call VENV,venv))
$(eval $(call VENV,venv-torch))
$(eval $(call VENV,venv-fleet))
$(eval $(call VENV,venv-nixl,--no-deps))

# The CUDA Toolkit's headers for a machine without the Toolkit. Nothing is linked with it: the driver is loaded at run time.
CUDA_PACKAGE = nvidia-cuda-runtime==13.0.96
$(BUILD)/cuda/ready:
	@rm -rf $(@D) $(BUILD)/pip; mkdir -p $(@D); python3 -m venv $(BUILD)/pip
	$(call SAY,PIP)$(BUILD)/pip/bin/pip install -q --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
		--target $(@D) $(CUDA_PACKAGE)
	@rm -rf $(BUILD)/pip; touch $@

# ---- install ----

bindir     = $(PREFIX)/bin
libdir     = $(PREFIX)/lib
includedir = $(PREFIX)/include
datadir    = $(PREFIX)/share
# systemd reads these below /usr/local/lib as well as below /usr/lib.
unitdir    = $(PREFIX)/lib/systemd/system
SUBST = sed -e 's|@bindir@|$(bindir)|g' -e 's|@libdir@|$(libdir)|g' -e 's|@includedir@|$(includedir)|g' \
	-e 's|@prefix@|$(PREFIX)|g' -e 's|@version@|$(VERSION)|g' -e 's|@soversion@|$(SOVERSION)|g' \
	-e 's|@include_from_lib@|$(shell realpath -ms --relative-to=$(libdir) $(includedir))|g'
MANUALS := $(notdir $(wildcard man/*.[1-8]))
# "man gpushm_open" shows gpushm(3): a page for each public function, which has only a link in it.
FUNCTIONS := $(sort $(shell grep -ohP '\bgpushm_\w+(?=\x28)' client/gpushm.h client/gpushm_metrics.h))
STREAM_FUNCTIONS := $(filter-out $(FUNCTIONS),$(sort $(shell grep -ohP '\bgpushm_\w+(?=\x28)' client/gpushm_stream.h)))
LOAD_FUNCTIONS := $(filter-out gpushm_load gpushm_load_progress_fn $(FUNCTIONS),$(sort $(shell grep -oP '\bgpushm_\w+(?=\x28)' client/gpushm_load.h)))
COMPLETIONS := $(notdir $(wildcard client/ctl/completion/*))
# Where a file of that name goes: a manual's section is its suffix; zsh wants _name, bash the bare name.
man_path = $(datadir)/man/man$(subst .,,$(suffix $(1)))/$(1)
completion_path = $(datadir)/$(if $(filter _%,$(1)),zsh/site-functions/$(1),bash-completion/completions/$(basename $(1)))
CMAKE_FILES = $(addprefix $(libdir)/cmake/gpushm/,gpushmConfig.cmake gpushmConfigVersion.cmake)
PROMETHEUS_FILES = $(addprefix $(datadir)/doc/gpushm/prometheus/,gpushm.rules.yml gpushm-relay.rules.yml gpushm-dashboard.json)
INSTALLED = $(bindir)/gpushmd $(bindir)/gpushmctl $(bindir)/gpushm-exporter $(unitdir)/gpushm-exporter.service $(PROMETHEUS_FILES) \
	$(bindir)/gpushm-relay $(addprefix $(unitdir)/gpushm-relay.,service socket) $(datadir)/doc/gpushm/gpushm-relay.conf $(PREFIX)/lib/sysusers.d/gpushm-relay.conf \
	$(libdir)/libgpushm.so.$(VERSION) $(libdir)/libgpushm.so.$(SOVERSION) \
	$(libdir)/libgpushm.so $(libdir)/libgpushm.a $(includedir)/gpushm.h $(includedir)/gpushm.hpp $(libdir)/pkgconfig/gpushm.pc $(CMAKE_FILES) \
	$(libdir)/libgpushm-load.so.$(VERSION) $(libdir)/libgpushm-load.so.$(SOVERSION) $(libdir)/libgpushm-load.so $(libdir)/libgpushm-load.a \
	$(includedir)/gpushm_metrics.h $(includedir)/gpushm_stream.h $(includedir)/gpushm_load.h $(libdir)/pkgconfig/gpushm-load.pc \
	$(foreach m,$(MANUALS) $(addsuffix .3,$(FUNCTIONS) $(STREAM_FUNCTIONS) $(LOAD_FUNCTIONS)),$(call man_path,$(m))) $(foreach c,$(COMPLETIONS),$(call completion_path,$(c))) \
	$(unitdir)/gpushmd.service $(unitdir)/gpushmd.socket $(PREFIX)/lib/sysusers.d/gpushm.conf \
	$(PREFIX)/lib/modules-load.d/gpushm.conf $(PREFIX)/lib/systemd/catalog/gpushm.catalog \
	$(datadir)/doc/gpushm/gpushmd.conf

CONFIGURATIONS = gpushmd.conf $(if $(RELAY),gpushm-relay.conf)

# A user who installs below a PREFIX of his own gets no file outside of it: SYSCONFDIR is written for the system's
# prefixes, and where it was asked for.
INSTALLS_CONFIG = $(or $(filter /usr /usr/local,$(PREFIX)),$(filter command environment,$(origin SYSCONFDIR)))
# The configuration in $(SYSCONFDIR) is the administrator's: it is written where there is none, and never removed if
# it was changed. ldconfig, systemd-sysusers and systemctl are the caller's to run; gpushmctl finds the library by itself.
.PHONY: install uninstall
install: $(addprefix $(BUILD)/,gpushmd gpushmctl libgpushm.so libgpushm.a libgpushm-load.so libgpushm-load.a) $(EXPORTER) $(RELAY)
	install -D -m 755 $(BUILD)/gpushmd $(DESTDIR)$(bindir)/gpushmd
	install -D -m 755 $(BUILD)/gpushmctl $(DESTDIR)$(bindir)/gpushmctl
	$(if $(EXPORTER),install -D -m 755 $(EXPORTER) $(DESTDIR)$(bindir)/gpushm-exporter)
	$(if $(RELAY),install -D -m 755 $(RELAY) $(DESTDIR)$(bindir)/gpushm-relay)
	for l in libgpushm libgpushm-load; do \
		install -D -m 644 $(BUILD)/$$l.so.$(VERSION) $(DESTDIR)$(libdir)/$$l.so.$(VERSION) && \
		ln -sf $$l.so.$(VERSION) $(DESTDIR)$(libdir)/$$l.so.$(SOVERSION) && \
		ln -sf $$l.so.$(SOVERSION) $(DESTDIR)$(libdir)/$$l.so && \
		install -D -m 644 $(BUILD)/$$l.a $(DESTDIR)$(libdir)/$$l.a || exit 1; done
	install -D -m 644 client/gpushm.h $(DESTDIR)$(includedir)/gpushm.h
	install -D -m 644 client/gpushm_metrics.h $(DESTDIR)$(includedir)/gpushm_metrics.h
	install -D -m 644 client/gpushm_stream.h $(DESTDIR)$(includedir)/gpushm_stream.h
	install -D -m 644 client/gpushm_load.h $(DESTDIR)$(includedir)/gpushm_load.h
	install -D -m 644 client/gpushm.hpp $(DESTDIR)$(includedir)/gpushm.hpp
	mkdir -p $(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(libdir)/cmake/gpushm
	for p in gpushm gpushm-load; do $(SUBST) client/$$p.pc.in >$(DESTDIR)$(libdir)/pkgconfig/$$p.pc || exit 1; done
	for f in $(CMAKE_FILES); do $(SUBST) client/$${f##*/}.in >$(DESTDIR)$$f || exit 1; done
	$(foreach m,$(MANUALS),install -D -m 644 man/$(m) $(DESTDIR)$(call man_path,$(m)) &&) true
	echo '.so man3/gpushm.3' >$(BUILD)/link.3
	for f in $(FUNCTIONS); do install -m 644 $(BUILD)/link.3 $(DESTDIR)$(datadir)/man/man3/$$f.3 || exit 1; done
	echo '.so man3/gpushm_stream.3' >$(BUILD)/link.3
	for f in $(STREAM_FUNCTIONS); do install -m 644 $(BUILD)/link.3 $(DESTDIR)$(datadir)/man/man3/$$f.3 || exit 1; done
	echo '.so man3/gpushm_load.3' >$(BUILD)/link.3
	for f in $(LOAD_FUNCTIONS); do install -m 644 $(BUILD)/link.3 $(DESTDIR)$(datadir)/man/man3/$$f.3 || exit 1; done
	$(foreach c,$(COMPLETIONS),install -D -m 644 client/ctl/completion/$(c) $(DESTDIR)$(call completion_path,$(c)) &&) true
	mkdir -p $(DESTDIR)$(unitdir)
	$(SUBST) systemd/gpushmd.service.in >$(DESTDIR)$(unitdir)/gpushmd.service
	install -D -m 644 systemd/gpushmd.socket $(DESTDIR)$(unitdir)/gpushmd.socket
	$(if $(EXPORTER),$(SUBST) systemd/gpushm-exporter.service.in >$(DESTDIR)$(unitdir)/gpushm-exporter.service)
	$(if $(RELAY),$(SUBST) systemd/gpushm-relay.service.in >$(DESTDIR)$(unitdir)/gpushm-relay.service)
	$(if $(RELAY),install -D -m 644 systemd/gpushm-relay.socket $(DESTDIR)$(unitdir)/gpushm-relay.socket)
	$(if $(RELAY),install -D -m 644 systemd/sysusers-relay.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/gpushm-relay.conf)
	for f in $(PROMETHEUS_FILES); do install -D -m 644 systemd/prometheus/$${f##*/} $(DESTDIR)$$f || exit 1; done
	install -D -m 644 systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/gpushm.conf
	install -D -m 644 systemd/modules-load.conf $(DESTDIR)$(PREFIX)/lib/modules-load.d/gpushm.conf
	install -D -m 644 systemd/gpushm.catalog $(DESTDIR)$(PREFIX)/lib/systemd/catalog/gpushm.catalog
	for c in $(CONFIGURATIONS); do \
		install -D -m 644 systemd/$$c $(DESTDIR)$(datadir)/doc/gpushm/$$c || exit 1; \
		$(if $(INSTALLS_CONFIG),[ -e $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c ] || \
			install -D -m 644 systemd/$$c $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c || exit 1;) done

# Below pythondir, a folder where Python looks for modules. The folder .dist-info tells pip and importlib.metadata.
.PHONY: install-python
install-python: $(BUILD)/python-extension/_core.abi3.so
	$(foreach m,$(PYTHON_TEXT:$(PYTHON_HERE)/%=%),install -D -m 644 client/python/gpushm/$(m) $(DESTDIR)$(pythondir)/gpushm/$(m) &&) true
	install -m 644 $< $(DESTDIR)$(pythondir)/gpushm/_core.abi3.so
	mkdir -p $(DESTDIR)$(pythondir)/gpushm-$(VERSION).dist-info
	printf 'Metadata-Version: 2.1\nName: gpushm\nVersion: $(VERSION)\n' >$(DESTDIR)$(pythondir)/gpushm-$(VERSION).dist-info/METADATA

uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	$(if $(INSTALLS_CONFIG),for c in $(CONFIGURATIONS); do ! cmp -s systemd/$$c $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c || \
		rm -f $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c; done)
	rmdir --ignore-fail-on-non-empty $(wildcard $(DESTDIR)$(libdir)/cmake/gpushm $(DESTDIR)$(datadir)/doc/gpushm/prometheus $(DESTDIR)$(datadir)/doc/gpushm $(DESTDIR)$(SYSCONFDIR)/gpushm)

# ---- packages ----

# Debian packages of the tracked files as they are here, in $(BUILD)/deb; dpkg-buildpackage runs a part of the tests,
# unless DEB_BUILD_OPTIONS has nocheck.
DEB_VERSION ?= $(VERSION)
.PHONY: deb deb-source
deb:
	@systemd/packages.sh deb $(BUILD) $(DEB_VERSION)
deb-source:
	@systemd/packages.sh source $(BUILD) $(DEB_VERSION)

# One command for a release: gpushm-contributing(7).
.PHONY: release release-ready
release-ready:
	@tests/release.sh ready $(VERSION)
release:
	@tests/release.sh make $(VERSION) $(abspath $(BUILD))/release

# What is in git at HEAD; gzip -n leaves the time out, so that the same commit gives the same bytes.
.PHONY: dist
dist:
	@mkdir -p $(BUILD)
	git archive --prefix=gpushm-$(VERSION)/ HEAD | gzip -9n >$(BUILD)/gpushm-$(VERSION).tar.gz
	@echo $(BUILD)/gpushm-$(VERSION).tar.gz

# A container image of the packages, for podman and all others that read OCI archives.
.PHONY: image
image: deb
	@systemd/container/image.sh $(BUILD) $(VERSION)

# ---- lint ----

# Each is a script that can be run alone. They say what they skip, and why.
LINTS = spdx layers sizes format shell manifests manuals manual_tests manual_example manual_words readme units warnings cppcheck symbols python types
.PHONY: lint $(addprefix lint-,$(LINTS))
lint: $(addprefix lint-,$(LINTS))
	@echo "lint: ok"
$(addprefix lint-,$(LINTS)): lint-%:
	@tests/lint/$*.sh
lint-warnings: $(BUILD)/gen/gpushm.pb-c.h $(BUILD)/gen/journal.pb-c.h
lint-symbols: $(BUILD)/libgpushm.so.$(SOVERSION) $(BUILD)/libgpushm-load.so.$(SOVERSION)
lint-manual_example: $(BUILD)/libgpushm.so $(BUILD)/gpushmd $(BUILD)/gpushmctl
lint-manual_words: $(BUILD)/gpushmd $(BUILD)/gpushmctl
lint-readme: $(BUILD)/libgpushm.so $(BUILD)/gpushmd $(BUILD)/gpushmctl
$(addprefix lint-,$(LINTS)): export BUILD := $(BUILD)
# What the compilers are to be given; tests/lint/warnings.sh and cppcheck.sh ask for it.
.PHONY: print-cflags print-sources print-left-out
print-cflags:
	$(info $(ALL_CFLAGS) $(addprefix -isystem ,$(PYTHON_INCLUDE))) @:
print-sources:
	$(info $(PROTO_SRC) daemon/main.c $(DAEMON_SRC) $(CLIENT_SRC) $(LOAD_SRC) $(CTL_SRC) $(if $(EXPORTER),$(EXPORTER_SRC)) $(if $(RELAY),$(RELAY_SRC))) @:
print-left-out:
	$(info $(LEFT_OUT) $(if $(EXPORTER),,$(EXPORTER_SRC)) $(if $(RELAY),,$(RELAY_SRC)) $(if $(wildcard $(PYTHON_INCLUDE)/Python.h),,$(PYTHON_SRC))) @:

# What has the version in it is made again when that changes. The file is made here: .SECONDARY lets make do without it.
version_is := $(BUILD)/gen/version-$(VERSION)
$(if $(wildcard $(version_is)),,$(shell mkdir -p $(BUILD)/gen; rm -f $(BUILD)/gen/version-*; touch $(version_is)))
$(call objects,daemon/main.c $(DAEMON_SRC) $(CLIENT_SRC) $(LOAD_SRC) $(CTL_SRC) $(EXPORTER_SRC) $(RELAY_SRC) \
	$(wildcard tests/system/*/*.c)): $(version_is)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

endif # AFTER_DEPS
