/* SPDX-License-Identifier: MIT
 *
 * The order of the fake driver's streams: waits for words, by which processes order their work, and
 * captured graphs.
 */
#include "tests/fakecuda/words.h"

#define WORDS 8192

static CUstream first, second;
static CUdeviceptr memory; /* 4096 bytes */
static uint64_t *words;	   /* of the host, registered */

static uint64_t *map_words(int fd, int prot, unsigned int flags)
{
	uint64_t *at = mmap(NULL, WORDS, prot, MAP_SHARED, fd, 0);

	MUST(at != MAP_FAILED);
	OK(cu(cuMemHostRegister)(at, WORDS, flags));
	return at;
}

static uint64_t *new_words(void)
{
	int fd = memfd_create("words", MFD_CLOEXEC);
	uint64_t *at;

	MUST(ftruncate(fd, WORDS) == 0);
	at = map_words(fd, PROT_READ | PROT_WRITE, CU_MEMHOSTREGISTER_DEVICEMAP);
	close(fd);
	return at;
}

static void start(void)
{
	start_driver(0);
	OK(cu(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING));
	OK(cu(cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING));
	OK(cu(cuMemAlloc)(&memory, 4096));
	OK(cu(cuMemsetD8)(memory, 0, 4096));
	words = new_words();
}

static void finish(void)
{
	OK(cu(cuStreamDestroy)(first));
	OK(cu(cuStreamDestroy)(second));
	OK(cu(cuMemFree)(memory));
	OK(cu(cuMemHostUnregister)(words));
	munmap(words, WORDS);
}

static CUdeviceptr at(unsigned int word)
{
	return (CUdeviceptr)&words[word];
}

static void await_word(CUstream stream, unsigned int word, uint64_t value)
{
	OK(cu(cuStreamWaitValue64)(stream, at(word), value, CU_STREAM_WAIT_VALUE_GEQ));
}

static uint64_t load(unsigned int word)
{
	return __atomic_load_n(&words[word], __ATOMIC_SEQ_CST);
}

static void store(unsigned int word, uint64_t value)
{
	__atomic_store_n(&words[word], value, __ATOMIC_SEQ_CST);
}

/* What device memory has, seen through a stream that waits for nothing. */
static unsigned int word_of(CUdeviceptr p)
{
	unsigned int word;

	OK(cu(cuMemcpyDtoHAsync)(&word, p, 4, second));
	return word;
}

SCENARIO(a_wait_holds_up_its_own_stream_alone)
{
	start();
	await_word(first, 0, 7);
	OK(cu(cuMemsetD32Async)(memory, 1, 1, first));
	OK(cu(cuStreamWriteValue64)(first, at(1), 5, 0));
	OK(cu(cuMemsetD32Async)(memory + 4, 2, 1, second));
	OK(cu(cuStreamQuery)(second));
	GIVES(CUDA_ERROR_NOT_READY, cu(cuStreamQuery)(first));
	MUST(word_of(memory) == 0 && word_of(memory + 4) == 2 && load(1) == 0);
	store(0, 6);
	GIVES(CUDA_ERROR_NOT_READY, cu(cuStreamQuery)(first));
	store(0, 8);
	OK(cu(cuStreamSynchronize)(first));
	MUST(word_of(memory) == 1 && load(1) == 5);
	finish();
}

/* Nobody calls the driver meanwhile. */
SCENARIO(work_goes_on_while_the_process_does_nothing)
{
	start();
	await_word(first, 0, 1);
	OK(cu(cuStreamWriteValue64)(first, at(1), 1, 0));
	await_word(second, 1, 1);
	OK(cu(cuStreamWriteValue64)(second, at(2), 1, 0));
	store(0, 1);
	while (load(2) == 0)
		usleep(100);
	finish();
}

/* The driver's thread ends when it has had nothing to do; pauses around its last look are tried. */
SCENARIO(work_goes_on_though_the_thread_was_about_to_end)
{
	start();
	for (unsigned int i = 1; i <= 300; i++) {
		await_word(first, 0, i);
		OK(cu(cuStreamWriteValue64)(first, at(1), i, 0));
		store(0, i);
		while (load(1) < i)
			usleep(100);
		usleep(i * 7919 % 9000);
	}
	finish();
}

