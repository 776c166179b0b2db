/* SPDX-License-Identifier: MIT
 *
 * Readers that are killed, one after the other, while their producer goes on. A reader makes its
 * context and joins before it gets its order, so that some are always ready: one at a time holds a
 * frame, and up to dying_max others have been killed and are not gone yet.
 */
#include "tests/gpu/hunt.h"

#include "proto/base/own.h"
#include "tests/lib/hostile_reader.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct driver gpu;
CUstream stream;
bool fake;

int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ---- frames ---- */

struct gpushm_stream *make(const char *name, const char *pool, uint32_t slots)
{
	struct gpushm_stream *s = NULL;

	ok(stream_make(c, name, pool, slots, &s));
	hostile_reader_join(d.socket, name);
	return s;
}

void fill_and_publish(struct gpushm_frame *f, CUstream on)
{
	uint64_t seq = gpushm_frame_seq(f);

	ck_assert_int_eq(gpu.memset_d32_async(frame_words(f), (unsigned)seq, FRAME_WORDS, on), 0);
	ok(gpushm_frame_publish(f, on, &seq, sizeof(seq)));
}

void put(struct gpushm_stream *s, CUstream on)
{
	struct gpushm_frame *f = NULL;

	ok(gpushm_frame_begin(s, on, 10000, &f));
	fill_and_publish(f, on);
}

/* Returns false if no slot is free now, or the GPU has not finished the last frame: it may wait for
 * a reader. */
static bool try_put(struct gpushm_stream *s)
{
	struct gpushm_frame *f = NULL;
	int r;

	if (gpu.stream_query(stream) == CUDA_ERROR_NOT_READY)
		return false;
	r = gpushm_frame_begin(s, stream, 0, &f);
	if (r == -EAGAIN)
		return false;
	ck_assert_msg(r == 0, "%s", gpushm_error());
	fill_and_publish(f, stream);
	return true;
}

/* ---- readers that are killed ---- */

void hunt_open_page(struct hunt *h)
{
	h->page = memfd_create("witnesses", 0); /* the victims inherit it */
	ck_assert_int_eq(ftruncate(h->page, 4096), 0);
	h->witnesses = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, h->page, 0);
	ck_assert(h->witnesses != MAP_FAILED);
}

void hunt_close_page(struct hunt *h)
{
	munmap(h->witnesses, 4096);
	close(h->page);
}

void hunt_begin(struct hunt *h, const char *name, unsigned wanted)
{
	h->wanted = wanted < KILLS_MAX ? wanted : KILLS_MAX;
	h->n_victims = fake ? 2 : READY_MAX;
	h->dying_max = fake ? 1 : DYING_MAX;
	h->s = make(name, "vmm", HUNT_SLOTS);
	hunt_open_page(h);
}

