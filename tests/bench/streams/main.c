/* SPDX-License-Identifier: MIT
 *
 * Streams beside the other ways to hand frames from process to process, in one run and in turns:
 *
 *	streams [--quick] [--mps] [--host] [--only TEXT] [--rounds N] [--json FILE]
 *
 * It starts a daemon of its own and three processes that stay, and lets them do each row in each
 * way, round after round. --mps: only the rows that MPS changes, with an MPS daemon of its own.
 * --only: rows whose id contains one of the texts, which have commas between them. --host: without
 * a GPU. A way that can't run here is left out, with the reason.
 */
#include "proto/base/own.h"
#include "tests/bench/streams/crew.h"
#include "tests/bench/streams/gpu.h"
#include "tests/bench/streams/report.h"
#include "tests/bench/streams/side.h"
#include "tests/lib/daemon.h"

#include <check.h>
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HD (1080u * 1920u * 3u) /* bytes of a 1080p picture */
#define ROWS_MOST 64

static struct {
	bool quick, mps, host;
	const char *only, *json;
	unsigned rounds;
} o;

static bool failed; /* a row of gpushm's has no figures */
static struct crew crew;
static struct helper torch;
static struct report report;
static struct comparison rows[ROWS_MOST];

/* ---- what is compared ---- */

struct way {
	const char *id, *label;
	enum lane_kind lane; /* 0: the Python program */
	enum { SLEEPS, SPINS_200US, SPINS_1MS, POLLS, POLLS_ARRAY } reader;
};

#define STREAM                                          \
	{                                               \
		"stream", "gpushm", LANE_STREAM, SLEEPS \
	}
#define STREAM_SPIN                                                           \
	{                                                                     \
		"stream_spin", "gpushm, the reader polls", LANE_STREAM, POLLS \
	}
#define STREAM_200US                                                                    \
	{                                                                               \
		"stream_200us", "gpushm, the reader spins for 200 us before it sleeps", \
			LANE_STREAM, SPINS_200US                                        \
	}
#define STREAM_1MS                                                                               \
	{                                                                                        \
		"stream_1ms", "gpushm, the reader spins for 1 ms before it sleeps", LANE_STREAM, \
			SPINS_1MS                                                                \
	}
#define WORDS                                                 \
	{                                                     \
		"words", "the bare words", LANE_WORDS, SLEEPS \
	}
#define EVENTS                                                                        \
	{                                                                             \
		"events", "IPC events and a word that is polled", LANE_EVENTS, SLEEPS \
	}
#define PIPES                                                                   \
	{                                                                       \
		"pipes", "IPC events and messages, by hand", LANE_PIPES, SLEEPS \
	}
#define TORCH                                                     \
	{                                                         \
		"torch", "torch.multiprocessing.Queue", 0, SLEEPS \
	}
#define NAME                                                               \
	{                                                                  \
		"name", "gpushm, a name for each frame", LANE_NAME, SLEEPS \
	}

/* A row; its ways end with one without an id. The first is gpushm's stream. */
struct plan {
	const char *id, *what, *unit;
	enum reach reach;
	double bound;
	const char *beside;
	struct job job;
	struct way ways[WAYS_MAX];
};

#define FLOW(n, d, b, w, f)                                                                   \
	{                                                                                     \
		.kind = JOB_FLOW, .gpu = true, .sides = n, .depth = d, .bytes = b, .work = w, \
		.frames = f                                                                   \
	}
#define RATE_WAYS                            \
	{                                    \
		STREAM, WORDS, EVENTS, TORCH \
	}
#define COST(k, on_gpu, n)                                                                      \
	{                                                                                       \
		.kind = k, .gpu = on_gpu, .sides = 2, .work = 4096, .frames = 300, .readers = n \
	}

