/* SPDX-License-Identifier: MIT
 *
 * The daemon is killed and started again while eight clients continue to read: 16 GiB of vmm, a
 * mempool and pinned memory. Contents are compared before and after, word by word; at the end GPU
 * memory is back where it began. Prints the time from the kill to the first replies, in parts: the
 * supervisor's (a stand-in for systemd here) and the daemon's. Over the fake driver the same with
 * less memory.
 */
#include "proto/base/own.h"
#include "tests/gpu/fixture.h"
#include "tests/gpu/reader.h"
#include "tests/lib/raw.h"
#include "tests/lib/result.h"
#include "tests/lib/supervisor.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define READERS 8
#define BUFFERS 4096
#define BUFFERS_FAKE 3000 /* 6 of its 8 GiB */
/* Two readings of the whole GPU's memory may differ by so much while daemon and test do nothing. */
#define NOISE_MIB 8
/* The step in which a mempool takes memory from the GPU. */
#define MEMPOOL_STEP_MIB 32

static const char *const pools[] = { "gpu0", "pinned", "gpu0-mempool" };

static struct supervisor k;
static struct gpushm *conn;
static struct role_process readers[READERS];

static void start_daemon(void)
{
	supervisor_init(&k, "");
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &conn) == 0, "%s", gpushm_error());
}

static void end_daemon(void)
{
	conn = gpushm_disconnect(conn);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
}

/* ---- the clock of a restart ---- */

struct times {
	double kill, dead, started, opened, vmm, mempool; /* us */
};

static void close_lease(struct raw *r, uint64_t lease)
{
	int code = raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, lease)));

	ck_assert_msg(code == 0, "CLOSE: %s", r->text);
}

static void create(struct raw *r, const char *pool)
{
	int code = raw_call(r, REQUEST(CREATE, Create, create, BYTES(name, "small"),
				       BYTES(pool, pool), SET(size_bytes, 4096)));

	ck_assert_msg(code == 0, "%s: %s", pool, r->text);
}

static double create_and_close(struct raw *r, const char *pool)
{
	double at;

	create(r, pool);
	at = now_us();
	close_lease(r, r->reply->attach->lease);
	return at;
}

/* Kills the daemon and starts the next one; a new client then tries to connect as any other. */
static struct times crash(const char *name)
{
	uint64_t lease;
	struct times t;
	struct raw r;

	t.kill = now_us();
	supervisor_end(&k, SIGKILL);
	t.dead = now_us();
	supervisor_spawn(&k);
	t.started = now_us();
	raw_greet(&r, k.socket);
	lease = raw_open(&r, name);
	t.opened = now_us();
	t.vmm = create_and_close(&r, "gpu0");
	t.mempool = create_and_close(&r, "gpu0-mempool");
	supervisor_await(&k);
	close_lease(&r, lease);
	raw_close(&r);
	return t;
}

static void report(const struct times *t, const char *what)
{
	printf("figure: | %s | %.1f ms | %.1f ms | %.1f ms | %.1f ms | %.1f ms |\n", what,
	       (t->dead - t->kill) / 1e3, (t->started - t->dead) / 1e3,
	       (t->opened - t->started) / 1e3, (t->vmm - t->started) / 1e3,
	       (t->mempool - t->started) / 1e3);
}

static void head(void)
{
	puts("figure: | kept | SIGKILL to the old process's end | to the new process's start | "
	     "from "
	     "there to the first answered OPEN | to the first CREATE in vmm | in a mempool |");
}

/* ---- readers ---- */

static void ask_all(const char *line)
{
	for (size_t i = 0; i < READERS && line; i++)
		role_write_line(&readers[i], line);
	for (size_t i = 0; i < READERS; i++)
		reader_ask(&readers[i], NULL);
}

static void ask_about_neighbours(void)
{
	char line[32];

	for (unsigned i = 0; i < READERS; i++) {
		snprintf(line, sizeof(line), "neighbour %u", (i + 1) % READERS);
		role_write_line(&readers[i], line);
	}
	ask_all(NULL);
}

static void start_readers(void)
{
	const struct reader_load real = { 2 * GIB, 64 * MIB, MIB, 64 };
	const struct reader_load fake = { 4 * MIB, 2 * MIB, 64 << 10, 8 };

	for (unsigned i = 0; i < READERS; i++)
		reader_start(&readers[i], k.socket, i, pools, gpu_is_fake() ? &fake : &real);
	ask_all(NULL);
}

/* ---- pools ---- */

static struct gpushm_pool **look(size_t *ret_n)
{
	struct gpushm_pool **all = NULL;

	ck_assert_msg(gpushm_pools(conn, &all, ret_n) == 0, "%s", gpushm_error());
	return all;
}

static uint64_t used_bytes(void)
{
	size_t n;
	_cleanup_(free_result) struct gpushm_pool **all = look(&n);
	uint64_t used = 0;

	for (size_t i = 0; i < n; i++)
		used += all[i]->used_bytes;
	return used;
}

