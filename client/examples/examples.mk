# SPDX-License-Identifier: MIT
# Programs to start from, and the demo.

EXAMPLES := $(patsubst client/examples/%.c,$(BUILD)/examples/%,$(filter-out client/examples/digits%,$(wildcard client/examples/*.c))) $(BUILD)/examples/demo
# With headers and nvcc the worker has a kernel; the driver makes code of its PTX when it is loaded.
KERNEL := $(and $(CUDA_INCLUDE),$(NVCC))
DIGITS := $(call objects,client/examples/digits.c client/examples/$(if $(KERNEL),digits_gpu.c,digits_nogpu.c) proto/base/libcuda.c)

$(EXAMPLES): $(BUILD)/libgpushm.so
$(filter-out %/demo,$(EXAMPLES)): $(BUILD)/examples/%: $(BUILD)/obj/client/examples/%.o
	$(call link,..) -lgpushm -ldl -lm $(if $(findstring _uv,$@),-luv)
$(BUILD)/examples/classify: $(DIGITS) $(if $(KERNEL),$(BUILD)/examples/classify.ptx)
$(BUILD)/examples/classify.ptx: client/examples/digits.cu client/examples/digits.h client/gpushm.h
	$(call SAY,NVCC)mkdir -p $(@D) && $(NVCC) -ptx -arch=compute_75 -I. -Iclient -o $@ $<
$(BUILD)/examples/demo: $(call objects,$(wildcard client/examples/demo/*.c)) $(DIGITS) $(BUILD)/common.a $(BUILD)/proto.a
	$(call link,..) -lgpushm -ldl -lm

CUDART = $(wildcard $(dir $(realpath $(NVCC)))../lib64/libcudart_static.a)
# A stage that is one CUDA graph. Only gpu-bundle makes it: it needs a GPU, and the runtime of the Toolkit.
$(BUILD)/examples/graph_stage: client/examples/graph_stage.cu client/gpushm_stream.h client/gpushm.h | $(BUILD)/libgpushm.so
	$(call SAY,NVCC)mkdir -p $(@D) && $(NVCC) -O2 -arch=compute_75 -I. -Iclient -Xcompiler -fno-exceptions,-fno-threadsafe-statics -c -o $@.o $<
	@$(CC) -Wl,-rpath,'$$ORIGIN/..' -o $@ $@.o -L$(BUILD) -lgpushm $(CUDART) -lrt -ldl -lpthread && rm $@.o

examples: $(EXAMPLES)
demo: $(BUILD)/gpushmd $(BUILD)/examples/classify $(BUILD)/examples/demo ## builds and runs a pipeline of three processes
	$(BUILD)/examples/demo $(BUILD)/gpushmd $(BUILD)/examples/classify tests/data
