/* SPDX-License-Identifier: MIT
 *
 * An honest client sends a request, waits for the reply, and sleeps for its pace. A reply that
 * comes late holds up the next requests, which would have been late, too: each of them counts as
 * one more sample (Tene, "coordinated omission").
 */
#include "tests/adversary/fairness.h"

#include "client/gpushm_query.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "tests/adversary/hostile.h"
#include "tests/lib/census.h"
#include "tests/lib/raw.h"
#include "tests/lib/role.h"
#include "tests/lib/user.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HONEST = 65531, HOSTILE = 65532 };

#define SAMPLES_MAX 1000000u
#define CONFIG "[pool host]\nkind=host\nsize=1G\n"
#define PART_MS 500u
#define REST_MS 5000
#define SAMPLE_MS 50
#define FDS 50000u

/* ---- who runs where ---- */

static void run_on(pid_t process, int processor)
{
	cpu_set_t set;

	if (processor < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	sched_setaffinity(process, sizeof(set), &set);
}

static void make_urgent(pid_t thread, int priority)
{
	const struct sched_param param = { .sched_priority = priority };

	sched_setscheduler(thread, SCHED_FIFO, &param);
}

static bool has_spare_processor(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) > 1;
}

/* All threads are urgent: the loop waits when another one is not running in the middle of
 * uv_async_send(), or with a lock. */
void fairness_place_daemon(pid_t daemon)
{
	bool spare = has_spare_processor();
	char path[32];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", daemon);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		pid_t thread = (pid_t)atoi(entry->d_name);

		if (thread <= 0)
			continue;
		run_on(thread, !spare ? -1 : thread == daemon ? 0 : 1);
		make_urgent(thread, 1);
	}
	closedir(dir);
}

void fairness_place_client(pid_t client)
{
	run_on(client, has_spare_processor() ? 1 : -1);
	make_urgent(client, 2);
}

/* ---- the honest clients ---- */

struct samples {
	double *us; /* SAMPLES_MAX of them */
	unsigned n;
};

static void add(struct samples *s, double us, double pace_us)
{
	for (; us > 0 && s->n < SAMPLES_MAX; us -= pace_us)
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

static const char *socket_path;
static struct raw opener;
static int echo = -1; /* a socket to the process that echoes */

static void prepare_open(void)
{
	raw_greet(&opener, socket_path);
	raw_publish(&opener, raw_create(&opener, "honest", 4096),
		    GPUSHM__PROTO__STATE__STATE_SHARED);
}

static uint64_t time_open(void)
{
	unsigned char frame[FRAME_MAX];
	size_t len = raw_pack(REQUEST(OPEN, Open, open, BYTES(name, "honest")), frame);
	uint64_t start = clock_monotonic_ns(), ns;
	struct raw *r = &opener;

	if (raw_send(r, frame, len) < 0 || raw_receive(r) != 0)
		exit(3);
	ns = clock_monotonic_ns() - start;
	if (raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, r->reply->attach->lease))) != 0)
		exit(4);
	return ns;
}

static uint64_t time_connect(void)
{
	uint64_t start = clock_monotonic_ns(), ns;
	struct raw r;

	raw_greet(&r, socket_path);
	ns = clock_monotonic_ns() - start;
	raw_close(&r);
	return ns;
}

static void echo_all(int socket)
{
	char byte;

	run_on(0, has_spare_processor() ? 0 : -1);
	make_urgent(0, 2);
	while (recv(socket, &byte, 1, 0) == 1)
		if (send(socket, &byte, 1, MSG_NOSIGNAL) != 1)
			break;
	_exit(0);
}

/* On the daemon's processor, and before it: it waits for the machine, but not for the daemon. */
static void prepare_control(void)
{
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		exit(5);
	if (fork() == 0) {
		close(sockets[0]);
		echo_all(sockets[1]);
	}
	close(sockets[1]);
	echo = sockets[0];
}

static uint64_t time_control(void)
{
	uint64_t start = clock_monotonic_ns();
	char byte = 0;

	if (send(echo, &byte, 1, MSG_NOSIGNAL) != 1 || recv(echo, &byte, 1, 0) != 1)
		exit(6);
	return clock_monotonic_ns() - start;
}

static const struct client {
	const char *name;
	double pace_us;
	void (*prepare_as_root)(void), (*prepare)(void); /* or NULL */
	uint64_t (*once)(void);				 /* ns */
} clients[CLIENTS] = {
	[OPENS] = { "opens", 1000, NULL, prepare_open, time_open },
	[CONNECTS] = { "connects", 10000, NULL, NULL, time_connect },
	[CONTROL] = { "control", 1000, prepare_control, NULL, time_control },
};

static void measure(const struct client *c, struct samples *s, unsigned ms)
{
	uint64_t end = clock_monotonic_ns() + ms * UINT64_C(1000000);

	while (clock_monotonic_ns() < end) {
		add(s, (double)c->once() / 1000, c->pace_us);
		usleep((useconds_t)c->pace_us);
	}
	puts("measured");
}

static void report(struct samples *s)
{
	printf("%u %.1f %.1f %.1f %.1f\n", s->n, quantile(s, 0.5), quantile(s, 0.9),
	       quantile(s, 0.99), quantile(s, 1));
	s->n = 0;
}

static const struct client *find_client(const char *name)
{
	for (int i = 0; i < CLIENTS; i++)
		if (strcmp(clients[i].name, name) == 0)
			return &clients[i];
	exit(2);
}