SCENARIO(a_wait_compares_as_it_is_told)
{
	start();
	store(0, 2);
	await_word(first, 0, UINT64_MAX - 5); /* before 2: the numbers wrap */
	OK(cu(cuStreamWaitValue64)(first, at(0), 2, CU_STREAM_WAIT_VALUE_EQ));
	OK(cu(cuStreamWaitValue64)(first, at(0), 6, CU_STREAM_WAIT_VALUE_AND));
	OK(cu(cuStreamWaitValue32)(first, at(0), 1, CU_STREAM_WAIT_VALUE_NOR));
	OK(cu(cuStreamQuery)(first));
	OK(cu(cuStreamWaitValue64)(first, at(0), 1, CU_STREAM_WAIT_VALUE_EQ));
	GIVES(CUDA_ERROR_NOT_READY, cu(cuStreamQuery)(first));
	OK(cu(cuStreamWriteValue32)(second, at(0), 1, 0));
	OK(cu(cuStreamSynchronize)(first));
	finish();
}

static void waiting_reader(void)
{
	char c;
	int fd;

	start();
	fd = hear(PEER, &c, 1);
	OK(cu(cuMemHostUnregister)(words));
	munmap(words, WORDS);
	words = map_words(fd, PROT_READ,
			  CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY);
	close(fd);
	await_word(first, 0, 3);
	GIVES(CUDA_ERROR_NOT_READY, cu(cuStreamQuery)(first));
	go(PEER);
	OK(cu(cuStreamSynchronize)(first));
	go(PEER);
	finish();
}

