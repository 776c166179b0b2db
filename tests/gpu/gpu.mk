# SPDX-License-Identifier: MIT
# A real GPU: built where there are packages, run where there is a GPU; the few libraries that a GPU machine may lack go along.
#   make gpu-bundle BUILD=build-gpu        then, there, from the same tree:  make check-gpu BUILD=build-gpu
# What runs there has no prerequisites. GPU_PYTHON is the version of its Python, whose libraries like CuPy are the machine's.

GPU_TESTS  := $(if $(CUDA_INCLUDE),$(call program,$(wildcard tests/gpu/test_*.c)))
GPU_DEATHS := $(filter %/test_gpu_kill_race %/test_gpu_restart,$(GPU_TESTS))
$(foreach s,$(wildcard tests/gpu/test_*.c),$(eval $(call program,$s): $(call objects,$s)))
$(GPU_TESTS): $(call objects,$(filter-out tests/gpu/nopidfd.c tests/gpu/test_%.c,$(wildcard tests/gpu/*.c))) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call link,../..) -lgpushm $(CHECK_LIBS) $(CLIENT_LIBS)
$(BUILD)/tests/gpu/test_gpu_kill_race $(BUILD)/tests/gpu/test_gpu_streams: | $(BUILD)/tests/gpushmd-nopidfd

GPU_PYTHON ?= 3.12
gpu-bundle: all $(SYSTEM_TESTS) $(GPU_TESTS) $(BENCH_BIN) $(if $(and $(KERNEL),$(CUDART)),$(BUILD)/examples/graph_stage) python-core ## what a machine with a GPU needs
	@tests/gpu/bundle.sh $(BUILD) $(GPU_PYTHON)

# Of the system tests those that mean something else on real memory.
GPU_SYSTEM_TESTS = $(call pick,liars share containers restart reset names deaths copies dirty defer flush threads ctl_scripts ctl_streams layout load load_changes load_once load_engine save verify,$(SYSTEM_TESTS))
GPU_PATH = LD_LIBRARY_PATH=$$(tests/gpu/lacking.sh $(BUILD)):$$LD_LIBRARY_PATH
# The Python package with the libraries that are there, or with PARTS of them; LIMIT is the seconds for each.
PARTS ?= torch torch-memory models models-examples transformers numba numba-kernels numba-suites cupy-cai cupy-allocator cuda-core-resource core streams jax cupy cuda-core handles numpy
CHECK_GPU_PYTHON = for p in $(PARTS); do V=1 $(GPU_PATH) $(RUN) gpu-python-$$p "tests/python/gpu/run.sh $(BUILD) $$p" || true; done
check-gpu: ## on a machine with a GPU: tests of it, the package with PARTS of its libraries, the demo
	@rm -f $(RESULTS)
	V=1 $(GPU_PATH) $(RUN) gpu --under 'timeout 200' $(filter-out $(GPU_DEATHS),$(GPU_TESTS)) $(GPU_SYSTEM_TESTS) "tests/gpu/consumers.py $(BUILD)" "$(BUILD)/gpushmctl doctor --driver" || true
	@$(CHECK_GPU_PYTHON)
	V=1 $(GPU_PATH) $(RUN) gpu "client/examples/demo.sh $(BUILD)" || true
	@tests/run.sh --sum $(RESULTS)
check-gpu-python:
	@rm -f $(RESULTS); $(CHECK_GPU_PYTHON)
	@tests/run.sh --sum $(RESULTS)
# Clients and daemons that die while a kernel writes.
check-gpu-deaths:
	@rm -f $(RESULTS)
	V=1 $(GPU_PATH) $(RUN) gpu --under 'timeout 500' $(GPU_DEATHS) || true
	@tests/run.sh --sum $(RESULTS)
