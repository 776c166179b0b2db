/* SPDX-License-Identifier: MIT
 *
 * The progress bar. It waits a second before it shows itself, draws ten times a second at most,
 * asks for the terminal's width each time (it may be resized), and leaves an empty line behind,
 * so that a log of a terminal session is not full of bars.
 */
#include "client/ctl/progress.h"

#include "client/ctl/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000u
#define EVERY (SECOND / 10)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

void progress_start(struct progress *p, const char *label, uint64_t total, bool quiet)
{
	*p = (struct progress){ .label = label, .total = total, .started = now_ns() };
	p->on = !quiet && total && output_terminal(STDERR_FILENO);
	p->drawn = p->started + SECOND - EVERY;
}

void progress_format(const struct progress *p, uint64_t now, size_t columns, char *buf, size_t size)
{
	double elapsed = (double)(now - p->started) / SECOND;
	double part = (double)p->done / (double)p->total;
	double rate = elapsed > 0 ? (double)p->done / elapsed : 0;
	char done[24], total[24], speed[24], tail[112];
	uint64_t left = rate > 0 ? (uint64_t)((double)(p->total - p->done) / rate) : 0;
	int label = (int)(columns / 4), width;

	snprintf(tail, sizeof(tail), "] %3d%% %s of %s, %s/s, %" PRIu64 ":%02" PRIu64,
		 (int)(100 * part), output_size(p->done, false, done, sizeof(done)),
		 output_size(p->total, false, total, sizeof(total)),
		 output_size((uint64_t)rate, false, speed, sizeof(speed)), left / 60, left % 60);
	width = (int)columns - label - (int)strlen(tail) - 3;
	if (width < 5) {
		snprintf(buf, size, "%.*s", (int)columns - 1, tail + 2);
		return;
	}
	snprintf(buf, size, "%-*.*s [%-*.*s%s", label, label, p->label, width, (int)(width * part),
		 "################################################"
		 "################################################",
		 tail);
}

static void draw(struct progress *p, uint64_t now)
{
	struct winsize w;
	char line[256];
	size_t columns = 80;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col)
		columns = w.ws_col;
	if (columns > 160)
		columns = 160;
	progress_format(p, now, columns, line, sizeof(line));
	fprintf(stderr, "\r%s\033[K", line);
	fflush(stderr);
	p->drawn = now;
	p->shown = true;
}

void progress_add(struct progress *p, uint64_t bytes)
{
	uint64_t now;

	p->done += bytes;
	if (!p->on)
		return;
	now = now_ns();
	if (now - p->started >= SECOND && now - p->drawn >= EVERY)
		draw(p, now);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = p->on = false;
}
