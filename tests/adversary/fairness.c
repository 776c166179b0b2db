/* SPDX-License-Identifier: MIT
 *
 * The honest client sends an OPEN every PACE_US microseconds and waits for the reply. A reply that
 * comes late holds up the next OPENs, which would have been late, too: each of them counts as one
 * more sample (Tene, "coordinated omission").
 */
#include "tests/adversary/fairness.h"

#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "tests/adversary/hostile.h"
#include "tests/lib/census.h"
#include "tests/lib/raw.h"
#include "tests/lib/role.h"

#include <check.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HONEST = 65531, HOSTILE = 65532 };

#define PACE_US 1000u
#define CONNECT_EVERY 10u
#define SAMPLES_MAX 1000000u
#define CONFIG "[pool host]\nkind=host\nsize=1G\n"
#define DAEMON_NICE (-20)
#define SAMPLE_MS 50
#define FDS 50000u

/* ---- the honest client ---- */

struct samples {
	double *us; /* SAMPLES_MAX of them */
	unsigned n;
};

static void add(struct samples *s, double us)
{
	for (; us > 0 && s->n < SAMPLES_MAX; us -= PACE_US)
		s->us[s->n++] = us;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(struct samples *s, double q)
{
	qsort(s->us, s->n, sizeof(*s->us), by_value);
	return s->n ? s->us[(unsigned)(q * (s->n - 1))] : 0;
}

static double us_since(uint64_t ns)
{
	return (double)(clock_monotonic_ns() - ns) / 1000;
}

static double time_open(struct raw *r)
{
	unsigned char frame[FRAME_MAX];
	size_t len = raw_pack(REQUEST(OPEN, Open, open, BYTES(name, "honest")), frame);
	uint64_t start = clock_monotonic_ns();
	double us;

	if (raw_send(r, frame, len) < 0 || raw_receive(r) != 0)
		exit(3);
	us = us_since(start);
	if (raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, r->reply->attach->lease))) != 0)
		exit(4);
	return us;
}

static double time_connect(void)
{
	uint64_t start = clock_monotonic_ns();
	struct raw r;
	double us;

	raw_greet(&r, getenv("HONEST_SOCKET"));
	us = us_since(start);
	raw_close(&r);
	return us;
}

static void measure(struct raw *r, unsigned ms)
{
	static double opens[SAMPLES_MAX], connects[SAMPLES_MAX];
	struct samples open = { opens, 0 }, connect = { connects, 0 };
	uint64_t end = clock_monotonic_ns() + ms * UINT64_C(1000000);

	for (unsigned i = 0; clock_monotonic_ns() < end; i++) {
		add(&open, time_open(r));
		if (i % CONNECT_EVERY == 0)
			connect.us[connect.n++] = time_connect();
		usleep(PACE_US);
	}
	printf("%u %.1f %.1f %.1f %.1f %.1f\n", open.n, quantile(&open, 0.5), quantile(&open, 0.9),
	       quantile(&open, 0.99), quantile(&open, 1), quantile(&connect, 0.99));
}

static void run_on(pid_t process, int processor)
{
	cpu_set_t set;

	if (processor < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	sched_setaffinity(process, sizeof(set), &set);
}

/* socket, processor; then a line for each measurement: its ms. */
int fairness_honest_role(char **args)
{
	const struct sched_param urgent = { .sched_priority = 1 };
	struct raw r;
	char line[32];

	run_on(0, atoi(args[1]));
	sched_setscheduler(0, SCHED_FIFO, &urgent);
	setenv("HONEST_SOCKET", args[0], 1);
	if (setgroups(0, NULL) < 0 || setresgid(HONEST, HONEST, HONEST) < 0 ||
	    setresuid(HONEST, HONEST, HONEST) < 0)
		return 1;
	raw_greet(&r, args[0]);
	raw_publish(&r, raw_create(&r, "honest", 4096), GPUSHM__PROTO__STATE__STATE_SHARED);
	while (fgets(line, sizeof(line), stdin))
		measure(&r, (unsigned)atoi(line));
	raw_close(&r);
	return 0;
}

static struct latency ask(struct role_process *honest, unsigned ms)
{
	struct latency l = { 0 };
	char line[128];

	snprintf(line, sizeof(line), "%u", ms);
	role_write_line(honest, line);
	role_read_line(honest, line, sizeof(line));
	ck_assert_int_eq(sscanf(line, "%u %lf %lf %lf %lf %lf", &l.n, &l.p50, &l.p90, &l.p99,
				&l.max, &l.connect_p99),
			 6);
	return l;
}

/* ---- the daemon ---- */

/* A connection takes two descriptors of the daemon. Returns the limit. */
static rlim_t raise_fd_limit(void)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max < FDS ? limit.rlim_max : FDS;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return limit.rlim_cur;
}