/* Without a GPU. */
static const struct plan host_plans[] = {
	{ "hop",
	  "host pool: a hop, both sides poll",
	  "us",
	  REACH_VALUE,
	  0.5,
	  "",
	  { JOB_HOP, .sides = 2, .depth = 8, .frames = 20000, .bytes = 1 << 20 },
	  { { "stream", "gpushm", LANE_STREAM, POLLS },
	    { "stream_array", "gpushm, with the array of each frame", LANE_STREAM, POLLS_ARRAY },
	    { "words", "two words in shared memory", LANE_WORDS, POLLS },
	    { "socket", "a Unix socket that carries an fd", LANE_SOCKET, POLLS } } },
	{ "wake",
	  "host pool: a hop, the reader sleeps",
	  "us",
	  REACH_VALUE,
	  15,
	  "",
	  { JOB_WAKE, .sides = 2, .depth = 8, .frames = 400, .bytes = 1 << 20 },
	  { STREAM,
	    STREAM_200US,
	    STREAM_1MS,
	    { "futex", "a word and a futex", LANE_FUTEX, SLEEPS },
	    { "socket", "a Unix socket that carries an fd", LANE_SOCKET, SLEEPS } } },
	{ "pipeline_host",
	  "host pool: three processes, 1080p",
	  "frames/s",
	  REACH_NOTHING,
	  0,
	  "",
	  { JOB_FLOW, .sides = 3, .depth = 8, .bytes = HD, .work = HD, .frames = 100 },
	  { STREAM, { "futex", "a ring by hand, futexes", LANE_FUTEX, SLEEPS }, NAME } },
	{ "cost_host_1",
	  "host pool: begin and publish, 1 reader",
	  "us",
	  REACH_VALUE,
	  2,
	  "",
	  COST(JOB_COST, false, 1),
	  { STREAM } },
	{ "cost_host_8",
	  "host pool: begin and publish, 8 readers",
	  "us",
	  REACH_VALUE,
	  5,
	  "",
	  COST(JOB_COST, false, 8),
	  { STREAM } },
	{ "cost_host_64",
	  "host pool: begin and publish, 64 readers",
	  "us",
	  REACH_VALUE,
	  12,
	  "",
	  COST(JOB_COST, false, 64),
	  { STREAM } },
};

/* With one; these are measured under MPS, too. */
static const struct plan gpu_plans[] = {
	{ "frame",
	  "6.2 MB are filled, the reader's host has 4 bytes",
	  "us",
	  REACH_VALUE,
	  22,
	  "",
	  { JOB_FRAME, .gpu = true, .sides = 2, .depth = 4, .bytes = HD, .work = HD,
	    .frames = 200 },
	  { STREAM,
	    STREAM_SPIN,
	    STREAM_200US,
	    STREAM_1MS,
	    { "words", "the bare words, the GPU waits already", LANE_WORDS, SLEEPS },
	    { "futex", "the host waits for its GPU, futex", LANE_FUTEX, SLEEPS },
	    TORCH } },
	{ "rate_1", "4 KiB kernels, depth 1 (a stream has 2 slots)", "frames/s", REACH_RATE, 0.95,
	  "words", FLOW(2, 1, 4096, 4096, 1500), RATE_WAYS },
	{ "rate_2", "4 KiB kernels, depth 2", "frames/s", REACH_RATE, 0.95, "words",
	  FLOW(2, 2, 4096, 4096, 3000), RATE_WAYS },
	{ "rate_8", "4 KiB kernels, depth 8", "frames/s", REACH_RATE, 0.95, "words",
	  FLOW(2, 8, 4096, 4096, 10000), RATE_WAYS },
	{ "rate_64", "4 KiB kernels, depth 64", "frames/s", REACH_RATE, 0.95, "words",
	  FLOW(2, 64, 4096, 4096, 20000), RATE_WAYS },
	{ "rate_8_full",
	  "6.2 MB filled and copied, depth 8",
	  "frames/s",
	  REACH_RATE,
	  0.95,
	  "words",
	  FLOW(2, 8, HD, HD, 5000),
	  { STREAM, WORDS, EVENTS, TORCH } },
	{ "pipeline",
	  "three processes, 1080p",
	  "frames/s",
	  REACH_RATE,
	  2,
	  "pipes",
	  FLOW(3, 8, HD, HD, 3000),
	  { STREAM, WORDS, EVENTS, PIPES, NAME, TORCH } },
	{ "latency",
	  "three processes, 1080p, 240 frames/s: decode to draw",
	  "us",
	  REACH_RATIO,
	  0.5,
	  "pipes",
	  { JOB_FLOW, .gpu = true, .sides = 3, .depth = 8, .bytes = HD, .work = HD, .frames = 240,
	    .per_second = 240 },
	  { STREAM, STREAM_SPIN, STREAM_200US, WORDS, EVENTS, PIPES, NAME, TORCH } },
};

