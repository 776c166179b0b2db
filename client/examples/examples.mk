# SPDX-License-Identifier: MIT
# Programs to start from, and the demo.

EXAMPLES := $(patsubst client/examples/%.c,$(BUILD)/examples/%,$(filter-out client/examples/digits%,$(wildcard client/examples/*.c)))
# With headers and nvcc the worker has a kernel; the driver makes code of its PTX when it is loaded.
KERNEL := $(and $(CUDA_INCLUDE),$(NVCC))
DIGITS := $(call objects,client/examples/digits.c client/examples/$(if $(KERNEL),digits_gpu.c,digits_nogpu.c) proto/base/libcuda.c)

$(EXAMPLES): $(BUILD)/libgpushm.so
$(EXAMPLES): $(BUILD)/examples/%: $(BUILD)/obj/client/examples/%.o
	$(call link,..) -lgpushm -ldl -lm $(if $(findstring _uv,$@),-luv)
$(BUILD)/examples/classify: $(DIGITS) $(if $(KERNEL),$(BUILD)/examples/classify.ptx)
$(BUILD)/examples/classify.ptx: client/examples/digits.cu client/examples/digits.h client/gpushm.h
	$(call SAY,NVCC)mkdir -p $(@D) && $(NVCC) -ptx -arch=compute_75 -I. -Iclient -o $@ $<

CUDART = $(wildcard $(dir $(realpath $(NVCC)))../lib64/libcudart_static.a)
# A stage that is one CUDA graph. Only gpu-bundle makes it: it needs a GPU, and the runtime of the Toolkit.
$(BUILD)/examples/graph_stage: client/examples/graph_stage.cu client/gpushm_stream.h client/gpushm.h | $(BUILD)/libgpushm.so
	$(call SAY,NVCC)mkdir -p $(@D) && $(NVCC) -O2 -arch=compute_75 -I. -Iclient -Xcompiler -fno-exceptions,-fno-threadsafe-statics -c -o $@.o $<
	@$(CC) -Wl,-rpath,'$$ORIGIN/..' -o $@ $@.o -L$(BUILD) -lgpushm $(CUDART) -lrt -ldl -lpthread && rm $@.o

examples: $(EXAMPLES)
demo: $(BUILD)/gpushmd $(BUILD)/gpushmctl $(BUILD)/examples/classify ## eight processes classify digits with one model
	client/examples/demo.sh $(BUILD)
