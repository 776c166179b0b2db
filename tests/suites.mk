# SPDX-License-Identifier: MIT
# The one list of suites. A suite is a few variables of the environment and programs, which are one queue of tests/run.sh;
# "make suite-NAME" runs one alone, "check-PRODUCT" those that a change there needs, "check" and "check-deep" all of them.

# ---- test programs ----

# tests/unit/PRODUCT/test_X.c tests a file or two, linked with the archives; tests/system/PRODUCT/test_X.c has real daemons
# and clients. The product is not in the path of the program: build/tests/unit/test_X, build/tests/system/test_X.
UNIT_SRC     := $(filter-out $(if $(CUDA_INCLUDE),,tests/unit/fakes/% tests/unit/models/test_ring.c),$(wildcard tests/unit/*/test_*.c))
SYSTEM_SRC   := $(wildcard tests/system/*/test_*.c)
program = $(foreach s,$(1),$(BUILD)/tests/$(word 2,$(subst /, ,$(s)))/$(basename $(notdir $(s))))
UNIT_TESTS   := $(call program,$(UNIT_SRC)) $(if $(SYSTEMD_LIBS),$(BUILD)/tests/unit/test_nosystemd)
ADVERSARIES  := $(call program,$(wildcard tests/adversary/test_*.c))
SYSTEM_TESTS := $(call program,$(SYSTEM_SRC)) $(ADVERSARIES)
TEST_LIB     := $(call objects,$(wildcard tests/lib/*.c))
CHECK_LIBS   = $(shell $(PKG_CONFIG) --libs check)
$(foreach s,$(UNIT_SRC) $(SYSTEM_SRC) $(wildcard tests/adversary/test_*.c),$(eval $(call program,$s): $(call objects,$s)))

# With nosystemd.o, the archive's libsystemd.o is not linked.
$(BUILD)/tests/unit/test_nosystemd: $(call objects,tests/unit/proto/test_systemd.c proto/systemd/nosystemd.c)
$(UNIT_TESTS): $(TEST_LIB) $(BUILD)/daemon.a $(BUILD)/systemd.a $(BUILD)/ctl.a $(BUILD)/common.a $(BUILD)/libgpushm-load.a $(BUILD)/libgpushm.a
	$(link) $(CHECK_LIBS) $(DAEMON_LIBS) $(CTL_LIBS) $(MODELS_LIBS)
$(BUILD)/tests/unit/test_manifest: $(call objects,client/relay/serve/range.c)
$(BUILD)/tests/unit/test_mirrors: $(call objects,$(addprefix client/relay/fleet/,announcement.c mirrors.c transfers.c))
# Calls from our archives go through tests/unit/memory_fixture.h; not those of the gpushmd that one of them starts (private).
wrap = $(patsubst %,-Wl$(comma)--wrap=%,$(1))
ALLOCATE = malloc calloc realloc reallocarray
$(filter %_memory,$(UNIT_TESTS)): private ALL_LDFLAGS += $(call wrap,$(ALLOCATE))
$(BUILD)/tests/unit/test_remote_memory: private ALL_LDFLAGS += $(call wrap,strdup strndup asprintf)
$(BUILD)/tests/unit/test_remote_memory: | $(BUILD)/gpushmd

# The public headers as an earlier and a later version may have them, and programs that are compiled with those.
$(BUILD)/gen/%/structs.h: tests/abi/resize.awk $(HEADERS) client/gpushm_load.h
	@mkdir -p $(@D); awk -v how=$* -v folder=$(@D) -f $^
$(foreach k,smaller larger,$(eval $(call objects,tests/system/lib/test_$(k)_structs.c): $(BUILD)/gen/$(k)/structs.h))
$(SYSTEM_TESTS): $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so $(BUILD)/libgpushm-load.so
	$(call link,../..) -lgpushm-load -lgpushm $(CHECK_LIBS) $(CLIENT_LIBS)
# A model of the daemon, and what plays both.
$(BUILD)/tests/adversary/test_model: $(call objects,$(wildcard tests/model/*.c))
# What an honest user notices of a hostile one: a test, and the program that prints the table of tests/adversary/RESULTS.md.
ATTACK_OBJ := $(call objects,tests/adversary/fairness.c tests/adversary/hostile.c)
$(BUILD)/tests/adversary/test_fairness: $(ATTACK_OBJ)
$(BUILD)/tests/adversary/attack: $(call objects,tests/adversary/attack.c) $(ATTACK_OBJ) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call link,../..) -lgpushm $(CHECK_LIBS) $(CLIENT_LIBS)

# Daemons with other functions than their own: one whose allocations can be made to fail, one that kills itself at the n-th
# place, one that can't watch any process. The tests that start them are named behind.
$(BUILD)/tests/gpushmd-failmalloc: $(call objects,tests/adversary/failmalloc.c)
$(BUILD)/tests/gpushmd-failmalloc: WRAPPED = $(ALLOCATE) strdup
$(addprefix $(BUILD)/tests/adversary/test_,memory successors_memory): | $(BUILD)/tests/gpushmd-failmalloc
$(BUILD)/tests/gpushmd-crashat: $(call objects,tests/adversary/crashat.c)
$(BUILD)/tests/gpushmd-crashat: WRAPPED = journal_append fdstore_keep fdstore_forget reply_send fd_list_exec fd_list_receive
$(BUILD)/tests/adversary/test_crash: | $(BUILD)/tests/gpushmd-crashat
$(BUILD)/tests/gpushmd-nopidfd: $(call objects,tests/gpu/nopidfd.c)
$(BUILD)/tests/gpushmd-nopidfd: WRAPPED = pidfd_of_peer
$(addprefix $(BUILD)/tests/gpushmd-,failmalloc crashat nopidfd): $(DAEMON_PARTS)
	$(link) $(call wrap,$(WRAPPED)) $(DAEMON_LIBS)

# The protocol of streams, compiled with operations on words that are steps of the checker.
STREAMS_MODEL := $(BUILD)/tests/model/streams
$(BUILD)/obj/model/%.o: %.c
	$(call SAY,CC)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -O2 -fno-sanitize=all -DSTREAM_STEPS='"tests/model/streams/steps.h"' -MMD -MP -c -o $@ $<
$(STREAMS_MODEL): $(patsubst %.c,$(BUILD)/obj/model/%.o,$(wildcard tests/model/streams/*.c) client/lib/stream/writer.c client/lib/stream/reader.c \
		daemon/catalog/stream_words.c)
	$(link)

# Our own libcuda.so.1, made of memfds; tests put its folder into LD_LIBRARY_PATH. And our own libnixl_capi.so, which checks
# how it is used; tests name it in GPUSHM_NIXL.
FAKECUDA := $(if $(CUDA_INCLUDE),$(BUILD)/fakecuda/libcuda.so.1)
$(BUILD)/fakecuda/libcuda.so.1: $(call objects,$(wildcard tests/fakecuda/*.c))
FAKENIXL := $(BUILD)/fakenixl/libnixl_capi.so
$(FAKENIXL): $(call objects,$(wildcard tests/fakenixl/*.c))
$(BUILD)/fakecuda/libcuda.so.1 $(FAKENIXL):
	$(link) -shared -Wl,-soname,$(@F) -lpthread $(if $(filter %cuda.so.1,$@),&& ln -sf $(@F) $(@D)/libnvidia-ml.so.1)
$(BUILD)/tests/unit/test_nixl: | $(FAKENIXL)

# A parser each, for FUZZ_SECONDS, from its corpus; what is found stays in the build folder.
FUZZ_SECONDS ?= 10
FUZZ_CC ?= clang
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/bin/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_MAKE = $(MAKE_ALL) BUILD=$(BUILD)/fuzz CC=$(FUZZ_CC) SANITIZE=fuzzer-no-link,address,undefined CFLAGS='-O1 -g' $(FUZZ_TARGETS)
fuzz-targets:
	@$(FUZZ_MAKE)
$(BUILD)/bin/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(call objects,$(filter-out tests/fuzz/fuzz_%,$(wildcard tests/fuzz/*.c))) \
		$(call objects,$(addprefix client/relay/,config.c fleet/announcement.c fleet/route.c serve/allow.c serve/range.c)) $(BUILD)/daemon.a $(BUILD)/systemd.a $(BUILD)/ctl.a $(BUILD)/common.a $(BUILD)/libgpushm-load.a $(BUILD)/libgpushm.a
	$(link) -fsanitize=fuzzer -Wl,-z,muldefs $(DAEMON_LIBS) $(CTL_LIBS) $(MODELS_LIBS)

# Tests are compiled in half of the time without optimisation, and run as fast.
$(addprefix $(BUILD)/obj/tests/,unit/% system/% adversary/% lib/% gpu/%): ALL_CFLAGS += -O0 -U_FORTIFY_SOURCE
include tests/bench/bench.mk tests/gpu/gpu.mk

# ---- the queue ----

# JOBS programs at a time: most of them wait for timers and other processes. Counts and seconds of each program are lines of
# $(RESULTS): sort -k5 -nr $(RESULTS) | head.
RESULTS := $(abspath $(BUILD))/results
RUN := tests/run.sh --results $(RESULTS)
JOBS ?= $(shell expr 2 \* $(PROCESSORS) + 2)
QUEUE = $(RUN) -j $(JOBS)
queue = $(QUEUE) $(foreach s,$(1),$(if $(strip $(suite_$(s))),-- $(s) $(suite_$(s))))
# $(call run,SUITES): runs them, and adds up what has been counted since $(RESULTS) was removed.
run = bad=0; $(call queue,$(1)) || bad=1; tests/run.sh --sum $(RESULTS) && exit $$bad
# A build, and how long it took: $(call built,NAME,COMMAND).
built = start=$$(date +%s); $(2) && echo "== built $(1): $$(($$(date +%s) - start)) s"
# pick NAMES,PROGRAMS: those of the programs; a name that none of them has is an error.
pick = $(foreach n,$(1),$(or $(filter %/test_$(n),$(2)),$(error there is no test_$(n))))
# The programs, with those that take longest first.
longest_first = $(foreach n,$(LONG),$(filter %/test_$(n) %/test_$(n).py",$(1))) $(filter-out $(foreach n,$(LONG),%/test_$(n) %/test_$(n).py"),$(1))
LONG = crash stream_absent model serialize load_engine ctl_load ctl_scripts watches flood
SKIPPED = { echo "skipped: $(2)"; echo "$(1) 0 0 1 0 s" >>$(RESULTS); }

# ---- suites of check ----

# "host" has no driver, "fake" is over our own libcuda.so.1. Storms and long runs of the model are for check-deep.
FAKE_PATH   = $(if $(FAKECUDA),LD_LIBRARY_PATH=$(abspath $(BUILD))/fakecuda)
FAKE_ENV    = $(FAKE_PATH) FAKECUDA_STRICT=1
STORMS      = $(call pick,storm reexec_storm,$(SYSTEM_TESTS))
QUICK_TESTS = $(call longest_first,$(filter-out $(STORMS),$(SYSTEM_TESTS)))
QUICK_ENV   = MODEL_SEQUENCES=200 BUILD=$(BUILD)
STREAMS_QUICK = $(if $(CUDA_INCLUDE),"$(STREAMS_BIN) --quick$(1)")
# Tests that run over a real GPU and over the fake driver as well.
GPU_FAKE    = $(GPU_DEATHS) $(filter %/test_gpu_streams %/test_gpu_stream_failures,$(GPU_TESTS))
suite_unit   = $(FAKE_PATH) $(call longest_first,$(UNIT_TESTS))
suite_host   = $(QUICK_ENV) tests/system/ctl/exporter.py "python3 -B tests/bench/nodes/test_fleet.py" \
	$(filter-out $(call of_product,system,ctl) %/test_fairness %/test_crash,$(QUICK_TESTS)) tests/system/protocol_client.py $(call STREAMS_QUICK, --host)
# Of both kinds those that cost most for what the second one adds are in check-deep: hostile clients over the fake driver, and
# crashes at each place and gpushmctl without a driver.
of_product = $(call program,$(filter $(foreach p,$(2),tests/$(1)/$(p)/%),$(UNIT_SRC) $(SYSTEM_SRC)))
suite_fake   = $(if $(FAKECUDA),$(FAKE_ENV) $(QUICK_ENV) $(filter-out $(ADVERSARIES),$(QUICK_TESTS)) $(GPU_FAKE) $(call STREAMS_QUICK))
# Over gpushmd's own keeper: the tests of what outlives a daemon.
suite_keeper = $(if $(FAKECUDA),$(FAKE_ENV)) SUPERVISOR=keeper $(call pick,fdstore reexec_kept restart versions places successors stream_processes,$(SYSTEM_TESTS))
suite_streams = $(STREAMS_MODEL)
# The wheel, installed, with NumPy; each file is a program. Where Python is too old, has no headers, or pip reaches no index,
# there is no package to test.
PYTHON_FITS  = $(and $(filter 1,$(shell $(PYTHON) -c 'import sys; print(int(sys.version_info >= (3, 11)))' 2>/dev/null)),$(wildcard $(PYTHON_INCLUDE)/Python.h))
PYTHON_READY = $(and $(PYTHON_FITS),$(wildcard $(BUILD)/venv/ready))
PYTHON_VENV  = $(if $(PYTHON_FITS),$(MAKE) -s venv,echo "the Python package needs Python 3.11 and its headers"; false) || \
	$(call SKIPPED,python,the Python package)
PYTHON_INSTALL = $(if $(PYTHON_READY),$(BUILD)/venv/bin/pip install -q --disable-pip-version-check --no-deps --force-reinstall $(BUILD)/wheel/*.whl)
pytest = $(if $(PYTHON_READY),$(foreach t,$(2),"$(BUILD)/venv/bin/python -B -m pytest $(1) $(t)"))
PYTHON_TESTS = $(sort $(wildcard tests/python/test_*.py))
suite_python = $(if $(PYTHON_READY),$(if $(FAKECUDA),$(FAKE_ENV)) BUILD=$(BUILD) $(call pytest,,$(PYTHON_TESTS)))
# Over two GPUs: the tests that a second one changes.
suite_python-gpus = $(if $(and $(PYTHON_READY),$(FAKECUDA)),$(FAKE_ENV) FAKECUDA_DEVICES=2 BUILD=$(BUILD) $(call pytest,,$(patsubst %,tests/python/test_%.py,two_gpus order values cycles stream_graphs exchange_api)))
# Several machines: network namespaces. check-deep runs the tests that are marked as deep.
NODES_TESTS  = $(wildcard tests/nodes/test_*.py)
suite_nodes  = $(if $(PYTHON_READY),BUILD=$(BUILD) $(call pytest,--nodes quick,$(NODES_TESTS)))
suite_nodes-deep = $(if $(PYTHON_READY),BUILD=$(BUILD) $(call pytest,--nodes deep,$(shell grep -l 'mark\.deep' $(NODES_TESTS))))
CHECK_SUITES = python nodes python-gpus fake host keeper unit streams demo

# A test that was renamed and is chosen by its old name stops this build.
check-programs: all $(STREAMS_MODEL) $(UNIT_TESTS) $(SYSTEM_TESTS) $(GPU_FAKE) $(FAKECUDA) $(FAKENIXL) $(if $(CUDA_INCLUDE),$(STREAMS_BIN))
	@$(if $(STORMS)$(THREAD_TESTS)$(VALGRIND_TESTS)$(GPU_SYSTEM_TESTS),:)
check: ## minutes: all that a change needs; check-deep has the rest
	@mkdir -p $(BUILD); rm -f $(RESULTS)
	@$(call SKIPPED,torch,models of PyTorch (make check-torch))
	@$(PYTHON_VENV)
	@$(MAKE) check-here
check-here:
	@$(call built,programs and tests,$(MAKE_ALL) check-programs $(if $(PYTHON_READY),python))
	@$(PYTHON_INSTALL)
	@$(call run,$(CHECK_SUITES))

# ---- suites of one product: check-PRODUCT runs those of of_PRODUCT ----

over_fake = $(if $(FAKECUDA),$(FAKE_ENV)) $(QUICK_ENV) $(call longest_first,$(filter-out $(STORMS),$(1)))
PRODUCTS = lib daemon models relay ctl python
$(foreach p,$(PRODUCTS),$(eval suite_$(p)-unit = $$(FAKE_PATH) $$(call longest_first,$$(call of_product,unit,proto $(p)))))
suite_lib        = $(call over_fake,$(call of_product,system,lib) $(filter %/test_gpu_streams %/test_gpu_stream_failures,$(GPU_TESTS)))
suite_daemon     = $(call over_fake,$(call of_product,system,daemon))
suite_adversary  = $(QUICK_ENV) $(call longest_first,$(ADVERSARIES))
suite_models     = $(call over_fake,$(call of_product,system,models) $(call pick,ctl_load,$(SYSTEM_TESTS)))
suite_models-url = $(if $(PYTHON_READY),BUILD=$(BUILD) $(call pytest,--nodes quick,tests/nodes/test_load_url.py))
suite_ctl        = $(call over_fake,$(call of_product,system,ctl)) tests/system/ctl/exporter.py
suite_ctl-top    = $(if $(PYTHON_READY),BUILD=$(BUILD) $(call pytest,,tests/python/test_top.py))
of_lib    = lib-unit lib streams
of_daemon = daemon-unit daemon adversary keeper
of_models = models-unit models models-url
of_relay  = relay-unit nodes
of_ctl    = ctl-unit ctl ctl-top
of_python = python
# An installed wheel is what these run with.
with_wheel = $(filter %-url nodes% python% ctl-top,$(1))

PRODUCT_CHECKS = $(PRODUCTS:%=check-%)
check-lib: ## two minutes: what a change of client/lib needs; and check-daemon, -models, -relay, -ctl, -python
$(PRODUCT_CHECKS): check-%:
	@mkdir -p $(BUILD); rm -f $(RESULTS)
	@$(if $(call with_wheel,$(of_$*)),$(PYTHON_VENV))
	@$(MAKE) suite-$(subst $(space),+,$(strip $(of_$*)))
	@tests/run.sh --sum $(RESULTS)
check-unit: suite-unit
suites:
	@echo $(CHECK_SUITES) $(DEEP_SUITES) $(foreach p,$(PRODUCTS),$(of_$(p))) | tr ' ' '\n' | sort -u
space := $() $()
# Several names are joined by "+". What a suite needs is its programs of this build, unless suite_needs_NAME says more.
suite-%: names = $(subst +, ,$*)
suite-%:
	@$(MAKE_ALL) all $(FAKECUDA) $(FAKENIXL) $(foreach s,$(names),$(suite_needs_$(s)) $(filter $(BUILD)/tests/%,$(subst ",,$(suite_$(s))))) \
		$(if $(call with_wheel,$(names)),$(if $(PYTHON_READY),python))
	@$(if $(call with_wheel,$(names)),$(PYTHON_INSTALL))
	@$(call queue,$(names))

# For the build of a package: neither a driver, nor Python, nor what takes longer than some seconds.
LONGER = $(call pick,$(LONG) load load_once many_arrays reconfigured save threads,$(UNIT_TESTS) $(SYSTEM_TESTS))
SHORT_TESTS = $(filter-out $(LONGER) $(STORMS) $(ADVERSARIES),$(UNIT_TESTS) $(SYSTEM_TESTS))
suite_short-unit = $(FAKE_PATH) $(filter $(UNIT_TESTS),$(SHORT_TESTS))
suite_short-host = $(filter $(SYSTEM_TESTS),$(SHORT_TESTS))
check-short: all $(SHORT_TESTS) $(FAKECUDA)
	@rm -f $(RESULTS); $(call run,short-unit short-host)

# ---- suites that need other packages of Python ----

TORCH_TESTS ?= tests/python/models tests/python/test_pages.py
HERE_ENV = BUILD=$(BUILD) PYTHONPATH=$(abspath $(BUILD))/python
pytest_here = "$(BUILD)/$(1)/bin/python -B -m pytest -c tests/python/gpu/pytest.ini --rootdir tests/python --confcutdir $(2) $(3)"
suite_torch = $(HERE_ENV) $(call pytest_here,venv-torch,tests/python,$(TORCH_TESTS))
suite_fleet = $(HERE_ENV) $(call pytest_here,venv-fleet,tests/python/fleet,tests/python/fleet)
suite_numba = $(if $(FAKECUDA),$(FAKE_PATH) $(HERE_ENV) $(foreach t,$(wildcard tests/python/numba/test_*.py) tests/python/test_cuda_core.py,$(call pytest_here,venv-numba,tests/python,$(t))) $(call pytest_here,venv-numba,tests/python,tests/python/test_pages.py -k row))
check-torch: ## models of PyTorch, transformers and safetensors, or TORCH_TESTS; installs 5 GB
check-engines: python-core $(BUILD)/gpushmd ; @tests/python/engines/run.sh $(BUILD) ## vLLM's and SGLang's loaders, from wheels; installs 6 GB
check-fleet: ## gpushm.ray, and the examples for Ray and Dask; installs 500 MB. check-deep runs them if that was done
check-numba: ## numba-cuda's own tests, and Numba's memory manager; installs 850 MB. check-deep runs them if that was done
check-torch check-fleet check-numba: check-%: $(BUILD)/venv-%/ready python-core $(BUILD)/gpushmd $(BUILD)/gpushmctl $(BUILD)/gpushm-relay $(FAKECUDA)
	@rm -f $(RESULTS); $(call run,$*)

# ---- suites of check-deep ----

# The same programs, built with sanitizers. What runs by the clock or by the thousand runs at length without them.
ASAN_MAKE = $(MAKE_ALL) BUILD=$(BUILD)/asan SANITIZE=address,undefined CFLAGS='-O1 -g -DGPUSHM_DEBUG_LOCKS'
TSAN_MAKE = $(MAKE_ALL) BUILD=$(BUILD)/tsan SANITIZE=thread CFLAGS='-O1 -g -DGPUSHM_DEBUG_LOCKS'
in_build = $(patsubst $(BUILD)/%,$(BUILD)/$(1)/%,$(2))
SHORT_ENV = STORM_SECONDS=10 MODEL_SEQUENCES=100
ASAN_ENV  = ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 $(SHORT_ENV) $(if $(FAKECUDA),LD_LIBRARY_PATH=$(abspath $(BUILD))/asan/fakecuda)
TSAN_ENV  = TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 $(SHORT_ENV) $(if $(FAKECUDA),LD_LIBRARY_PATH=$(abspath $(BUILD))/tsan/fakecuda)
suite_asan-unit = $(ASAN_ENV) $(call in_build,asan,$(call longest_first,$(UNIT_TESTS)))
suite_asan-fake = $(ASAN_ENV) FAKECUDA_STRICT=1 $(call in_build,asan,$(STORMS) $(QUICK_TESTS) $(GPU_FAKE))
# What has threads: client, workers, loader, and a daemon that serves while they open its pools.
THREAD_TESTS = $(call pick,hashtable worker pool deferred_free pool_request map connection buffer defer stream_words load_blocks ring remote,$(UNIT_TESTS)) \
	$(call pick,threads suspend buffer_state watch restart reset streams stream_waits load load_changes load_engine load_once save verify,$(SYSTEM_TESTS))
suite_tsan  = $(TSAN_ENV) $(call in_build,tsan,$(call longest_first,$(THREAD_TESTS)))
# A relay ends with its threads (its main.c): one that has ended and is not joined yet is no leak.
suite_tsan-relay = $(if $(PYTHON_READY),TSAN_OPTIONS=halt_on_error=1:report_thread_leaks=0 BUILD=$(BUILD)/tsan $(call pytest,--nodes quick,tests/nodes/test_relay.py))
PYTHON_PRELOAD = $(wildcard $(shell $(CC) -print-file-name=libasan.so) $(shell $(CC) -print-file-name=libubsan.so))
suite_python-asan = $(if $(and $(PYTHON_READY),$(PYTHON_PRELOAD)),$(FAKE_PATH) BUILD=$(BUILD) PYTHONPATH=$(BUILD)/asan/python PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
	LD_PRELOAD=$(subst $(space),:,$(PYTHON_PRELOAD)) $(call pytest,,$(PYTHON_TESTS)))
suite_python-host = $(if $(and $(PYTHON_READY),$(FAKECUDA)),BUILD=$(BUILD) $(call pytest,,$(PYTHON_TESTS)))
VALGRIND_TESTS = $(call pick,table table_view wire config ini view array status_page npy deferred_free pool dlpack,$(UNIT_TESTS))
suite_valgrind = --under 'prlimit --nofile=1024 valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --trace-children=no' $(VALGRIND_TESTS)
suite_storm-host = $(STORMS)
suite_storm-fake = $(if $(FAKECUDA),$(FAKE_ENV) $(STORMS))
suite_stream-storm = STORM_SECONDS=60 $(call pick,stream_storm,$(SYSTEM_TESTS))
suite_streams-hostile = HOSTILE_READER=1 STORM_SECONDS=10 $(FAKE_ENV) $(call pick,streams stream_absent stream_graphs stream_hostile stream_pools stream_processes stream_storm stream_waits,$(SYSTEM_TESTS)) $(filter %/test_gpu_streams,$(GPU_FAKE))
suite_keeper-deep = $(FAKE_PATH) SUPERVISOR=keeper STORM_SECONDS=45 MODEL_SEQUENCES=100 \
	$(call pick,stream_storm storm model watches buffer_state no_reply pid_namespace reconfigured unmap_fails,$(SYSTEM_TESTS))
suite_keeper-crash = SUPERVISOR=keeper $(call pick,crash,$(SYSTEM_TESTS))
suite_model   = $(if $(FAKECUDA),$(FAKE_ENV)) MODEL_SEQUENCES=1000 $(call pick,model,$(SYSTEM_TESTS))
suite_fake-deep = $(if $(FAKECUDA),$(FAKE_ENV) $(QUICK_ENV) $(call longest_first,$(ADVERSARIES)))
suite_host-deep = $(QUICK_ENV) $(call of_product,system,ctl) $(call pick,crash fairness,$(ADVERSARIES))
suite_streams-deep = "$(STREAMS_MODEL) --deep" "tests/model/streams/mutants.sh $(BUILD)"
suite_fuzz    = $(foreach t,$(FUZZ_TARGETS),"tests/fuzz/run.sh $(BUILD) $(notdir $(t)) $(FUZZ_SECONDS)") "tests/fuzz/mutants.sh $(BUILD) $(FUZZ_SECONDS)"
SCRIPTS = bench=tests/bench/smoke.sh install=tests/install.sh prometheus=tests/prometheus/run.sh systemd=tests/system/systemd.sh \
	packages=tests/packages/lint.sh image=tests/image.sh wheel=tests/wheel.sh demo=tests/demo.sh bare=tests/bare_root.sh abi=tests/abi/check.sh earlier=tests/earlier/run.sh upgrade=tests/packages/earlier.sh daemonset=tests/earlier/daemonset.sh
$(foreach s,$(SCRIPTS),$(eval suite_$(subst =, = ",$(s)) $$(BUILD)"))
suite_lint    = "$(MAKE) -s lint"
abi: lib models # what suite-abi compares the libraries with
	@tests/abi/check.sh $(BUILD) write
DEEP_SUITES = upgrade earlier daemonset bare fake-deep host-deep nodes-deep storm-fake storm-host stream-storm streams-hostile keeper-crash keeper-deep python-asan asan-fake asan-unit lint model \
	tsan tsan-relay fuzz valgrind python-host bench install streams-deep systemd wheel image packages prometheus abi $(foreach v,fleet numba,$(if $(wildcard $(BUILD)/venv-$(v)/ready),$(v)))

asan-programs:
	@$(call built,with AddressSanitizer,$(ASAN_MAKE) check-programs $(if $(PYTHON_READY),python-core))
tsan-programs:
	@$(call built,with ThreadSanitizer,$(TSAN_MAKE) $(call in_build,tsan,$(THREAD_TESTS) $(FAKECUDA)) daemon models ctl relay)
$(foreach s,asan-unit asan-fake python-asan tsan tsan-relay,$(eval suite_needs_$(s) = $(or $(findstring tsan,$(s)),asan)-programs))
suite_needs_fuzz = fuzz-targets
suite_needs_bench = $(BENCH_BIN)
suite_needs_earlier = $(if $(PYTHON_READY),python)
check-deep: | $(filter check,$(MAKECMDGOALS)) ## 10 to 16 minutes: sanitizers, fuzzing, storms, packages, lint
	@mkdir -p $(BUILD); $(if $(filter check,$(MAKECMDGOALS)),,rm -f $(RESULTS); $(call SKIPPED,torch,models of PyTorch (make check-torch)); $(PYTHON_VENV))
	@$(MAKE) check-deep-here
check-deep-here:
	@$(foreach v,fleet numba,$(if $(wildcard $(BUILD)/venv-$(v)/ready),:,$(call SKIPPED,$(v),what needs other packages (make venv-$(v))));)
	@$(call built,programs and tests,$(MAKE_ALL) check-programs $(BENCH_BIN) $(if $(PYTHON_READY),python))
	@$(PYTHON_INSTALL)
	@$(MAKE) asan-programs && $(MAKE) tsan-programs
	@$(call built,fuzzers,$(FUZZ_MAKE))
	@$(call run,$(DEEP_SUITES))

check-packages: all # what takes longer of packages: half an hour
	@tests/packages/all.sh $(BUILD)
# A fleet whose relays and daemons are killed at random moments, for STORM_SECONDS; it prints its seed.
storm-nodes: all
	@BUILD=$(BUILD) $(PYTHON) -B tests/nodes/storm.py $(or $(STORM_SECONDS),600) $(STORM_SEED)

# ---- lint ----

# Each is a script that can be run alone. They say what they skip, and why.
LINTS = spdx versions compatibility layers walls sizes format shell manifests manuals manual_tests manual_example manual_words units keys warnings cppcheck symbols python types
lint: $(LINTS:%=lint-%) ## style, walls, manuals; lint-layers and others are one of them
	@echo "lint: ok"
$(LINTS:%=lint-%): export BUILD := $(BUILD)
$(LINTS:%=lint-%): lint-%:
	@tests/lint/$*.sh
lint-warnings: $(BUILD)/gen/gpushm.pb-c.h $(BUILD)/gen/journal.pb-c.h
lint-symbols: python-core
lint-symbols lint-manual_example lint-manual_words: all
# make print-VARIABLE: tests/lint/warnings.sh and cppcheck.sh ask for what the compilers are to be given.
lint_cflags = $(ALL_CFLAGS) $(addprefix -isystem ,$(PYTHON_INCLUDE))
print-%:
	$(info $($*)) @:
