/* SPDX-License-Identifier: MIT
 *
 * Checks the plans: all, or those whose names are given; --deep: the large ones, too. --first: ends
 * at the first violation, which is what is to be found in a protocol with a fault.
 */
#include "tests/model/streams/explore.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define EVERY .follow = STREAM_EVERY, .max_held = 1
#define LATEST .follow = STREAM_LATEST, .max_held = 1
#define SHARE .follow = STREAM_SHARE, .max_held = 1
#define ANY_DIES .mortal = 7
#define PRODUCER_DIES .mortal = 1 << PRODUCER
#define READER_DIES .mortal = 1 << READER
#define READERS_DIE .mortal = 3 << READER

static const struct plan plans[] = {
	{ .name = "share-2", .slots = 2, .frames = 1, .reader = { { SHARE }, { SHARE } } },
	{ .name = "every-gpu-2",
	  .slots = 2,
	  .frames = 2,
	  .gpu = true,
	  .deaths = 1,
	  READER_DIES,
	  .reader = { { EVERY, .gpu = true } } },
	{ .name = "latest-gpu-dies",
	  .slots = 2,
	  .frames = 2,
	  .gpu = true,
	  .deaths = 1,
	  PRODUCER_DIES,
	  .reader = { { LATEST, .gpu = true } } },
	{ .name = "every-1", .slots = 2, .frames = 4, .reader = { { EVERY } } },
	{ .name = "latest-1", .slots = 2, .frames = 4, .reader = { { LATEST } } },
	{ .name = "share-1", .slots = 2, .frames = 4, .reader = { { SHARE } } },
	{ .name = "every-1-slots-3", .slots = 3, .frames = 5, .reader = { { EVERY } } },
	{ .name = "latest-1-slots-3", .slots = 3, .frames = 4, .reader = { { LATEST } } },
	{ .name = "every",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .reader = { { EVERY }, { EVERY } } },
	{ .name = "latest",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .reader = { { LATEST }, { LATEST } } },
	{ .name = "share",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .reader = { { SHARE }, { SHARE } } },
	{ .name = "every-3",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .reader = { { EVERY }, { EVERY } } },
	{ .name = "every-latest",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .reader = { { EVERY }, { LATEST } } },
	{ .name = "share-latest",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .reader = { { SHARE }, { LATEST } } },
	{ .name = "every-held-2",
	  .slots = 3,
	  .frames = 4,
	  .reader = { { .follow = STREAM_EVERY, .max_held = 2 } } },
	{ .name = "latest-held-2",
	  .slots = 3,
	  .frames = 4,
	  .reader = { { .follow = STREAM_LATEST, .max_held = 2 } } },
	{ .name = "every-gpu",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .gpu = true,
	  .reader = { { EVERY, .gpu = true } } },
	{ .name = "latest-gpu",
	  .slots = 2,
	  .frames = 2,
	  .gpu = true,
	  .reader = { { LATEST, .gpu = true } } },
	{ .name = "latest-gpu-3",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .gpu = true,
	  .reader = { { LATEST, .gpu = true } } },
	{ .name = "share-gpu",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .gpu = true,
	  .reader = { { SHARE, .gpu = true } } },
	{ .name = "every-gpu-host", .slots = 2, .frames = 3, .gpu = true, .reader = { { EVERY } } },
	{ .name = "every-host-gpu", .slots = 2, .frames = 3, .reader = { { EVERY, .gpu = true } } },
	{ .name = "latest-host-gpu",
	  .slots = 2,
	  .frames = 3,
	  .reader = { { LATEST, .gpu = true } } },
	{ .name = "every-death",
	  .slots = 2,
	  .frames = 3,
	  .deaths = 1,
	  ANY_DIES,
	  .reader = { { EVERY } } },
	{ .name = "latest-death",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .deaths = 1,
	  ANY_DIES,
	  .reader = { { LATEST } } },
	{ .name = "share-death-1",
	  .deep = true,
	  .slots = 2,
	  .frames = 1,
	  .deaths = 1,
	  READER_DIES,
	  .reader = { { SHARE }, { SHARE } } },
	{ .name = "share-both-die",
	  .deep = true,
	  .slots = 2,
	  .frames = 1,
	  .deaths = 2,
	  .mortal = 1 << PRODUCER | 1 << READER,
	  .reader = { { SHARE }, { SHARE } } },
	{ .name = "share-once-death",
	  .deep = true,
	  .slots = 2,
	  .frames = 1,
	  .deaths = 1,
	  READER_DIES,
	  .delivery = STREAM_AT_MOST_ONCE,
	  .reader = { { SHARE }, { SHARE } } },
	{ .name = "every-adopt",
	  .slots = 2,
	  .frames = 3,
	  .deaths = 1,
	  PRODUCER_DIES,
	  .adopt = true,
	  .reader = { { EVERY } } },
	{ .name = "latest-adopt",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .deaths = 1,
	  PRODUCER_DIES,
	  .adopt = true,
	  .reader = { { LATEST } } },
	{ .name = "every-gpu-death",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .gpu = true,
	  .deaths = 1,
	  ANY_DIES,
	  .reader = { { EVERY, .gpu = true } } },
	{ .name = "latest-gpu-adopt",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .gpu = true,
	  .deaths = 1,
	  PRODUCER_DIES,
	  .adopt = true,
	  .reader = { { LATEST, .gpu = true } } },
	{ .name = "every-late", .slots = 2, .frames = 3, .reader = { { EVERY, .late = true } } },
	{ .name = "latest-late", .slots = 2, .frames = 3, .reader = { { LATEST, .late = true } } },
	{ .name = "share-late", .slots = 2, .frames = 3, .reader = { { SHARE, .late = true } } },
	{ .name = "every-leaves",
	  .slots = 2,
	  .frames = 3,
	  .reader = { { EVERY, .leaves_after = 1, .returns = true } } },
	{ .name = "latest-leaves",
	  .slots = 2,
	  .frames = 3,
	  .reader = { { LATEST, .leaves_after = 1, .returns = true } } },
	{ .name = "share-leaves",
	  .deep = true,
	  .slots = 2,
	  .frames = 1,
	  .reader = { { SHARE, .leaves_after = 1, .returns = true }, { SHARE } } },
	{ .name = "every-drop",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .drops = 1,
	  .reader = { { EVERY } } },
	{ .name = "latest-drop",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .drops = 1,
	  .reader = { { LATEST } } },
	{ .name = "latest-gpu-drop",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .gpu = true,
	  .drops = 1,
	  .reader = { { LATEST, .gpu = true } } },
	{ .name = "every-wraps",
	  .slots = 2,
	  .frames = 3,
	  .newest = UINT64_MAX - 1,
	  .reader = { { EVERY } } },
	{ .name = "latest-wraps",
	  .slots = 2,
	  .frames = 3,
	  .newest = UINT64_MAX - 1,
	  .reader = { { LATEST } } },
	{ .name = "share-wraps",
	  .slots = 2,
	  .frames = 3,
	  .newest = UINT64_MAX - 1,
	  .reader = { { SHARE } } },
	{ .name = "keep-queue",
	  .slots = 2,
	  .frames = 3,
	  .keep_queue = true,
	  .reader = { { SHARE, .late = true } } },
	{ .name = "restart-every",
	  .deep = true,
	  .slots = 2,
	  .frames = 2,
	  .deaths = 1,
	  ANY_DIES,
	  .restarts = 1,
	  .adopt = true,
	  .reader = { { EVERY } } },
	{ .name = "redo",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .keep_queue = true,
	  .deaths = 1,
	  READER_DIES,
	  .reader = { { SHARE }, { SHARE, .heir = true } } },
	{ .name = "lost",
	  .deep = true,
	  .slots = 2,
	  .frames = 3,
	  .keep_queue = true,
	  .deaths = 1,
	  READER_DIES,
	  .delivery = STREAM_AT_MOST_ONCE,
	  .reader = { { SHARE }, { SHARE, .heir = true } } },
	{ .name = "every-gpu-dies",
	  .slots = 2,
	  .frames = 3,
	  .deep = true,
	  .gpu = true,
	  .deaths = 1,
	  PRODUCER_DIES,
	  .reader = { { EVERY, .gpu = true } } },
	{ .name = "gpu-reader-dies",
	  .slots = 2,
	  .frames = 3,
	  .deep = true,
	  .gpu = true,
	  .deaths = 1,
	  READER_DIES,
	  .reader = { { LATEST, .gpu = true } } },
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_chosen(const struct plan *p, int argc, char **argv, bool deep)
{
	bool named = false;

	for (int i = 1; i < argc; i++) {
		named |= argv[i][0] != '-';
		if (!strcmp(argv[i], p->name))
			return true;
	}
	return !named && (deep || !p->deep);
}

static bool has_option(int argc, char **argv, const char *option)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], option))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	bool first = has_option(argc, argv, "--first"), deep = has_option(argc, argv, "--deep");
	unsigned n = 0, bad = 0;

	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		double begun = now();
		struct exploration e;

		if (!is_chosen(&plans[i], argc, argv, deep) || (first && bad > 0))
			continue;
		e = explore_plan(&plans[i]);
		n++;
		bad += e.violation != NULL;
		printf("%-28s %9" PRIu64 " states %10" PRIu64 " steps %6" PRIu64
		       " ends  depth %4u %6.2f s%s%s\n",
		       plans[i].name, e.states, e.steps, e.ends, e.deepest, now() - begun,
		       e.violation ? "  VIOLATION: " : "", e.violation ? e.violation : "");
		fflush(stdout);
	}
	printf("%u%%: Checks: %u, Failures: %u, Errors: 0\n", n ? 100 * (n - bad) / n : 0, n, bad);
	return n == 0 || bad > 0;
}
