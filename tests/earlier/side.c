/* SPDX-License-Identifier: MIT
 *
 * What a program of users does, compiled with the headers and linked with the library of either
 * version. Contents follow from the name, so that a side of one version checks what one of the
 * other made.
 *
 *	side SOCKET make NAME        a sealed buffer of two arrays, with an attribute
 *	side SOCKET check NAME       opens and asks for it
 *	side SOCKET wait NAME        until it is published
 *	side SOCKET watch NAME       until it is published, and then unlinked
 *	side SOCKET unlink NAME
 *	side SOCKET memory NAME      0.3: what a daemon of 0.2 can't do with its memory is refused
 *	side SOCKET produce NAME     a stream of FRAMES frames, more than it has slots
 *	side SOCKET follow NAME      all of them, until the producer closes it
 *
 * Those that run while a daemon takes another one's place say when they work, go on until they can
 * read a line, and print what they did:
 *
 *	side SOCKET probe NAME       opens and checks all the time; the longest open
 *	side SOCKET hold NAME        what it has open, and the daemon says the same of it
 *	side SOCKET outlive NAME     the same without its daemon: another one knows nothing of it
 *	side SOCKET feed NAME        a stream's frames
 *	side SOCKET drain NAME       all of them from the first that it gets, until the end
 *	side SOCKET suspend NAME     0.3: lets go of it, and comes back
 */
#include <gpushm_stream.h>

#if __has_include(<gpushm_memory.h>)
#include <gpushm_memory.h>
#define HAS_MEMORY 1
#endif

#if __has_include(<gpushm_query.h>)
#include <gpushm_query.h>
#define SIZED(s) .struct_size = sizeof(s),
#define SIZE(s) ((s)->struct_size = sizeof(*(s)))
#else /* 0.2: a caller's struct has one size for ever */
#define SIZED(s)
#define SIZE(s) ((void)(s))
#endif

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000
#define FRAMES 50u
#define WORDS 100

static const char *socket_path;
static struct gpushm *c;

static void must(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %d: %s", what, r, gpushm_error());
}

static void same(bool is, const char *what)
{
	if (!is)
		errx(1, "not the same: %s", what);
}

static const int64_t shape[] = { WORDS / 2, 2 };

static void describe(struct gpushm_array_spec specs[2])
{
	static const char *const names[] = { "words", "more" };

	for (int i = 0; i < 2; i++) {
		memset(&specs[i], 0, sizeof(specs[i]));
		SIZE(&specs[i]);
		specs[i].name = names[i];
		specs[i].ndim = 2;
		specs[i].shape = shape;
		must(gpushm_dtype_parse("uint32", &specs[i].dtype), "dtype");
	}
}

static uint32_t word(uint64_t seed, int i)
{
	return (uint32_t)(seed * 1000003 + (uint64_t)i * 7919);
}

static void fill(struct gpushm_array *a, uint64_t seed)
{
	uint32_t *words = gpushm_array_host_ptr(a);

	for (int i = 0; i < WORDS; i++)
		words[i] = word(seed, i);
	gpushm_array_free(a);
}

static void compare(struct gpushm_array *a, uint64_t seed)
{
	const uint32_t *words = gpushm_array_host_ptr(a);
	char type[32];

	same(gpushm_dtype_format(gpushm_array_dtype(a), type, sizeof(type)) == 0 &&
		     strcmp(type, "uint32") == 0,
	     "the type");
	same(gpushm_array_ndim(a) == 2 && gpushm_array_dim(a, 0) == WORDS / 2, "the shape");
	for (int i = 0; i < WORDS; i++)
		same(words[i] == word(seed, i), "the contents");
	gpushm_array_free(a);
}

/* ---- buffers ---- */

static void make(const char *name)
{
	const struct gpushm_attr attr = { SIZED(attr).key = "made", .value = name,
					  .size = strlen(name) };
	struct gpushm_array_spec specs[2];
	struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;

	describe(specs);
	must(gpushm_create_arrays(c, name, specs, 2, NULL, &b), "create");
	must(gpushm_set_attrs(b, &attr, 1), "attributes");
	for (size_t i = 0; i < 2; i++) {
		must(gpushm_array_at(b, i, &a), "array");
		fill(a, strlen(name) + i);
	}
	must(gpushm_publish(b, GPUSHM_SEALED), "publish");
	must(gpushm_close(b), "close");
}

static void compare_all(struct gpushm_buffer *b, const char *name)
{
	struct gpushm_array *a = NULL;

	for (size_t i = 0; i < 2; i++) {
		must(gpushm_array_get(b, i == 0 ? "words" : "more", &a), "array");
		compare(a, strlen(name) + i);
	}
}