static unsigned mempools(void)
{
	size_t n;
	_cleanup_(free_result) struct gpushm_pool **all = look(&n);
	unsigned found = 0;

	for (size_t i = 0; i < n; i++)
		found += strcmp(all[i]->name, "gpu0-mempool") == 0;
	return found;
}

static void expect_gpu_memory(long at_most, const char *when)
{
	long now = gpu_used_mib();

	if (now < 0)
		return;
	printf("figure: GPU memory in use %s: %ld MiB, %ld MiB were expected\n", when, now,
	       at_most);
	ck_assert_int_le(now, at_most + NOISE_MIB);
}

/* The memory of a daemon that has used its mempool once, including its context. */
static long used_by_a_daemon_alone(void)
{
	struct raw r;
	long used;

	start_daemon();
	raw_greet(&r, k.socket);
	create_and_close(&r, "gpu0-mempool");
	raw_close(&r);
	ck_assert_int_eq(gpushm_flush(conn, NULL), 0);
	used = gpu_used_mib();
	end_daemon();
	return used;
}

/* The readers' buffers are in the old pool; new buffers go to another one. */
static void expect_successor(void)
{
	uint32_t old, fresh;
	uint64_t lease;
	struct raw r;

	ck_assert_uint_eq(mempools(), 2);
	raw_greet(&r, k.socket);
	lease = raw_open(&r, "0/mempool/0");
	old = r.reply->attach->pool;
	close_lease(&r, lease);
	create(&r, "gpu0-mempool");
	fresh = r.reply->attach->pool;
	close_lease(&r, r.reply->attach->lease);
	ck_assert_uint_gt(fresh, old);
	raw_close(&r);
}

START_TEST(buffers_of_eight_clients_survive_crashes_and_leak_nothing)
{
	long nobody = gpu_used_mib(), alone = used_by_a_daemon_alone(), full;
	struct times t;

	start_daemon();
	start_readers();
	full = gpu_used_mib();
	ask_all("check");
	head();
	for (int i = 0; i < 3; i++) {
		t = crash("0/vmm");
		report(&t, "eight clients' buffers");
		ask_all("check");
		ask_about_neighbours();
		expect_successor();
		expect_gpu_memory(full + MEMPOOL_STEP_MIB, "after a restart, with all of it");
	}
	ask_all("drop");
	for (size_t i = 0; i < READERS; i++)
		role_finish(&readers[i]);
	client_await(used_bytes() == 0);
	ck_assert_int_eq(gpushm_flush(conn, NULL), 0);
	client_await(mempools() == 1);
	/* A stored fd keeps the pool's memory: only the fd of the last pool is stored. */
	ck_assert_uint_eq(supervisor_count(&k, 'p'), 1);
	expect_gpu_memory(alone, "when all has been freed");
	end_daemon();
	expect_gpu_memory(nobody, "after the daemon's end");
}
END_TEST

START_TEST(thousands_of_buffers_survive_crashes)
{
	const unsigned n = gpu_is_fake() ? BUFFERS_FAKE : BUFFERS;
	struct gpushm_buffer **all = calloc(n, sizeof(struct gpushm_buffer *)), *b = NULL;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	char name[32], what[32];
	struct times t;
	unsigned got;

	start_daemon();
	snprintf(what, sizeof(what), "%u vmm buffers", n);
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "many/%u", i);
		ck_assert_msg(gpushm_create(conn, name, 2 * MIB, &o, &all[i]) == 0, "%s",
			      gpushm_error());
		ck_assert_int_eq(gpushm_write(all[i], 0, &i, 4), 0);
		ck_assert_int_eq(gpushm_publish(all[i], GPUSHM_SEALED), 0);
	}
	head();
	for (int i = 0; i < 3; i++) {
		t = crash("many/0");
		report(&t, what);
	}
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "many/%u", i);
		ck_assert_int_eq(gpushm_close(all[i]), 0);
		ck_assert_msg(gpushm_open(conn, name, GPUSHM_READ, 0, NULL, &b) == 0, "%s",
			      gpushm_error());
		ck_assert_int_eq(gpushm_read(b, 0, &got, 4), 0);
		ck_assert_uint_eq(got, i);
		ck_assert_int_eq(gpushm_close(b), 0);
		ck_assert_int_eq(gpushm_unlink(conn, name), 0);
	}
	ck_assert_uint_eq(used_bytes(), 0);
	end_daemon();
	free(all);
}
END_TEST

static const struct role roles[] = { { "reader", reader_role } };

int main(int argc, char **argv)
{
	const TTest *const tests[] = { buffers_of_eight_clients_survive_crashes_and_leak_nothing,
				       thousands_of_buffers_survive_crashes };
	struct rlimit files;

	/* The supervisor holds every stored fd, and one more of each while it starts the daemon. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	return gpu_main_bare(argc, argv, "gpu_restart", roles, array_size(roles), tests,
			     array_size(tests));
}