static long anonymous_kib(pid_t pid)
{
	char path[32], line[256];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* Since Linux 6.2 the size of this folder is the number of descriptors. */
static unsigned descriptors(pid_t pid)
{
	char path[32];
	struct stat st = { 0 };

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	return stat(path, &st) == 0 ? (unsigned)st.st_size : 0;
}

static void sample(pid_t pid, struct attacked *a)
{
	long kib = anonymous_kib(pid);
	unsigned fds = descriptors(pid);

	a->rss_max = kib > a->rss_max ? kib : a->rss_max;
	a->fds_max = fds > a->fds_max ? fds : a->fds_max;
}

/* Samples the daemon from a process of its own, which prints the largest values at its end. */
static pid_t start_sampling(pid_t daemon, int to)
{
	pid_t pid = fork();
	struct attacked a = { 0 };

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	for (;;) {
		sample(daemon, &a);
		if (pwrite(to, &a, sizeof(a), 0) != sizeof(a))
			_exit(1);
		poll(NULL, 0, SAMPLE_MS);
	}
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static unsigned long requests(struct gpushm *conn)
{
	struct gpushm_status *st = NULL;
	unsigned long n;

	ck_assert_int_eq(gpushm_status(conn, &st), 0);
	n = (unsigned long)st->requests;
	gpushm_status_free(st);
	return n;
}

static void attack_and_measure(const char *attack, const struct fairness_options *o,
			       struct daemon *d, struct role_process *honest, int processor,
			       struct attacked *ret)
{
	struct role_process hostile;
	struct gpushm *conn = NULL;
	char uid[16], n[16], cpu[16], line[32];
	uint64_t start;
	unsigned long before;

	snprintf(uid, sizeof(uid), "%d", HOSTILE);
	snprintf(n, sizeof(n), "%u", o->connections);
	snprintf(cpu, sizeof(cpu), "%d", processor);
	ck_assert_int_eq(gpushm_connect(d->socket, &conn), 0);
	role_start(&hostile, "hostile", (const char *[]){ d->socket, uid, attack, n, cpu, NULL });
	role_read_line(&hostile, line, sizeof(line));
	before = requests(conn);
	start = clock_monotonic_ns();
	ret->beside = ask(honest, o->beside_ms);
	ret->requests = (unsigned long)((double)(requests(conn) - before) * 1e6 / us_since(start));
	ck_assert_int_eq(kill(hostile.pid, 0), 0);
	kill(hostile.pid, SIGKILL);
	role_wait(&hostile);
	gpushm_disconnect(conn);
}

void fairness_measure(const char *attack, const struct fairness_options *o, struct attacked *ret)
{
	const struct daemon_options options = { .program = o->program,
						.max_fds = (unsigned)raise_fd_limit() };
	bool spare = sysconf(_SC_NPROCESSORS_ONLN) > 1;
	struct role_process honest;
	struct attacked largest = { 0 };
	struct daemon d;
	char cpu[16];
	int shared = memfd_create("samples", MFD_CLOEXEC);
	pid_t sampler;

	*ret = (struct attacked){ 0 };
	daemon_start_with(&d, CONFIG, &options);
	run_on(d.pid, spare ? 0 : -1);
	setpriority(PRIO_PROCESS, (id_t)d.pid, DAEMON_NICE);
	snprintf(cpu, sizeof(cpu), "%d", spare ? 1 : -1);
	role_start(&honest, "honest", (const char *[]){ d.socket, cpu, NULL });
	ret->idle = ask(&honest, o->idle_ms);
	ret->rss_before = anonymous_kib(d.pid);
	ret->fds_before = descriptors(d.pid);
	sampler = start_sampling(d.pid, shared);
	attack_and_measure(attack, o, &d, &honest, spare ? 1 : -1, ret);
	end(sampler);
	ck_assert_int_eq(pread(shared, &largest, sizeof(largest), 0), sizeof(largest));
	ret->rss_max = largest.rss_max;
	ret->fds_max = largest.fds_max;
	close_fd(&shared);
	role_finish(&honest);
	ret->lines = daemon_log_count(&d, "\n");
	daemon_stop(&d);
}

double fairness_limit(const struct attacked *a)
{
	return a->idle.p99 * 10 > 3000 ? a->idle.p99 * 10 : 3000;
}