static void check(const char *name)
{
	struct gpushm_buffer *b = NULL;
	struct gpushm_stat *st = NULL;
	const void *value = NULL;
	size_t n = 0;

	must(gpushm_stat(c, name, 0, 0, &st), "stat");
	same(strcmp(st->name, name) == 0 && st->arrays == 2 && st->n_attrs == 1 &&
		     st->state == GPUSHM_SEALED,
	     "what stat says");
	must(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), "open");
	must(gpushm_buffer_attr(b, "made", &value, &n), "attribute");
	same(n == strlen(name) && memcmp(value, name, n) == 0, "the attribute");
	compare_all(b, name);
	must(gpushm_close(b), "close");
}

static void await(const char *name)
{
	must(gpushm_wait(c, name, WAIT_MS), "wait");
}

static void expect_event(struct gpushm_watch *w, enum gpushm_event_kind kind, const char *name)
{
	struct gpushm_event e = { 0 };

	SIZE(&e);
	must(gpushm_watch_next(w, WAIT_MS, &e), "watch");
	same(e.what == kind && strcmp(e.name, name) == 0, "the event");
}

static void watch(const char *name)
{
	struct gpushm_watch *w = NULL;

	must(gpushm_watch_new(c, &w), "watch");
	must(gpushm_watch_name(w, name), "watch");
	puts("watching");
	fflush(stdout);
	expect_event(w, GPUSHM_EVENT_PUBLISHED, name);
	expect_event(w, GPUSHM_EVENT_UNLINKED, name);
	gpushm_watch_free(w);
}

static void unlink_it(const char *name)
{
	must(gpushm_unlink(c, name), "unlink");
}

static void refuse_memory(const char *name)
{
#ifdef HAS_MEMORY
	struct gpushm_buffer *b = NULL;

	must(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), "open");
	same(gpushm_suspend(b, 0) == -ENOSYS && strstr(gpushm_error(), "upgrade"), "suspend");
	same(gpushm_buffer_suspended(b) == 0 && gpushm_resume(b, 0) == 0, "what is not suspended");
	same(gpushm_use(b) == 0 && gpushm_wanted(b) == 0, "use and wanted");
	same(gpushm_wanted_fd(c) == -ENOSYS, "wanted_fd");
	same(gpushm_ask_suspend(c, name, NULL) == -ENOSYS, "ask_suspend");
	same(gpushm_evict(c, name) == -ENOSYS, "evict");
	must(gpushm_close(b), "close");
#else
	errx(2, "0.2 can't do anything with the memory of %s", name);
#endif
}

/* ---- streams ---- */

static void create_stream(const char *name, uint32_t flags, struct gpushm_stream **ret)
{
	struct gpushm_array_spec specs[2];
	const struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
						 .arrays = specs,
						 .n_arrays = 2,
						 .slots = 4,
						 .flags = flags,
						 .limit_ms = GPUSHM_WAIT_FOREVER };

	describe(specs);
	must(gpushm_stream_create(c, name, &spec, NULL, ret), "create a stream");
}

static void put(struct gpushm_frame *f, uint64_t seq)
{
	struct gpushm_array *a = NULL;

	same(gpushm_frame_seq(f) == seq, "the frame's number");
	must(gpushm_frame_array(f, "more", &a), "array");
	fill(a, seq);
	must(gpushm_frame_publish(f, GPUSHM_ON_HOST, &seq, sizeof(seq)), "publish");
}

/* Frames wait for a reader, so that it may come at any time. */
static void produce(const char *name)
{
	struct gpushm_stream *s = NULL;
	struct gpushm_frame *f = NULL;

	create_stream(name, GPUSHM_KEEP_QUEUE, &s);
	for (uint64_t i = 1; i <= FRAMES; i++) {
		must(gpushm_frame_begin(s, GPUSHM_ON_HOST, WAIT_MS, &f), "begin");
		put(f, i);
	}
	gpushm_stream_close(s);
}

static void take(struct gpushm_frame *f, uint64_t seq)
{
	struct gpushm_array *a = NULL;
	size_t n = 0;
	const void *meta = gpushm_frame_meta(f, &n);

	same(gpushm_frame_seq(f) == seq, "the frame's number");
	same(n == sizeof(seq) && memcmp(meta, &seq, n) == 0, "the frame's metadata");
	must(gpushm_frame_array(f, "more", &a), "array");
	compare(a, seq);
	must(gpushm_frame_ok(f), "frame");
	must(gpushm_frame_release(f, GPUSHM_ON_HOST), "release");
}

