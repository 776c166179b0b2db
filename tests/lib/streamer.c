/* SPDX-License-Identifier: MIT
 *
 * The contents of frames, the board, and the two roles.
 */
#include "tests/lib/streamer.h"

#include "proto/base/own.h"
#include "tests/lib/hostile_reader.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const int64_t shape[] = { STREAMER_WORDS };
const struct gpushm_array_spec streamer_arrays[STREAMER_ARRAYS] = {
	{ .struct_size = sizeof(*streamer_arrays),
	  .name = "words",
	  .dtype = { 1, 64, 1, 0 },
	  .ndim = 1,
	  .shape = shape },
	{ .struct_size = sizeof(*streamer_arrays),
	  .name = "number",
	  .dtype = { 1, 64, 1, 0 },
	  .ndim = 0 },
};

/* ---- the board ---- */

static struct streamer_board *map_board(int fd)
{
	void *memory = mmap(NULL, sizeof(struct streamer_board), PROT_READ | PROT_WRITE, MAP_SHARED,
			    fd, 0);

	close(fd);
	return memory == MAP_FAILED ? NULL : memory;
}

struct streamer_board *streamer_board_new(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct streamer_board *b;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*b)), 0);
	b = map_board(fd);
	ck_assert_ptr_nonnull(b);
	return b;
}

struct streamer_board *streamer_board_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 ? NULL : map_board(fd);
}

void streamer_board_free(struct streamer_board *b, const char *path)
{
	munmap(b, sizeof(*b));
	unlink(path);
}

/* ---- contents ---- */

static uint64_t word_at(uint64_t seq, uint64_t i)
{
	return (seq * 0x9e3779b97f4a7c15u) ^ (i * 0xbf58476d1ce4e5b9u);
}

static uint64_t *words_of(struct gpushm_frame *f, const char *name)
{
	struct gpushm_array *a = NULL;
	uint64_t *words;

	if (gpushm_frame_array(f, name, &a) < 0)
		return NULL;
	words = gpushm_array_host_ptr(a);
	gpushm_array_free(a);
	return words;
}

int streamer_fill(struct gpushm_frame *f)
{
	volatile uint64_t *words = words_of(f, "words"), *number = words_of(f, "number");
	uint64_t seq = gpushm_frame_seq(f);

	if (!words || !number)
		return -ENOENT;
	for (uint64_t i = 0; i < STREAMER_WORDS; i++)
		words[i] = word_at(seq, i);
	*number = seq;
	return 0;
}

bool streamer_is_right(struct gpushm_frame *f)
{
	const volatile uint64_t *words = words_of(f, "words"), *number = words_of(f, "number");
	uint64_t seq = gpushm_frame_seq(f), meta = 0;
	size_t n = 0;

	if (!words || !number || *number != seq)
		return false;
	for (uint64_t i = 0; i < STREAMER_WORDS; i++)
		if (words[i] != word_at(seq, i))
			return false;
	memcpy(&meta, gpushm_frame_meta(f, &n), sizeof(meta));
	return n == sizeof(meta) && meta == seq;
}

uint64_t streamer_spin_us;

int streamer_create(struct gpushm *conn, const char *name, struct gpushm_stream_spec *spec,
		    struct gpushm_stream **ret)
{
	spec->struct_size = sizeof(*spec);
	spec->arrays = streamer_arrays;
	spec->n_arrays = STREAMER_ARRAYS;
	spec->spin_us = spec->spin_us ? spec->spin_us : streamer_spin_us;
	return gpushm_stream_create(conn, name, spec,
				    &(struct gpushm_create_options){
					    .struct_size = sizeof(struct gpushm_create_options),
					    .pool = "host" },
				    ret);
}

/* ---- roles ---- */

static const char *value_of(char **args, const char *key)
{
	size_t n = strlen(key);

	for (; *args; args++)
		if (strncmp(*args, key, n) == 0 && (*args)[n] == '=')
			return *args + n + 1;
	return NULL;
}