/* socket, name of the client; then lines: the ms of a measurement, or 0 to print and forget all. */
int fairness_honest_role(char **args)
{
	static double us[SAMPLES_MAX];
	const struct client *c = find_client(args[1]);
	struct samples samples = { us, 0 };
	char line[32];

	socket_path = args[0];
	if (c->prepare_as_root)
		c->prepare_as_root();
	if (!user_become(HONEST, HONEST))
		exit(1);
	if (c->prepare)
		c->prepare();
	while (fgets(line, sizeof(line), stdin)) {
		if (atoi(line))
			measure(c, &samples, (unsigned)atoi(line));
		else
			report(&samples);
	}
	return 0;
}

/* ---- the measurement ---- */

static void start_clients(struct role_process all[CLIENTS], const char *path)
{
	for (int i = 0; i < CLIENTS; i++) {
		role_start(&all[i], "honest", (const char *[]){ path, clients[i].name, NULL });
		fairness_place_client(all[i].pid);
	}
}

static void measure_all(struct role_process all[CLIENTS], unsigned ms)
{
	char line[128];

	snprintf(line, sizeof(line), "%u", ms);
	for (int i = 0; i < CLIENTS; i++)
		role_write_line(&all[i], line);
	for (int i = 0; i < CLIENTS; i++)
		role_read_line(&all[i], line, sizeof(line));
}

static void read_latencies(struct role_process all[CLIENTS], struct latency ret[CLIENTS])
{
	char line[128];

	for (int i = 0; i < CLIENTS; i++) {
		struct latency *l = &ret[i];

		role_write_line(&all[i], "0");
		role_read_line(&all[i], line, sizeof(line));
		ck_assert_int_eq(sscanf(line, "%u %lf %lf %lf %lf", &l->n, &l->p50, &l->p90,
					&l->p99, &l->max),
				 5);
	}
}

static bool sleeps(pid_t process)
{
	char path[32], state = 'R';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", process);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'R';
	if (f)
		fclose(f);
	return state == 'S';
}

/* Waits until the daemon has served all that was sent, for some seconds at most. */
static void await_rest(pid_t daemon)
{
	unsigned asleep = 0;

	for (int waited = 0; waited < REST_MS && asleep < 5; waited += 10) {
		poll(NULL, 0, 10);
		asleep = sleeps(daemon) ? asleep + 1 : 0;
	}
}

/* Measures for some time in all. Between two parts the hostile processes (0: none) are stopped, and
 * the daemon comes to rest: a real-time process that does not sleep for 0.95 s is interrupted for
 * 0.05 s (sched(7)). */
static void measure_beside(struct role_process all[CLIENTS], pid_t hostile, pid_t daemon,
			   unsigned ms, struct latency ret[CLIENTS])
{
	for (unsigned done = 0; done < ms; done += PART_MS) {
		if (hostile)
			kill(-hostile, SIGCONT);
		measure_all(all, PART_MS);
		if (hostile)
			kill(-hostile, SIGSTOP);
		await_rest(daemon);
	}
	read_latencies(all, ret);
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
	gpushm_free(st);
	return n;
}

static void attack_and_measure(const char *attack, const struct fairness_options *o,
			       struct daemon *d, struct role_process all[CLIENTS],
			       struct attacked *ret)
{
	struct role_process hostile;
	struct gpushm *conn = NULL;
	char uid[16], n[16], cpu[16], line[32];
	unsigned long before;

	snprintf(uid, sizeof(uid), "%d", HOSTILE);
	snprintf(n, sizeof(n), "%u", o->connections);
	snprintf(cpu, sizeof(cpu), "%d", has_spare_processor() ? 1 : -1);
	ck_assert_int_eq(gpushm_connect(d->socket, &conn), 0);
	role_start(&hostile, "hostile", (const char *[]){ d->socket, uid, attack, n, cpu, NULL });
	role_read_line(&hostile, line, sizeof(line));
	before = requests(conn);
	measure_beside(all, hostile.pid, d->pid, o->beside_ms, ret->beside);
	ret->requests = (requests(conn) - before) * 1000 / o->beside_ms;
	ck_assert_int_eq(kill(hostile.pid, 0), 0);
	kill(-hostile.pid, SIGKILL);
	role_wait(&hostile);
	gpushm_disconnect(conn);
}

/* Two measurements at a time would measure each other. */
static int lock_machine(void)
{
	int fd = open("/tmp/gpushm-fairness.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	return fd;
}

void fairness_measure(const char *attack, const struct fairness_options *o, struct attacked *ret)
{
	const struct daemon_options options = { .program = o->program,
						.max_fds = (unsigned)raise_fd_limit() };
	struct role_process all[CLIENTS];
	struct attacked largest = { 0 };
	struct daemon d;
	int shared = memfd_create("samples", MFD_CLOEXEC), lock = lock_machine();
	pid_t sampler;

	*ret = (struct attacked){ 0 };
	daemon_start_with(&d, CONFIG, &options);
	fairness_place_daemon(d.pid);
	start_clients(all, d.socket);
	measure_beside(all, 0, d.pid, o->idle_ms, ret->idle);
	ret->rss_before = anonymous_kib(d.pid);
	ret->fds_before = descriptors(d.pid);
	sampler = start_sampling(d.pid, shared);
	attack_and_measure(attack, o, &d, all, ret);
	end(sampler);
	ck_assert_int_eq(pread(shared, &largest, sizeof(largest), 0), sizeof(largest));
	ret->rss_max = largest.rss_max;
	ret->fds_max = largest.fds_max;
	close_fd(&shared);
	for (int i = 0; i < CLIENTS; i++)
		role_finish(&all[i]);
	ret->lines = daemon_log_count(&d, "\n");
	daemon_stop(&d);
	close_fd(&lock);
}

double fairness_limit_us(const struct attacked *a)
{
	double idle = a->idle[OPENS].p99;

	return idle * 10 > 3000 ? idle * 10 : 3000;
}
