/* SPDX-License-Identifier: MIT
 *
 * The processes of tests of streams.
 */
#include "tests/gpu/stream_roles.h"

#include "proto/base/own.h"
#include "tests/gpu/fixture.h"
#include "tests/lib/hostile_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

struct side {
	struct driver gpu;
	struct gpushm *c;
	struct gpushm_stream *s;
	CUstream stream;
	unsigned *copy; /* FRAME_BYTES, registered */
};

static void give_up(const char *what, int result)
{
	fprintf(stderr, "%s: %d: %s\n", what, result, gpushm_error());
	_exit(1);
}

#define MUST(call)                               \
	do {                                     \
		int result_ = (int)(call);       \
		if (result_ != 0)                \
			give_up(#call, result_); \
	} while (0)

int stream_make(struct gpushm *conn, const char *name, const char *pool, uint32_t slots,
		struct gpushm_stream **ret)
{
	const int64_t shape = FRAME_WORDS;
	struct gpushm_array_spec words = {
		.struct_size = sizeof(words), .name = "words", .ndim = 1, .shape = &shape
	};
	struct gpushm_stream_spec spec = {
		.struct_size = sizeof(spec),
		.arrays = &words,
		.n_arrays = 1,
		.slots = slots,
		.readers = 64,
		.limit_ms = 60000,
	};
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };

	gpushm_dtype_parse("uint32", &words.dtype);
	return gpushm_stream_create(conn, name, &spec, &o, ret);
}

CUdeviceptr frame_words(struct gpushm_frame *f)
{
	struct gpushm_array *a = NULL;
	CUdeviceptr words;

	MUST(gpushm_frame_array(f, "words", &a));
	words = (uintptr_t)gpushm_array_device_ptr(a);
	gpushm_array_free(a);
	return words;
}

static enum gpushm_follow follow_of(const char *name)
{
	return strcmp(name, "every") == 0 ? GPUSHM_EVERY : GPUSHM_LATEST;
}

static void side_open(struct side *me, const char *socket)
{
	*me = (struct side){ 0 };
	if (!driver_open(&me->gpu, 0) || !kernels_load(&me->gpu))
		give_up("driver", 0);
	MUST(gpushm_connect(socket, &me->c));
	MUST(me->gpu.stream_create(&me->stream, CU_STREAM_NON_BLOCKING));
	me->copy =
		mmap(NULL, FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(me->gpu.mem_host_register(me->copy, FRAME_BYTES, 0));
}

static void side_close(struct side *me)
{
	gpushm_stream_close(me->s);
	gpushm_disconnect(me->c);
	me->gpu.mem_host_unregister(me->copy);
	me->gpu.stream_destroy(me->stream);
	driver_close(&me->gpu, 0);
}

/* Whether all words of a frame are its number: looks after all that is queued on the stream. */
static bool is_whole(struct side *me, CUdeviceptr words, uint32_t value)
{
	MUST(me->gpu.memcpy_dtoh_async(me->copy, words, FRAME_BYTES, me->stream));
	MUST(me->gpu.stream_synchronize(me->stream));
	for (size_t i = 0; i < FRAME_WORDS; i++)
		if (me->copy[i] != value)
			return false;
	return true;
}

/* ---- a reader that dies ---- */

static bool input_within(int ms)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&in, 1, ms) == 1;
}

/* Reads as the kernel does, until the input ends. */
static void watch_by_hand(struct side *me, CUdeviceptr words, uint32_t value, struct witness *it)
{
	char word[8];

	it->started = 1;
	for (;;) {
		me->gpu.memcpy_dtoh(me->copy, words, FRAME_BYTES);
		for (size_t i = 0; i < FRAME_WORDS; i++)
			if (me->copy[i] != value)
				it->seen = me->copy[i] | 1u << 31;
		if (!input_within(0))
			continue;
		if (read(STDIN_FILENO, word, sizeof(word)) <= 0)
			_exit(0);
		shutdown(gpushm_fd(me->c), SHUT_RDWR);
	}
}

/* What is queued after it is never done. Over the fake driver a wait plays the kernel. */
static void start_watch(struct side *me, CUdeviceptr words, uint32_t value, CUdeviceptr witness)
{
	if (driver_has_kernels(&me->gpu)) {
		MUST(kernel_watch(&me->gpu, me->stream, words, FRAME_WORDS, value, witness));
		return;
	}
	MUST(me->gpu.stream_synchronize(me->stream));
	MUST(me->gpu.wait_value(me->stream, witness + offsetof(struct witness, never), 1, 0));
}

static void take_and_watch(struct side *me, bool release, struct witness *it, CUdeviceptr witness)
{
	struct gpushm_frame *f = NULL;
	CUdeviceptr words;
	uint32_t value;

	MUST(gpushm_frame_next(me->s, me->stream, 10000, &f));
	words = frame_words(f);
	value = (uint32_t)gpushm_frame_seq(f);
	start_watch(me, words, value, witness);
	if (release)
		MUST(gpushm_frame_release(f, me->stream));
	puts("holding");
	if (!driver_has_kernels(&me->gpu))
		watch_by_hand(me, words, value, it);
	while (input_within(-1))
		;
}