static uint64_t number_of(char **args, const char *key, uint64_t otherwise)
{
	const char *text = value_of(args, key);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void pause_us(uint64_t us)
{
	struct timespec t = { .tv_sec = (time_t)(us / 1000000u),
			      .tv_nsec = (long)(us % 1000000u) * 1000 };

	if (us > 0)
		nanosleep(&t, NULL);
}

static bool input_has_ended(void)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void wait_for_input(void)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

static int failed(const char *what)
{
	fprintf(stderr, "streamer: %s: %s\n", what, gpushm_error());
	return 1;
}

static void wait_for_readers(struct gpushm_stream *s, uint32_t n)
{
	struct gpushm_stream_stats stats = { .struct_size = sizeof(stats) };

	while (stats.readers < n && !input_has_ended() && gpushm_stream_stats(s, &stats) == 0)
		pause_us(100);
}

static int produce(struct gpushm_stream *s, struct streamer_board *board, char **args)
{
	uint64_t count = number_of(args, "count", 0), delay = number_of(args, "delay", 0);
	uint64_t begun = number_of(args, "begun", 0);

	for (uint64_t i = 0; (count == 0 || i < count || begun) && !input_has_ended(); i++) {
		struct gpushm_frame *f = NULL;
		uint64_t seq;
		int r = gpushm_frame_begin(s, GPUSHM_ON_HOST, 1000, &f);

		if (r == -ETIMEDOUT)
			continue;
		if (r < 0 || streamer_fill(f) < 0)
			return failed("begin");
		if (begun && i == count) {
			puts("begun");
			wait_for_input();
		}
		seq = gpushm_frame_seq(f);
		board->was_published[seq % STREAMER_FRAMES]++;
		if (gpushm_frame_publish(f, GPUSHM_ON_HOST, &seq, sizeof(seq)) < 0)
			return failed("publish");
		board->published = seq;
		pause_us(delay);
	}
	return 0;
}

int streamer_producer(char **args)
{
	struct gpushm_stream_spec spec = { .slots = (uint32_t)number_of(args, "slots", 4),
					   .readers = (uint32_t)number_of(args, "readers", 16),
					   .limit_ms = number_of(args, "limit", 0),
					   .spin_us = number_of(args, "spin", 0) };
	struct streamer_board *board = streamer_board_open(args[2]);
	struct gpushm_stream *s = NULL;
	struct gpushm *conn = NULL;
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = "host",
					   .wait_ms = 10000 };
	int r;

	spec.flags = (number_of(args, "adopt", 0) ? GPUSHM_ADOPT : 0) |
		     (number_of(args, "keep_queue", 0) ? GPUSHM_KEEP_QUEUE : 0) |
		     (number_of(args, "keep", 0) ? GPUSHM_KEEP_STREAM : 0);
	spec.delivery = number_of(args, "once", 0) ? GPUSHM_AT_MOST_ONCE : 0;
	spec.struct_size = sizeof(spec);
	spec.arrays = streamer_arrays;
	spec.n_arrays = STREAMER_ARRAYS;
	if (!board || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_stream_create(conn, args[1], &spec, &o, &s) < 0)
		return failed("create");
	board->producers++;
	hostile_reader_join(args[0], args[1]);
	puts("ready");
	wait_for_readers(s, (uint32_t)number_of(args, "before", 0));
	r = produce(s, board, args);
	if (r == 0 && number_of(args, "linger", 0))
		wait_for_input();
	gpushm_stream_close(s);
	gpushm_disconnect(conn);
	return r;
}

struct reading {
	struct gpushm_stream *stream;
	struct streamer_board *board;
	uint64_t id, hold, last, stop, taken;
	bool every, shares, scribbles;
};

/* What this process may write: its own page, found in its map of the memory. */
__attribute__((no_sanitize_thread, no_sanitize_address)) static void scribble(void)
{
	char line[256];
	FILE *maps = fopen("/proc/self/maps", "re");
	static uint64_t state = 88172645463325252u;

	while (maps && fgets(line, sizeof(line), maps)) {
		uintptr_t from, to;

		if (sscanf(line, "%lx-%lx", &from, &to) != 2 || !strstr(line, " rw-s ") ||
		    !strstr(line, "gpushm-stream"))
			continue;
		for (uint64_t *w = (uint64_t *)from + 8; w < (uint64_t *)to; w++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			*(volatile uint64_t *)w = state;
		}
	}
	if (maps)
		fclose(maps);
}