static void follow(const char *name)
{
	struct gpushm_stream *s = NULL;
	struct gpushm_frame *f = NULL;

	must(gpushm_stream_open(c, name, GPUSHM_SHARE, 1, WAIT_MS, NULL, &s), "follow");
	for (uint64_t seq = 1; seq <= FRAMES; seq++) {
		must(gpushm_frame_next(s, GPUSHM_ON_HOST, WAIT_MS, &f), "next");
		take(f, seq);
	}
	same(gpushm_frame_next(s, GPUSHM_ON_HOST, WAIT_MS, &f) == -EPIPE, "the end");
	gpushm_stream_close(s);
}

/* ---- what goes on while daemons change ---- */

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

/* Whether there is a line, or stdin has ended. */
static bool told_to_end(int wait_ms)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&in, 1, wait_ms) > 0;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void probe(const char *name)
{
	uint64_t opens = 0, longest = 0;

	do {
		uint64_t from = now_us();

		check(name);
		if (opens++ == 0)
			say("works");
		if (now_us() - from > longest)
			longest = now_us() - from;
	} while (!told_to_end(1));
	printf("%llu opens, the longest of %.1f ms\n", (unsigned long long)opens,
	       (double)longest / 1000);
}

static void hold(const char *name)
{
	struct gpushm_buffer *b = NULL;

	must(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), "open");
	say("works");
	while (!told_to_end(10))
		compare_all(b, name);
	check(name);
	same(gpushm_buffer_lost(b) == 0, "the lease");
	compare_all(b, name);
	must(gpushm_close(b), "close");
	puts("kept");
}

static void outlive(const char *name)
{
	struct gpushm_buffer *b = NULL;
	struct gpushm_stat *st = NULL;

	must(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), "open");
	say("works");
	while (!told_to_end(10))
		compare_all(b, name);
	same(gpushm_stat(c, name, 0, 0, &st) < 0, "its daemon answers");
	puts(gpushm_error());
	compare_all(b, name);
	gpushm_close(b);
	gpushm_disconnect(c);
	must(gpushm_connect(socket_path, &c), "connect again");
	same(gpushm_stat(c, name, 0, 0, &st) == -ENOENT, "the other daemon has it");
}

static void suspend(const char *name)
{
#ifdef HAS_MEMORY
	struct gpushm_buffer *b = NULL;
	int r;

	must(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), "open");
	must(gpushm_suspend(b, 0), "suspend");
	say("works");
	told_to_end(-1);
	r = gpushm_resume(b, WAIT_MS);
	if (r >= 0)
		compare_all(b, name);
	printf("resume: %s\n", r < 0 ? gpushm_error() : "it is back");
	must(gpushm_close(b), "close");
#else
	errx(2, "0.2 can't suspend %s", name);
#endif
}

static void feed(const char *name)
{
	struct gpushm_stream *s = NULL;
	struct gpushm_frame *f = NULL;
	uint64_t i;

	create_stream(name, 0, &s);
	for (i = 1; !told_to_end(1); i++) {
		must(gpushm_frame_begin(s, GPUSHM_ON_HOST, WAIT_MS, &f), "begin");
		put(f, i);
		if (i == 1)
			say("works");
	}
	gpushm_stream_close(s);
	printf("%llu frames\n", (unsigned long long)i - 1);
}

static void drain(const char *name)
{
	struct gpushm_stream *s = NULL;
	struct gpushm_frame *f = NULL;
	uint64_t first = 0, n = 0;
	int r;

	must(gpushm_stream_open(c, name, GPUSHM_EVERY, 1, WAIT_MS, NULL, &s), "follow");
	while ((r = gpushm_frame_next(s, GPUSHM_ON_HOST, WAIT_MS, &f)) == 0) {
		if (n == 0)
			first = gpushm_frame_seq(f);
		take(f, first + n);
		if (n++ == 0)
			say("works");
	}
	same(r == -EPIPE, gpushm_error());
	gpushm_stream_close(s);
	printf("%llu frames, the last is %llu\n", (unsigned long long)n,
	       (unsigned long long)(first + n - 1));
}

static const struct {
	const char *name;
	void (*run)(const char *name);
} commands[] = {
	{ "make", make },	 { "check", check },
	{ "wait", await },	 { "watch", watch },
	{ "unlink", unlink_it }, { "produce", produce },
	{ "follow", follow },	 { "memory", refuse_memory },
	{ "probe", probe },	 { "hold", hold },
	{ "feed", feed },	 { "drain", drain },
	{ "suspend", suspend },	 { "outlive", outlive },
};

int main(int argc, char **argv)
{
	if (argc != 4)
		errx(2, "usage: side SOCKET COMMAND NAME");
	socket_path = argv[1];
	must(gpushm_connect(socket_path, &c), "connect");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (strcmp(commands[i].name, argv[2]) != 0)
			continue;
		commands[i].run(argv[3]);
		gpushm_disconnect(c);
		return 0;
	}
	errx(2, "no such command: %s", argv[2]);
}