int victim_role(char **args)
{
	int fd = atoi(args[4]);
	struct witness *all = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *it;
	CUdeviceptr witness;
	struct side me;
	char order[16];

	side_open(&me, args[0]);
	MUST(me.gpu.mem_host_register(all, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
	it = &all[atoi(args[5])];
	MUST(me.gpu.host_pointer(&witness, all, 0));
	witness += (uintptr_t)it - (uintptr_t)all;
	MUST(gpushm_stream_open(me.c, args[1], follow_of(args[2]), 1, 5000, NULL, &me.s));
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ready");
	if (fgets(order, sizeof(order), stdin))
		take_and_watch(&me, args[3][0] == '1', it, witness);
	me.gpu.mem_host_unregister(all);
	side_close(&me);
	return 0;
}

/* ---- a reader that checks ---- */

static bool check_by_cpu(struct gpushm_frame *f)
{
	const uint32_t *words;
	struct gpushm_array *a = NULL;
	bool good = true;

	MUST(gpushm_frame_array(f, "words", &a));
	words = gpushm_array_host_ptr(a);
	for (size_t i = 0; i < FRAME_WORDS; i++)
		good = good && words[i] == (uint32_t)gpushm_frame_seq(f);
	gpushm_array_free(a);
	return good;
}

static bool is_good(struct side *me, struct gpushm_frame *f, bool on_host)
{
	uint64_t seq = gpushm_frame_seq(f);
	const uint64_t *meta;
	size_t n;

	meta = gpushm_frame_meta(f, &n);
	if (n != sizeof(seq) || memcmp(meta, &seq, sizeof(seq)) != 0)
		return false;
	if (!(on_host ? check_by_cpu(f) : is_whole(me, frame_words(f), (uint32_t)seq)))
		return false;
	return gpushm_frame_ok(f) == 0;
}

/* A frame is looked at when it is taken, and again before it is released, when the next one is
 * held, too. */
int checker_role(char **args)
{
	struct gpushm_frame *f, *held = NULL;
	bool on_host = args[3][0] == '1';
	unsigned long frames = 0, bad = 0;
	struct side me;
	void *stream;
	int r = 0;

	side_open(&me, args[0]);
	stream = on_host ? GPUSHM_ON_HOST : (void *)me.stream;
	MUST(gpushm_stream_open(me.c, args[1], follow_of(args[2]), 2, 5000, NULL, &me.s));
	puts("ready");
	while (r != -EPIPE && !input_within(0)) {
		r = gpushm_frame_next(me.s, stream, 20, &f);
		if (r == -ETIMEDOUT || r == -EPIPE)
			continue;
		MUST(r);
		frames++;
		bad += !is_good(&me, f, on_host);
		if (held) {
			bad += !is_good(&me, held, on_host);
			MUST(gpushm_frame_release(held, stream));
		}
		held = f;
	}
	if (held)
		MUST(gpushm_frame_release(held, stream));
	printf("%lu %lu\n", frames, bad);
	side_close(&me);
	return 0;
}

/* ---- a producer that dies ---- */

static void put_frame(struct side *me)
{
	struct gpushm_frame *f;
	uint64_t seq;

	MUST(gpushm_frame_begin(me->s, NULL, 1000, &f));
	seq = gpushm_frame_seq(f);
	MUST(me->gpu.memset_d32_async(frame_words(f), (uint32_t)seq, FRAME_WORDS, NULL));
	MUST(gpushm_frame_publish(f, NULL, &seq, sizeof(seq)));
}

static void begin_endless_work(struct side *me, CUdeviceptr words)
{
	struct witness *never;

	if (driver_has_kernels(&me->gpu)) {
		MUST(kernel_scribble(&me->gpu, words, FRAME_WORDS, 0xbad));
		return;
	}
	never = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(me->gpu.mem_host_register(never, 4096, 0));
	MUST(me->gpu.wait_value(NULL, (CUdeviceptr)(uintptr_t)&never->never, 1, 0));
}

int dying_producer_role(char **args)
{
	struct gpushm_frame *f;
	struct side me;

	side_open(&me, args[0]);
	MUST(stream_make(me.c, args[1], args[2], 4, &me.s));
	hostile_reader_join(args[0], args[1]);
	put_frame(&me);
	puts("ready");
	input_within(-1);
	MUST(gpushm_frame_begin(me.s, NULL, 1000, &f));
	begin_endless_work(&me, frame_words(f));
	MUST(gpushm_frame_publish(f, NULL, NULL, 0));
	puts("filling");
	for (;;)
		pause();
}