static void judge(struct reading *g, struct gpushm_frame *f, bool right)
{
	int ok = gpushm_frame_ok(f);

	if (ok == -EPIPE)
		g->board->broken++;
	else if (ok == -ESTALE)
		g->board->stale++;
	else if (!right)
		g->board->torn++;
}

static void use(struct reading *g, struct gpushm_frame *f)
{
	uint64_t seq = gpushm_frame_seq(f);
	bool right = streamer_is_right(f);

	if (g->every && g->last && seq != g->last + 1)
		g->board->disorder++;
	g->last = seq;
	pause_us(g->hold);
	g->taken++;
	g->board->taken[g->id % STREAMER_READERS]++;
	if (g->taken == g->stop) {
		puts("holds");
		wait_for_input();
	}
	right = right && streamer_is_right(f);
	judge(g, f, right);
	if (g->scribbles)
		scribble();
	/* Before the release: a death in between may then count a frame twice, and never lose one.
	 */
	g->board->done[seq % STREAMER_FRAMES]++;
	if (g->shares)
		g->board->shared[seq % STREAMER_FRAMES]++;
	gpushm_frame_release(f, GPUSHM_ON_HOST);
}

/* Reads until the stream has ended, or its input. */
static int read_all(struct reading *g, uint64_t count)
{
	while ((count == 0 || g->taken < count) && !input_has_ended()) {
		struct gpushm_frame *f = NULL;
		int r = gpushm_frame_next(g->stream, GPUSHM_ON_HOST, 500, &f);

		if (r == 0) {
			use(g, f);
		} else if (r == -EPIPE) {
			g->board->ended++;
			return 0;
		} else if (r == -ESTALE) {
			g->board->dropped++;
			return 0;
		} else if (r == -EOWNERDEAD) {
			g->board->orphaned++;
		} else if (r != -ETIMEDOUT) {
			return failed("next");
		}
	}
	return 0;
}

static enum gpushm_follow follow_of(const char *word)
{
	if (word && strcmp(word, "latest") == 0)
		return GPUSHM_LATEST;
	return word && strcmp(word, "share") == 0 ? GPUSHM_SHARE : GPUSHM_EVERY;
}

int streamer_reader(char **args)
{
	enum gpushm_follow follow = follow_of(value_of(args, "follow"));
	struct reading g = { .board = streamer_board_open(args[2]),
			     .id = number_of(args, "id", 0),
			     .hold = number_of(args, "hold", 0),
			     .stop = number_of(args, "stop", 0),
			     .every = follow == GPUSHM_EVERY,
			     .shares = follow == GPUSHM_SHARE,
			     .scribbles = number_of(args, "scribble", 0) };
	const struct gpushm_follow_options o = { .struct_size = sizeof(o),
						 .spin_us = number_of(args, "spin", 0) };
	struct gpushm *conn = NULL;
	int r;

	if (!g.board || gpushm_connect(args[0], &conn) < 0)
		return failed("connect");
	r = gpushm_stream_open(conn, args[1], follow, (uint32_t)number_of(args, "held", 1),
			       number_of(args, "patience", 10000), &o, &g.stream);
	if (r < 0) {
		g.board->refused++;
		gpushm_disconnect(conn);
		return number_of(args, "may_fail", 0) ? 0 : failed("open");
	}
	puts("ready");
	r = read_all(&g, number_of(args, "count", 0));
	if (r == 0 && number_of(args, "linger", 0))
		wait_for_input();
	gpushm_stream_close(g.stream);
	gpushm_disconnect(conn);
	return r;
}

void streamer_start(struct role_process *p, const char *role, const char *const *args)
{
	char line[16];

	role_start(p, role, args);
	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ready");
}