/* Not under MPS. */
static const struct plan cost_plans[] = {
	{ "cost_1",
	  "GPU: begin and publish, 1 reader that has released",
	  "us",
	  REACH_VALUE,
	  2,
	  "",
	  COST(JOB_COST, true, 1),
	  { STREAM } },
	{ "cost_8",
	  "GPU: begin and publish, 8 readers that have released",
	  "us",
	  REACH_VALUE,
	  5,
	  "",
	  COST(JOB_COST, true, 8),
	  { STREAM } },
	{ "cost_64",
	  "GPU: begin and publish, 64 readers that have released",
	  "us",
	  REACH_VALUE,
	  12,
	  "",
	  COST(JOB_COST, true, 64),
	  { STREAM } },
	{ "cost_waits_1",
	  "GPU: begin and publish, the GPU waits for 1 reader",
	  "us",
	  REACH_VALUE,
	  2,
	  "",
	  COST(JOB_COST_WAITS, true, 1),
	  { STREAM } },
	{ "cost_waits_8",
	  "GPU: begin and publish, the GPU waits for 8 readers",
	  "us",
	  REACH_VALUE,
	  5,
	  "",
	  COST(JOB_COST_WAITS, true, 8),
	  { STREAM } },
	{ "cost_waits_64",
	  "GPU: begin and publish, the GPU waits for 64 readers",
	  "us",
	  REACH_VALUE,
	  12,
	  "",
	  COST(JOB_COST_WAITS, true, 64),
	  { STREAM } },
	{ "calls_1",
	  "the driver alone: 1 wait and a write",
	  "us",
	  REACH_NOTHING,
	  0,
	  "",
	  COST(JOB_COST, true, 1),
	  { WORDS } },
	{ "calls_8",
	  "the driver alone: a batch of 8 waits and a write",
	  "us",
	  REACH_NOTHING,
	  0,
	  "",
	  COST(JOB_COST, true, 8),
	  { WORDS } },
	{ "calls_64",
	  "the driver alone: a batch of 64 waits and a write",
	  "us",
	  REACH_NOTHING,
	  0,
	  "",
	  COST(JOB_COST, true, 64),
	  { WORDS } },
};

static const struct death {
	const char *id, *what, *follow;
	unsigned slots;
	double per_second;
	bool spare; /* slots are left: the producer should not wait at all */
} deaths[] = {
	{ "death", "a reader is killed, 4 slots: the producer's wait ends", "every", 4, 1000,
	  false },
	{ "death_latest", "a `latest` reader is killed, 4 slots: longest wait", "latest", 4, 1000,
	  true },
	{ "death_spare", "a reader is killed, 64 slots, 240/s: longest wait", "every", 64, 240,
	  true },
};

/* ---- measuring ---- */

/* --only has texts with commas between them. */
static bool wanted(const char *id)
{
	char texts[256], *left = texts, *text;
	bool found = !o.only;

	snprintf(texts, sizeof(texts), "%s", o.only ? o.only : "");
	while (!found && (text = strsep(&left, ",")))
		found = strstr(id, text);
	return found && report.n < ROWS_MOST;
}

