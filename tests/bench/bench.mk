# SPDX-License-Identifier: MIT
# What gpushm costs over the calls that must be made anyway, and beside what people use today: tests/bench/RESULTS.md.
# Figures go to $OUT, if it is set. Those that run on a machine with a GPU, from a gpu-bundle, have no prerequisites there.

BENCH_SRC := $(filter-out tests/bench/bare_start.c tests/bench/models_load.c tests/bench/models_ring.c $(if $(CUDA_INCLUDE),tests/bench/gpu_none.c,\
	tests/bench/gpu_driver.c tests/bench/gpu_memory.c tests/bench/gpu_sweep.c),$(wildcard tests/bench/*.c)) \
	$(if $(CUDA_INCLUDE),tests/gpu/driver.c)
STREAMS_BIN := $(BUILD)/tests/bench/streams
BENCH_BIN := $(BUILD)/gpushm-bench $(BUILD)/tests/bench/bare_start $(if $(CUDA_INCLUDE),$(addprefix $(BUILD)/tests/bench/,models_load models_ring) $(STREAMS_BIN))
$(BUILD)/gpushm-bench: $(call objects,$(BENCH_SRC)) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call link,.) -lgpushm $(CHECK_LIBS) $(CLIENT_LIBS) -lm
$(BUILD)/tests/bench/models_ring: $(call objects,tests/bench/models_ring.c tests/bench/sample.c) $(BUILD)/libgpushm-load.a $(BUILD)/libgpushm.a
	$(link) $(CLIENT_LIBS) $(MODELS_LIBS) -lm
$(BUILD)/tests/bench/bare_start: $(call objects,tests/bench/bare_start.c)
	$(link) -ldl
$(BUILD)/tests/bench/models_load: $(call objects,tests/bench/models_load.c) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so $(BUILD)/libgpushm-load.so
	$(call link,../..) -lgpushm-load -lgpushm $(CHECK_LIBS) $(CLIENT_LIBS)
# Frames from process to process, beside the other ways.
$(STREAMS_BIN): $(call objects,$(wildcard tests/bench/streams/*.c) tests/bench/sample.c) $(TEST_LIB) $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call link,../..) -lgpushm $(CHECK_LIBS) $(CLIENT_LIBS)
$(BUILD)/tests/python/attach: $(BUILD)/obj/tests/python/attach.o $(BUILD)/libgpushm.so
	$(call link,../..) -lgpushm

# BENCH=, STREAMS=, NODES= and MEMORY= are the options of the programs, MODELS_GIB the size of a file in MODELS_FOLDER.
BENCH_RUN = $(if $(wildcard $(BUILD)/deps),export $(GPU_PATH);) OUT=$(or $(OUT),$(BUILD)) BENCH='$(BENCH)' STREAMS='$(STREAMS)' NODES='$(NODES)' \
	MODELS_FOLDER=$(or $(MODELS_FOLDER),/dev/shm) MODELS_GIB=$(or $(MODELS_GIB),16) tests/bench/run.sh
bench: $(BUILD)/gpushmd $(BENCH_BIN) ## what gpushm costs on this machine; bench-gpu, -streams, -models, -nodes, -memory measure more
	@$(BENCH_RUN) host $(BUILD)
bench-plots: $(BUILD)/venv/ready
bench-streams: $(if $(wildcard $(BUILD)/deps),,$(BUILD)/gpushmd $(STREAMS_BIN))
bench-nodes: $(if $(wildcard $(BUILD)/deps),,all)
bench-gpu bench-streams bench-models bench-nodes bench-plots: bench-%:
	@$(BENCH_RUN) $* $(BUILD)
# What an attach costs in Python above C. Measures; asserts nothing.
bench-python: python-core $(BUILD)/gpushmd $(BUILD)/tests/python/attach
	BUILD=$(BUILD) PYTHONPATH=$(BUILD)/python $(PYTHON) -B tests/python/bench_attach.py
bench-memory: $(if $(wildcard $(BUILD)/deps),,python-core $(BUILD)/gpushmd $(BUILD)/gpushmctl)
	$(if $(wildcard $(BUILD)/deps),$(GPU_PATH)) BUILD=$(BUILD) PYTHONPATH=$(BUILD)/python:$(BUILD)/deps/python $(PYTHON) -B tests/bench/memory/run.py $(MEMORY)