SCENARIO(another_process_ends_a_wait_through_read_only_words)
{
	int fd = memfd_create("words", MFD_CLOEXEC), socket;
	pid_t pid = scenario_start("waiting_reader", &socket);

	MUST(ftruncate(fd, WORDS) == 0);
	words = mmap(NULL, WORDS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tell(socket, "f", 1, fd);
	await(socket);
	store(0, 3);
	await(socket);
	scenario_finish(pid);
	close(socket);
	close(fd);
}

SCENARIO(events_and_the_default_stream_keep_their_order)
{
	CUstream blocking;
	CUevent event;

	start();
	OK(cu(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
	OK(cu(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	await_word(first, 0, 1);
	OK(cu(cuEventRecord)(event, first));
	GIVES(CUDA_ERROR_NOT_READY, cu(cuEventQuery)(event));
	OK(cu(cuStreamWaitEvent)(blocking, event, 0));
	OK(cu(cuMemsetD32Async)(memory, 1, 1, blocking));
	OK(cu(cuMemsetD32Async)(memory, 2, 1, NULL));
	OK(cu(cuMemsetD32Async)(memory + 4, 2, 1, second));
	MUST(word_of(memory) == 0 && word_of(memory + 4) == 2);
	store(0, 1);
	OK(cu(cuEventSynchronize)(event));
	OK(cu(cuStreamSynchronize)(NULL));
	MUST(word_of(memory) == 2);
	OK(cu(cuStreamDestroy)(blocking));
	OK(cu(cuEventDestroy)(event));
	finish();
}

static void count_call(void *argument)
{
	usleep(1000);
	++*(_Atomic int *)argument;
}

SCENARIO(host_functions_run_in_the_order_of_their_stream)
{
	_Atomic int called = 0;

	start();
	await_word(first, 0, 1);
	OK(cu(cuLaunchHostFunc)(first, count_call, (void *)&called));
	OK(cu(cuStreamWriteValue64)(first, at(1), 1, 0));
	OK(cu(cuLaunchHostFunc)(first, count_call, (void *)&called));
	MUST(called == 0);
	store(0, 1);
	while (load(1) == 0)
		;
	MUST(called > 0);
	OK(cu(cuCtxSynchronize)());
	MUST(called == 2);
	finish();
}

SCENARIO(pageable_memory_may_be_reused_after_the_call)
{
	unsigned int word = 1;

	start();
	await_word(first, 0, 1);
	OK(cu(cuMemcpyHtoDAsync)(memory, &word, 4, first));
	word = 2;
	GIVES(CUDA_ERROR_NOT_READY, cu(cuStreamQuery)(first));
	store(0, 1);
	OK(cu(cuMemcpyDtoHAsync)(&word, memory, 4, first));
	MUST(word == 1);
	finish();
}

SCENARIO(work_of_a_destroyed_stream_is_done)
{
	CUstream stream;

	start();
	OK(cu(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	await_word(stream, 0, 1);
	OK(cu(cuStreamWriteValue64)(stream, at(1), 1, 0));
	OK(cu(cuStreamDestroy)(stream));
	store(0, 1);
	OK(cu(cuCtxSynchronize)());
	MUST(load(1) == 1);
	finish();
}

SCENARIO(each_of_the_new_calls_can_fail, .env = "FAKECUDA_FAIL=1:cuStreamWaitValue64")
{
	start();
	GIVES(CUDA_ERROR_UNKNOWN, cu(cuStreamWaitValue64)(first, at(0), 1, 0));
	OK(cu(cuStreamQuery)(first));
	await_word(first, 0, 0);
	finish();
}

/* ---- graphs ---- */

static CUgraph capture(CUgraphNode *ret_wait)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *last;
	size_t n;
	CUgraph graph;

	OK(cu(cuStreamBeginCapture)(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	await_word(first, 0, 1);
	OK(cu(cuStreamGetCaptureInfo)(first, &status, NULL, NULL, &last, NULL, &n));
	MUST(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 1);
	*ret_wait = last[0];
	OK(cu(cuMemsetD32Async)(memory, 9, 1, first));
	OK(cu(cuStreamWriteValue64)(first, at(1), 1, 0));
	OK(cu(cuStreamEndCapture)(first, &graph));
	return graph;
}

static void set_wait(CUgraphExec exec, CUgraphNode node, uint64_t value)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS params;
	CUstreamBatchMemOpParams op;

	OK(cu(cuGraphBatchMemOpNodeGetParams)(node, &params));
	MUST(params.count == 1);
	op = params.paramArray[0];
	op.waitValue.value64 = value;
	params.paramArray = &op;
	OK(cu(cuGraphExecBatchMemOpNodeSetParams)(exec, node, &params));
	params.count = 2;
	INVALID(cu(cuGraphExecBatchMemOpNodeSetParams)(exec, node, &params));
	params.count = 1;
	op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	INVALID(cu(cuGraphExecBatchMemOpNodeSetParams)(exec, node, &params));
}

SCENARIO(a_graph_waits_and_takes_new_values)
{
	CUgraphNode wait;
	CUgraphExec exec;
	CUgraph graph;

	start();
	graph = capture(&wait);
	MUST(word_of(memory) == 0 && load(1) == 0);
	OK(cu(cuGraphInstantiate)(&exec, graph, 0));
	OK(cu(cuGraphLaunch)(exec, first));
	set_wait(exec, wait, 2);
	OK(cu(cuGraphLaunch)(exec, second));
	GIVES(CUDA_ERROR_NOT_READY, cu(cuStreamQuery)(first));
	store(0, 1);
	OK(cu(cuStreamSynchronize)(first));
	GIVES(CUDA_ERROR_NOT_READY, cu(cuStreamQuery)(second));
	MUST(load(1) == 1);
	store(0, 2);
	OK(cu(cuStreamSynchronize)(second));
	MUST(word_of(memory) == 9);
	OK(cu(cuGraphExecDestroy)(exec));
	OK(cu(cuGraphDestroy)(graph));
	finish();
}

SCENARIO(a_stream_that_captures_is_not_waited_for)
{
	CUgraph graph;

	start();
	OK(cu(cuStreamBeginCapture)(first, CU_STREAM_CAPTURE_MODE_RELAXED));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu(cuStreamSynchronize)(first));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu(cuStreamWaitValue64)(first, at(0), 1, 0));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu(cuStreamEndCapture)(first, &graph));
	finish();
}

SCENARIO(memory_is_registered_during_a_capture_only_by_a_relaxed_thread)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	static char page[4096] __attribute__((aligned(4096)));
	CUgraph graph;

	start();
	OK(cu(cuStreamBeginCapture)(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cu(cuThreadExchangeStreamCaptureMode)(&mode));
	OK(cu(cuMemHostRegister)(page, sizeof(page), 0));
	OK(cu(cuMemHostUnregister)(page));
	OK(cu(cuThreadExchangeStreamCaptureMode)(&mode));
	MUST(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cu(cuStreamEndCapture)(first, &graph));
	OK(cu(cuGraphDestroy)(graph));
	OK(cu(cuStreamBeginCapture)(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu(cuMemHostRegister)(page, sizeof(page), 0));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu(cuStreamEndCapture)(first, &graph));
	finish();
}

/* ---- misuse ---- */

#define ABORTS(name, text) SCENARIO(name, .signal = SIGABRT, .says = text)

ABORTS(a_write_through_a_read_only_registration_aborts, "may not write")
{
	int fd = memfd_create("words", MFD_CLOEXEC);

	start();
	MUST(ftruncate(fd, WORDS) == 0);
	words = map_words(fd, PROT_READ, CU_MEMHOSTREGISTER_READ_ONLY);
	cu(cuStreamWriteValue64)(first, at(0), 1, 0);
}

ABORTS(words_that_are_unregistered_while_a_stream_waits_for_them_abort, "is queued")
{
	start();
	await_word(first, 3, 1);
	cu(cuMemHostUnregister)(words);
}

ABORTS(a_word_that_is_not_aligned_aborts, "not aligned")
{
	start();
	cu(cuStreamWaitValue64)(first, at(0) + 4, 1, 0);
}

ABORTS(a_word_that_is_not_registered_aborts, "no memory that the driver knows")
{
	static uint64_t word;

	start();
	cu(cuStreamWaitValue64)(first, (CUdeviceptr)&word, 1, 0);
}

ABORTS(a_batch_with_a_bad_word_aborts_before_it_begins, "no memory that the driver knows")
{
	CUstreamBatchMemOpParams ops[2] = { 0 };

	start();
	ops[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	ops[0].writeValue.address = at(0);
	ops[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	ops[1].waitValue.address = at(WORDS);
	cu(cuStreamBatchMemOp)(first, 2, ops, 0);
}

ABORTS(memory_that_is_unmapped_before_its_copy_aborts, "freed or unmapped")
{
	CUdeviceptr p;

	start();
	OK(cu(cuMemAlloc)(&p, 64));
	await_word(first, 0, 1);
	OK(cu(cuMemcpyDtoDAsync)(memory, p, 64, first));
	OK(cu(cuMemFreeAsync)(p, second));
	store(0, 1);
	cu(cuStreamSynchronize)(first);
}

ABORTS(a_node_of_a_destroyed_graph_aborts, "none of its nodes")
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS params;
	CUgraphNode wait;
	CUgraphExec exec;
	CUgraph graph;

	start();
	graph = capture(&wait);
	OK(cu(cuGraphInstantiate)(&exec, graph, 0));
	OK(cu(cuGraphBatchMemOpNodeGetParams)(wait, &params));
	OK(cu(cuGraphDestroy)(graph));
	cu(cuGraphExecBatchMemOpNodeSetParams)(exec, wait, &params);
}

SCENARIO(a_graph_that_is_not_destroyed_leaks, .env = "FAKECUDA_STRICT=1",
	 .status = FAKECUDA_LEAKED_STATUS, .says = "leaked 1 graphs")
{
	CUgraphNode wait;

	start();
	capture(&wait);
	finish();
}

#define ALL(X)                                                             \
	X(a_wait_holds_up_its_own_stream_alone)                            \
	X(work_goes_on_while_the_process_does_nothing)                     \
	X(work_goes_on_though_the_thread_was_about_to_end)                 \
	X(a_wait_compares_as_it_is_told)                                   \
	X(another_process_ends_a_wait_through_read_only_words)             \
	X(events_and_the_default_stream_keep_their_order)                  \
	X(host_functions_run_in_the_order_of_their_stream)                 \
	X(pageable_memory_may_be_reused_after_the_call)                    \
	X(work_of_a_destroyed_stream_is_done)                              \
	X(each_of_the_new_calls_can_fail)                                  \
	X(a_graph_waits_and_takes_new_values)                              \
	X(memory_is_registered_during_a_capture_only_by_a_relaxed_thread)  \
	X(a_stream_that_captures_is_not_waited_for)                        \
	X(a_write_through_a_read_only_registration_aborts)                 \
	X(words_that_are_unregistered_while_a_stream_waits_for_them_abort) \
	X(a_word_that_is_not_aligned_aborts)                               \
	X(a_word_that_is_not_registered_aborts)                            \
	X(a_batch_with_a_bad_word_aborts_before_it_begins)                 \
	X(memory_that_is_unmapped_before_its_copy_aborts)                  \
	X(a_node_of_a_destroyed_graph_aborts)                              \
	X(a_graph_that_is_not_destroyed_leaks)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY){ "waiting_reader", waiting_reader },
				      { NULL, NULL } };

static void add(TCase *tests)
{
	ALL(SCENARIO_ADD)
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, "fakecuda stream", add);
}