static bool ask_torch(const struct job *job, struct sample *ret)
{
	char line[128];

	snprintf(line, sizeof(line), "%s %u %u %llu %llu %u %g",
		 job->kind == JOB_FRAME ? "frame" : "flow", job->sides, job->depth,
		 (unsigned long long)job->bytes, (unsigned long long)job->work, job->frames,
		 job->per_second);
	return helper_ask(&torch, line, ret);
}

static void measure(const struct job *template, const struct way *way, struct result *r)
{
	struct job job = *template;

	if (r->error[0])
		return;
	job.lane = way->lane;
	job.spin = way->reader == POLLS || way->reader == POLLS_ARRAY;
	job.spin_us = way->reader == SPINS_200US ? 200 : way->reader == SPINS_1MS ? 1000 : 0;
	job.array = way->reader == POLLS_ARRAY;
	if (way->lane ? crew_run(&crew, &job, &r->sample) : ask_torch(&job, &r->sample))
		return;
	snprintf(r->error, sizeof(r->error), "%.255s", way->lane ? crew.error : torch.error);
}

static struct job shortened(const struct job *job)
{
	struct job j = *job;

	if (o.quick && j.frames > 40)
		j.frames = 40;
	if (o.quick && j.bytes > 1 << 20)
		j.bytes = j.work = 1 << 20;
	return j;
}

/* The file has all rows so far, also if a later one hangs. */
static void write_json(void)
{
	FILE *f = o.json ? fopen(o.json, "we") : NULL;

	report.all = rows;
	if (!f)
		return;
	report_write(&report, f);
	fclose(f);
}

static void finish(struct comparison *c)
{
	comparison_finish(c);
	write_json();
	failed = failed || (strcmp(c->ways[0].way, "stream") == 0 && c->ways[0].figures.n == 0);
}

static void compare(const struct plan *p)
{
	struct comparison *c = &rows[report.n];
	struct job job = shortened(&p->job);

	if (!wanted(p->id))
		return;
	report.n++;
	*c = (struct comparison){ .id = p->id,
				  .what = p->what,
				  .unit = p->unit,
				  .reach = p->reach,
				  .bound = p->bound,
				  .beside = p->beside };
	for (; c->n_ways < WAYS_MAX && p->ways[c->n_ways].id; c->n_ways++) {
		c->ways[c->n_ways].way = p->ways[c->n_ways].id;
		c->ways[c->n_ways].label = p->ways[c->n_ways].label;
	}
	for (unsigned round = 0; round < o.rounds; round++)
		for (size_t i = 0; i < c->n_ways; i++)
			measure(&job, &p->ways[i], &c->ways[i]);
	finish(c);
}

static void compare_deaths(const struct death *d, bool on_gpu)
{
	struct comparison *c = &rows[report.n];
	const struct job job = { .kind = JOB_PAUSE,
				 .lane = LANE_STREAM,
				 .gpu = on_gpu,
				 .sides = 1,
				 .depth = d->slots,
				 .bytes = 4096,
				 .work = 4096,
				 .per_second = d->per_second };
	struct sample after = { 0 }, longest = { 0 }, gone = { 0 };

	if (!wanted(d->id))
		return;
	report.n++;
	*c = (struct comparison){ .id = d->id,
				  .what = d->what,
				  .unit = "ms",
				  .reach = REACH_VALUE,
				  .bound = d->spare ? 1 : 5,
				  .beside = "",
				  .n_ways = 2 };
	c->ways[0].way = "stream";
	c->ways[0].label = d->spare ? "gpushm" : "gpushm, from the pidfd on";
	c->ways[1].way = "pidfd";
	c->ways[1].label = "from the signal to the pidfd";
	for (unsigned i = 0; i < (o.quick ? 2u : 10u) && !c->ways[0].error[0]; i++)
		if (!crew_kill_reader(&crew, &job, d->follow, &gone, &after, &longest))
			snprintf(c->ways[0].error, sizeof(c->ways[0].error), "%.255s", crew.error);
	c->ways[0].sample = d->spare ? longest : after;
	c->ways[1].sample = gone;
	sample_done(d->spare ? &after : &longest);
	finish(c);
}