void victim_start(struct hunt *h, struct victim *v, const char *name)
{
	char fd[24], cell[24];

	snprintf(fd, sizeof(fd), "%d", h->page);
	snprintf(cell, sizeof(cell), "%td", v - h->victims);
	*v = (struct victim){ .state = PREPARING,
			      .release = h->releases && h->started % 2,
			      .witness = &h->witnesses[v - h->victims] };
	v->witness->seen = v->witness->started = 0;
	role_start(&v->process, "victim",
		   (const char *[]){ d.socket, name, h->follow, v->release ? "1" : "0", fd, cell,
				     NULL });
	v->pidfd = (int)syscall(SYS_pidfd_open, v->process.pid, 0);
	ck_assert_int_ge(v->pidfd, 0);
	h->started++;
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

void victim_expect(struct victim *v, const char *line)
{
	char said[64];

	role_read_line(&v->process, said, sizeof(said));
	ck_assert_str_eq(said, line);
}

bool victim_is_gone(const struct victim *v)
{
	return is_readable(v->pidfd);
}

void victim_end(struct victim *v)
{
	role_wait(&v->process);
	close_fd(&v->pidfd);
	v->state = NONE;
}

static void set_state(struct hunt *h, struct victim *v, enum victim_state state)
{
	v->state = state;
	v->since = now_us();
	v->at = h->published;
}

static bool has(const struct hunt *h, enum victim_state state, unsigned n)
{
	for (unsigned i = 0; i < h->n_victims; i++)
		n -= h->victims[i].state == state && n > 0;
	return n == 0;
}

static void kill_victim(struct hunt *h, struct victim *v)
{
	set_state(h, v, DYING);
	h->kills++;
	if (fake)
		role_write_line(&v->process, "die");
	else
		ck_assert_int_eq(kill(v->process.pid, SIGKILL), 0);
}

static bool has_suspect(void)
{
	struct gpushm_status *status = NULL;
	bool suspect;

	ok(gpushm_status(c, &status));
	suspect = status->suspects > 0;
	gpushm_free(status);
	return suspect;
}

/* Over the fake driver the process ends when the daemon has seen its socket closed, and the
 * producer has been all around the slots since, or waits for that very reader. */
static void end_fake(struct hunt *h, struct victim *v)
{
	double now = now_us();

	if (!v->noticed && (v->witness->seen || has_suspect())) {
		v->noticed = true;
		v->at = h->published;
		v->since = now;
	}
	if (v->witness->seen || now - v->since > 5e6 ||
	    (v->noticed &&
	     (h->published >= v->at + 2 * HUNT_SLOTS || (v->release && now - v->since > 20e3))))
		close_fd(&v->process.to);
}

static void bury(struct hunt *h, struct victim *v, const char *name)
{
	h->gone_ms[h->gone++] = (now_us() - v->since) / 1e3;
	victim_end(v);
	h->overwritten += v->witness->seen != 0;
	if (h->started < h->wanted)
		victim_start(h, v, name);
}

static void look_at(struct hunt *h, struct victim *v, const char *name)
{
	bool spoke = v->state < DYING && v->state > NONE && is_readable(v->process.from);

	if (v->state == PREPARING && spoke) {
		victim_expect(v, "ready");
		set_state(h, v, READY);
	} else if (v->state == READY && !has(h, TAKING, 1) && !has(h, HOLDING, 1) &&
		   !has(h, DYING, h->dying_max) && h->published > 0) {
		role_write_line(&v->process, "take");
		set_state(h, v, TAKING);
	} else if (v->state == TAKING && spoke) {
		victim_expect(v, "holding");
		set_state(h, v, HOLDING);
	} else if (v->state == HOLDING && v->witness->started &&
		   (h->published >= v->at + 3 || now_us() - v->since > 5e3)) {
		kill_victim(h, v);
	} else if (v->state == DYING && fake && v->process.to >= 0) {
		end_fake(h, v);
	} else if (v->state == DYING && victim_is_gone(v)) {
		bury(h, v, name);
	}
}

void hunt(struct hunt *h, const char *name, double seconds)
{
	double end = now_us() + seconds * 1e6;
	bool busy = true;

	while (h->started < h->n_victims && h->started < h->wanted)
		victim_start(h, &h->victims[h->started], name);
	while (busy && (now_us() < end || has(h, DYING, 1) || has(h, HOLDING, 1))) {
		if (try_put(h->s))
			h->published++;
		else
			usleep(50);
		busy = false;
		for (unsigned i = 0; i < h->n_victims; i++) {
			look_at(h, &h->victims[i], name);
			busy = busy || h->victims[i].state != NONE;
		}
	}
}

void hunt_end(struct hunt *h)
{
	for (unsigned i = 0; i < h->n_victims; i++) {
		if (h->victims[i].state == NONE)
			continue;
		kill(h->victims[i].process.pid, SIGKILL);
		victim_end(&h->victims[i]);
	}
	h->s = gpushm_stream_close(h->s);
	hunt_close_page(h);
}

void hunt_report(struct hunt *h, const char *rule, const char *checked)
{
	qsort(h->gone_ms, h->gone, sizeof(*h->gone_ms), by_size);
	puts("figure: | a lease ends with | readers killed in mid-kernel | frames that a dead "
	     "reader's kernel saw overwritten | frames that a living reader checked, and those "
	     "with a foreign byte | frames published | kill to the process's end, ms: median, "
	     "most |");
	printf("figure: | %s | %u | %u | %s | %u | %.1f, %.1f |\n", rule, h->kills, h->overwritten,
	       checked, h->published, h->gone ? h->gone_ms[h->gone / 2] : 0,
	       h->gone ? h->gone_ms[h->gone - 1] : 0);
}
