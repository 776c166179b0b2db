/* SPDX-License-Identifier: MIT
 *
 * A stage of a pipeline that runs as one CUDA graph: it takes a frame of the stream "numbers",
 * squares its numbers into a frame of the stream "squares", and hands that on, all inside the
 * graph. The host only says, before each launch, which frames are next.
 *
 * In a pipeline the frames of "numbers" come from another process, and "squares" goes to a third
 * one. Here this program is all three of them, so that it can check the result. Needs a running
 * gpushmd with a vmm pool.
 */
#include <cuda_runtime.h>
#include <gpushm_stream.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define N 4096
#define FRAMES 1000u

#define CUDA(call)                                                  \
	do {                                                        \
		cudaError_t error_ = (call);                        \
		if (error_ != cudaSuccess)                          \
			give_up(#call, cudaGetErrorString(error_)); \
	} while (0)
#define GPUSHM(call)                                    \
	do {                                            \
		if ((call) < 0)                         \
			give_up(#call, gpushm_error()); \
	} while (0)

[[noreturn]] static void give_up(const char *call, const char *why)
{
	fprintf(stderr, "%s: %s\n", call, why);
	exit(1);
}

/* `in` and `out` are written by the graph before the kernel runs: each frame has another address.
 */
static __global__ void square(char *const *in, uint64_t in_offset, char *const *out,
			      uint64_t out_offset)
{
	const float *x = (const float *)(*in + in_offset);
	float *y = (float *)(*out + out_offset);
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

	if (i < N)
		y[i] = x[i] * x[i];
}

static __global__ void fill(float *x, float value)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

	if (i < N)
		x[i] = value;
}

static struct gpushm_stream *make(struct gpushm *c, const char *name, const char *array)
{
	const int64_t shape = N;
	struct gpushm_array_spec x = {};
	struct gpushm_stream_spec spec = {};
	struct gpushm_stream *s;

	x.struct_size = sizeof(x);
	x.name = array;
	x.ndim = 1;
	x.shape = &shape;
	GPUSHM(gpushm_dtype_parse("float32", &x.dtype));
	spec.struct_size = sizeof(spec);
	spec.arrays = &x;
	spec.n_arrays = 1;
	GPUSHM(gpushm_stream_create(c, name, &spec, NULL, &s));
	return s;
}

struct stage {
	struct gpushm_graph_frame *in, *out;
	char **addresses; /* device memory: of the frames */
	cudaGraph_t graph;
	cudaGraphExec_t exec;
};

static void capture(struct stage *g, struct gpushm_stream *in, struct gpushm_stream *out,
		    cudaStream_t stream)
{
	uint64_t in_offset, out_offset;

	GPUSHM(gpushm_graph_offset(in, "x", &in_offset));
	GPUSHM(gpushm_graph_offset(out, "y", &out_offset));
	CUDA(cudaMalloc(&g->addresses, 2 * sizeof(*g->addresses)));
	CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	GPUSHM(gpushm_graph_acquire(in, stream, &g->addresses[0], &g->in));
	GPUSHM(gpushm_graph_acquire(out, stream, &g->addresses[1], &g->out));
	square<<<N / 256, 256, 0, stream>>>(&g->addresses[0], in_offset, &g->addresses[1],
					    out_offset);
	GPUSHM(gpushm_graph_release(g->in, stream));
	GPUSHM(gpushm_graph_release(g->out, stream));
	CUDA(cudaStreamEndCapture(stream, &g->graph));
	CUDA(cudaGraphInstantiate(&g->exec, g->graph, 0));
}

static void run(struct stage *g, cudaStream_t stream)
{
	struct gpushm_frame *in, *out;

	GPUSHM(gpushm_graph_next(g->in, g->exec, 1000, &in));
	GPUSHM(gpushm_graph_next(g->out, g->exec, 1000, &out));
	CUDA(cudaGraphLaunch(g->exec, stream));
	GPUSHM(gpushm_frame_release(in, stream));
	GPUSHM(gpushm_frame_publish(out, stream, NULL, 0));
}

static void put_number(struct gpushm_stream *s, cudaStream_t stream, float value)
{
	struct gpushm_frame *f;
	struct gpushm_array *x;

	GPUSHM(gpushm_frame_begin(s, stream, 1000, &f));
	GPUSHM(gpushm_frame_array(f, "x", &x));
	fill<<<N / 256, 256, 0, stream>>>((float *)gpushm_array_device_ptr(x), value);
	gpushm_array_free(x);
	GPUSHM(gpushm_frame_publish(f, stream, NULL, 0));
}

static float get_square(struct gpushm_stream *s, cudaStream_t stream)
{
	struct gpushm_frame *f;
	struct gpushm_array *y;
	float value;

	GPUSHM(gpushm_frame_next(s, stream, 1000, &f));
	GPUSHM(gpushm_frame_array(f, "y", &y));
	CUDA(cudaMemcpyAsync(&value, (const float *)gpushm_array_device_ptr(y) + N - 1,
			     sizeof(value), cudaMemcpyDeviceToHost, stream));
	gpushm_array_free(y);
	GPUSHM(gpushm_frame_release(f, stream));
	CUDA(cudaStreamSynchronize(stream));
	return value;
}

int main(void)
{
	struct gpushm_stream *numbers, *squares, *in, *out;
	cudaStream_t before, stage, after;
	struct stage g = {};
	struct gpushm *c;

	CUDA(cudaStreamCreateWithFlags(&before, cudaStreamNonBlocking));
	CUDA(cudaStreamCreateWithFlags(&stage, cudaStreamNonBlocking));
	CUDA(cudaStreamCreateWithFlags(&after, cudaStreamNonBlocking));
	GPUSHM(gpushm_connect(NULL, &c));
	numbers = make(c, "numbers", "x");
	squares = make(c, "squares", "y");
	GPUSHM(gpushm_stream_open(c, "numbers", GPUSHM_EVERY, 1, 1000, NULL, &in));
	GPUSHM(gpushm_stream_open(c, "squares", GPUSHM_EVERY, 1, 1000, NULL, &out));
	capture(&g, in, squares, stage);
	for (unsigned i = 1; i <= FRAMES; i++) {
		put_number(numbers, before, (float)i);
		run(&g, stage);
		if (get_square(out, after) != (float)i * (float)i)
			give_up("square", "a frame has another number's square");
	}
	printf("%u frames went through one CUDA graph\n", FRAMES);
	CUDA(cudaGraphExecDestroy(g.exec));
	CUDA(cudaGraphDestroy(g.graph));
	gpushm_graph_free(g.in);
	gpushm_graph_free(g.out);
	CUDA(cudaFree(g.addresses));
	gpushm_stream_close(in);
	gpushm_stream_close(out);
	gpushm_stream_close(numbers);
	gpushm_stream_close(squares);
	gpushm_disconnect(c);
	return 0;
}