/* ---- all of it ---- */

static void run_mps(const char *folder, const char *what)
{
	char command[256];

	setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
	setenv("CUDA_MPS_LOG_DIRECTORY", folder, 1);
	snprintf(command, sizeof(command),
		 what[0] == '-' ? "nvidia-cuda-mps-control %s"
				: "echo %s | nvidia-cuda-mps-control",
		 what);
	if (system(command) != 0)
		errx(1, "%s: failed", command);
}

static void run_plans(const struct daemon *d)
{
	for (size_t i = 0; !o.mps && i < array_size(host_plans); i++)
		compare(&host_plans[i]);
	if (report.gpu)
		helper_start(&torch, "tests/bench/streams/torch_queue.py", d->socket, "gpu");
	for (size_t i = 0; report.gpu && i < array_size(gpu_plans); i++)
		compare(&gpu_plans[i]);
	for (size_t i = 0; report.gpu && !o.mps && i < array_size(cost_plans); i++)
		compare(&cost_plans[i]);
	for (size_t i = 0; !o.mps && i < array_size(deaths); i++)
		compare_deaths(&deaths[i], report.gpu != NULL);
}

static void measure_all(const struct daemon *d)
{
	const char *memory = report.gpu ? "gpu" : "host";

	if (!crew_start(&crew, d->socket, memory))
		ck_abort_msg("the processes do not start: %s", crew.error);
	run_plans(d);
	helper_stop(&torch);
	crew_stop(&crew);
}

/* The daemons of tests/lib fail a Check test, so this is one; it runs in this process. */
START_TEST(everything_runs)
{
	struct daemon d;

	daemon_start(&d,
		     report.gpu ? "[pool gpu]\nkind=vmm\n[pool host]\nkind=host\n"
				: "[pool host]\nkind=host\n",
		     NULL);
	measure_all(&d);
	daemon_stop(&d);
	ck_assert_msg(!failed, "a row has no figures of gpushm's");
}
END_TEST

static int run(void)
{
	Suite *s = suite_create("streams");
	TCase *t = tcase_create("streams");
	SRunner *runner;
	int bad;

	tcase_set_timeout(t, 0);
	tcase_add_test(t, everything_runs);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	bad = srunner_ntests_failed(runner);
	srunner_free(runner);
	return bad > 0;
}

static void parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0)
			o.quick = true;
		else if (strcmp(argv[i], "--mps") == 0)
			o.mps = true;
		else if (strcmp(argv[i], "--host") == 0)
			o.host = true;
		else if (i + 1 < argc && strcmp(argv[i], "--only") == 0)
			o.only = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--rounds") == 0)
			o.rounds = (unsigned)atoi(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "--json") == 0)
			o.json = argv[++i];
		else
			errx(2, "usage: streams [--quick] [--mps] [--host] [--only TEXT] "
				"[--rounds N] [--json FILE]");
	}
	if (o.quick)
		o.rounds = 1;
	else if (o.rounds == 0)
		o.rounds = o.mps ? 2 : 3;
}

int main(int argc, char **argv)
{
	char folder[] = "/tmp/streams-mps-XXXXXX";
	int status;

	side_dispatch(argc, argv);
	parse(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	if (o.mps) {
		if (!mkdtemp(folder))
			err(1, "%s", folder);
		run_mps(folder, "-d");
	}
	report = (struct report){ .gpu = o.host ? NULL : gpu_probe(),
				  .mps = o.mps,
				  .quick = o.quick };
	report.fake = report.gpu && !gpu.kernels;
	status = run();
	if (report.n == 0)
		warnx("no row was measured: --only %s has none here", o.only ? o.only : "");
	if (o.mps)
		run_mps(folder, "quit");
	return status || report.n == 0;
}
