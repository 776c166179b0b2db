/* SPDX-License-Identifier: MIT
 *
 * How long after a client's death another client gets its memory. The pool has space for one
 * buffer: the daemon replies to a waiting CREATE when the dead client's memory is free. It may not
 * do so before the pidfd reports that the process is gone: that is the floor.
 */
#include "client/gpushm_query.h"
#include "tests/bench/bench.h"

#include "proto/base/own.h"
#include "tests/bench/gpu.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#define SIZE (2u << 20)
#define NAME "bench/victim"
#define WAIT_MS 60000

/* args: socket, kind. Holds the buffer until it is killed. */
static int hold(char **args)
{
	struct gpushm_buffer *buffer = NULL;
	struct gpushm *c = NULL;
	char line[8];

	if (strcmp(args[1], "vmm") == 0 && !gpu_open())
		return 1;
	if (gpushm_connect(args[0], &c) < 0 ||
	    gpushm_open(c, NAME, GPUSHM_READ, 0, NULL, &buffer) < 0) {
		fprintf(stderr, "gpushm-bench: %s\n", gpushm_error());
		return 1;
	}
	puts("has it");
	return !fgets(line, sizeof(line), stdin);
}

const struct role holder_role = { "holder", hold };

static void start_victim(struct bench *b, const char *kind, const char *pool,
			 struct role_process *ret)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = pool,
					   .wait_ms = WAIT_MS };
	struct gpushm_buffer *buffer = NULL;
	char line[16];

	bench_ok(gpushm_create(b->c, NAME, SIZE, &o, &buffer), "CREATE");
	bench_ok(gpushm_publish(buffer, GPUSHM_SEALED), "PUBLISH");
	role_start(ret, holder_role.name, (const char *[]){ b->supervisor.socket, kind, NULL });
	role_read_line(ret, line, sizeof(line));
	bench_ok(gpushm_close(buffer), "CLOSE");
	bench_ok(gpushm_unlink(b->c, NAME), "UNLINK");
}

/* Kills the holder and records when each of the two fds became readable, in ms from the kill. */
static void kill_and_watch(int pidfd, int answer, pid_t pid, struct sample *gone,
			   struct sample *reusable)
{
	struct pollfd p[] = { { pidfd, POLLIN, 0 }, { answer, POLLIN, 0 } };
	double start = now_us();

	kill(pid, SIGKILL);
	for (int left = 2; left > 0;) {
		if (poll(p, 2, WAIT_MS) <= 0)
			ck_abort_msg("a dead client's memory does not come back");
		for (int i = 0; i < 2; i++) {
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			sample_add(i == 0 ? gone : reusable, (now_us() - start) / 1e3);
			p[i].fd = -1;
			left--;
		}
	}
}

static void round_of(struct bench *b, const char *kind, const char *pool, struct sample *gone,
		     struct sample *reusable)
{
	struct gpushm_status *st = NULL;
	struct role_process victim;
	_cleanup_(close_fd) int pidfd = -1;
	uint64_t lease;

	start_victim(b, kind, pool, &victim);
	pidfd = (int)syscall(SYS_pidfd_open, victim.pid, 0);
	raw_request(&b->raw,
		    REQUEST(CREATE, Create, create, BYTES(name, "bench/heir"), BYTES(pool, pool),
			    SET(size_bytes, SIZE), SET(wait_ms, WAIT_MS)));
	/* The reply to STATUS shows that the CREATE has arrived: it waits now. */
	bench_ok(gpushm_status(b->c, &st), "STATUS");
	gpushm_free(st);
	kill_and_watch(pidfd, b->raw.socket, victim.pid, gone, reusable);
	role_wait(&victim);
	ck_assert_int_eq(raw_receive(&b->raw), 0);
	lease = b->raw.reply->attach->lease;
	bench_call(&b->raw, REQUEST(CLOSE, Close, close, SET(lease, lease)));
}

static void watch(struct bench *b, const char *kind)
{
	_cleanup_(sample_done) struct sample gone = { 0 }, reusable = { 0 };
	struct row row = { .unit = "ms",
			   .floor_is = "the pidfd is readable",
			   .reach = REACH_DIFFERENCE,
			   .at_most = 5 };
	char pool[16];

	snprintf(row.id, sizeof(row.id), "death_%s", kind);
	snprintf(row.what, sizeof(row.what), "a client is killed: its memory is reusable, %s",
		 kind);
	snprintf(pool, sizeof(pool), "tiny-%s", kind);
	if (!options_want(&b->o, row.id))
		return;
	for (unsigned i = 0; i < (b->o.quick ? 3u : 20u); i++)
		round_of(b, kind, pool, &gone, &reusable);
	row.ours = sample_figures(&reusable);
	row.floor = sample_figures(&gone);
	rows_add(&b->rows, &row);
}

void death_run(struct bench *b)
{
	if (bench_has(b, GPUSHM_HOST))
		watch(b, "host");
	if (bench_has(b, GPUSHM_VMM))
		watch(b, "vmm");
}
