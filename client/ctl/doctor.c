/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl doctor`: tests what this machine can do, and says why not. It concludes nothing from a
 * version number if it can test the feature itself. It writes the report line by line, because
 * starting a driver can take a second, or hang: then the last line shows where.
 *
 * The tests of the system are in doctor_system.c, those of the driver in doctor_cuda.c, that of
 * NIXL in doctor_nixl.c; this file has the report, the daemon and the pools. In each pool it makes
 * a buffer of 4 KiB, fills and publishes it, and lets another process read it: `gpushmctl get`,
 * because sharing with another process is what pools are for. The buffer is transient: it ends with
 * this process's lease.
 */
#include "client/ctl/doctor.h"

#include "client/ctl/model/model.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"
#include "proto/socket_path.h"
#include "proto/words.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TRIAL_BYTES 4096

extern char **environ;

/* ---- the report ---- */

static const char *const words[] = { "ok", "warn", "fail" };
static const enum table_style styles[] = { TABLE_GOOD, TABLE_WARN, TABLE_BAD };

static void say_json(struct doctor *d, enum finding finding, const char *check, const char *todo,
		     const char *text)
{
	json_open(&d->json, NULL, '{');
	json_string(&d->json, "check", check);
	json_string(&d->json, "result", words[finding]);
	json_string(&d->json, "what", text);
	json_string(&d->json, "todo", todo);
	json_close(&d->json, '}');
}

static void say_text(struct doctor *d, enum finding finding, const char *check, const char *todo,
		     const char *text)
{
	if (d->ctl->quiet && finding == FINDING_OK)
		return;
	table_text(stdout, d->ctl->colour ? TABLE_COLOUR : 0, styles[finding], "%-4s",
		   words[finding]);
	printf("  %-14s %s\n", check, text);
	if (todo)
		printf("%22s-> %s\n", "", todo);
	fflush(stdout);
}

void doctor_say(struct doctor *d, enum finding finding, const char *check, const char *todo,
		const char *format, ...)
{
	_cleanup_(free_ptr) char *escaped = NULL;
	va_list ap;

	va_start(ap, format);
	escaped = output_format(format, ap);
	va_end(ap);
	d->counts[finding]++;
	(d->as_json ? say_json : say_text)(d, finding, check, todo,
					   escaped ? escaped : "out of memory");
}

/* ---- the daemon ---- */

/* The socket that gpushm_connect() chooses, by the same rules. */
static const char *which_socket(const struct doctor *d, char buf[SOCKET_PATH_SIZE])
{
	const char *named = d->ctl->socket ? d->ctl->socket : getenv("GPUSHM_SOCKET");

	return named && *named ? named : socket_path_of_clients(buf);
}

/* connect(2) needs write permission on the socket, and search permission on its folders. */
static bool test_socket(struct doctor *d, const char *path)
{
	char owner[160];
	struct stat st;

	if (stat(path, &st) < 0) {
		doctor_fail(d, "socket",
			    errno == ENOENT
				    ? "start the daemon (systemctl start gpushmd.socket, or "
				      "gpushmd &), or name its socket: GPUSHM_SOCKET; in a "
				      "container, mount the host's /run/gpushm"
				    : NULL,
			    "%s: %s", path, strerror(errno));
		return false;
	}
	if (!S_ISSOCK(st.st_mode)) {
		doctor_fail(d, "socket", NULL, "%s: not a socket", path);
		return false;
	}
	snprintf(owner, sizeof(owner), "%s:%s, mode %04o", output_user(st.st_uid),
		 output_group(st.st_gid), st.st_mode & 07777);
	if (access(path, W_OK) < 0) {
		doctor_fail(d, "socket",
			    "join its group, or change mode and group in [daemon] of gpushmd.conf",
			    "%s: %s (%s)", path, strerror(errno), owner);
		return false;
	}
	doctor_ok(d, "socket", "%s (%s)", path, owner);
	return true;
}

static void check_status(struct doctor *d, const struct gpushm_status *s)
{
	bool same = strstr(s->software, GPUSHM_VERSION) != NULL;

	doctor_say(d, same ? FINDING_OK : FINDING_WARN, "daemon",
		   same ? NULL : "restart the daemon after an update, or update this side",
		   "%s, pid %d, up %s; this is gpushmctl %s", s->software, s->pid,
		   output_age(s->uptime_ms * 1000000).text, GPUSHM_VERSION);
	if (s->fds_max && s->fds > s->fds_max - s->fds_max / 10)
		doctor_warn(d, "daemon", "raise LimitNOFILE= of gpushmd.service",
			    "%u of its %u file descriptors are open", s->fds, s->fds_max);
	if (s->suspects)
		doctor_warn(d, "daemon", "gpushmctl ls --holders shows them", "%s",
			    output_ending(s->suspects).text);
}

static void check_usage(struct doctor *d, const struct gpushm_usage *u)
{
	const struct {
		const char *name;
		uint64_t used, max;
	} rows[] = {
		{ "buffers", u->buffers, u->buffers_max },
		{ "leases", u->leases, u->leases_max },
		{ "connections", u->peers, u->peers_max },
	};

	if (u->uid != geteuid())
		return;
	if (u->bytes > u->bytes_max - u->bytes_max / 10)
		doctor_warn(d, "limits", "free some, or raise [limits] in gpushmd.conf",
			    "you hold %s of %s of memory", ctl_size(d->ctl, u->bytes).text,
			    ctl_size(d->ctl, u->bytes_max).text);
	for (size_t i = 0; i < array_size(rows); i++)
		if (rows[i].used > rows[i].max - rows[i].max / 10)
			doctor_warn(d, "limits", "free some, or raise [limits] in gpushmd.conf",
				    "you hold %" PRIu64 " of %" PRIu64 " %s", rows[i].used,
				    rows[i].max, rows[i].name);
}

static bool test_daemon(struct doctor *d)
{
	_cleanup_(free_result) struct gpushm_status *s = NULL;
	char path[SOCKET_PATH_SIZE];
	int r;

	if (!test_socket(d, which_socket(d, path)))
		return false;
	r = gpushm_connect(d->ctl->socket, &d->ctl->connection);
	if (r == 0)
		r = gpushm_status(d->ctl->connection, &s);
	if (r < 0) {
		doctor_fail(d, "daemon", NULL, "%s", gpushm_error());
		return false;
	}
	check_status(d, s);
	for (size_t i = 0; i < s->n_usage; i++)
		check_usage(d, s->usage[i]);
	return true;
}

/* ---- the pools ---- */

/* Starts `gpushmctl get --raw NAME -` with its output in a pipe. 0 or -errno. */
static int spawn_reader(const struct doctor *d, const char *name, int *ret_fd, pid_t *ret_pid)
{
	const char *argv[] = { "gpushmctl", "get", "--raw", name, "-", NULL, NULL, NULL };
	posix_spawn_file_actions_t actions;
	_cleanup_(close_fd) int in = -1, out = -1;
	int fds[2], r;

	if (d->ctl->socket) {
		argv[5] = "--socket";
		argv[6] = d->ctl->socket;
	}
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	in = fds[0];
	out = fds[1];
	posix_spawn_file_actions_init(&actions);
	r = -posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (r == 0)
		r = -posix_spawn(ret_pid, "/proc/self/exe", &actions, NULL, (char **)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r == 0)
		*ret_fd = take_fd(&in);
	return r;
}

static void judge(struct doctor *d, const char *pool, const char *kind, const unsigned char *wrote,
		  const unsigned char *got, ssize_t n, int status)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		doctor_fail(d, pool, "its message is above, on standard error",
			    "%s: another process could not read a buffer (%s %d)", kind,
			    WIFSIGNALED(status) ? "signal" : "exit status",
			    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	else if (n != TRIAL_BYTES || memcmp(wrote, got, TRIAL_BYTES))
		doctor_fail(d, pool, "do not trust this pool; please report it",
			    "%s: another process read other bytes than were written", kind);
	else
		doctor_ok(d, pool, "%s: written here, read by another process, the same", kind);
}

/* Another process reads the published buffer. */
static void read_back(struct doctor *d, const char *pool, const char *kind, const char *name,
		      const unsigned char *wrote)
{
	unsigned char got[TRIAL_BYTES];
	_cleanup_(close_fd) int fd = -1;
	int status = 0, r;
	ssize_t n;
	pid_t pid;

	fflush(stdout);
	r = spawn_reader(d, name, &fd, &pid);
	if (r < 0) {
		doctor_fail(d, pool, NULL, "can't start a second process: %s", strerror(-r));
		return;
	}
	n = transfer_read(fd, got, sizeof(got));
	close_fd(&fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	judge(d, pool, kind, wrote, got, n, status);
}

static int create_trial(struct doctor *d, const char *pool, const char *name,
			const unsigned char *pattern, struct gpushm_buffer **ret)
{
	struct gpushm_create_options o = {
		.struct_size = sizeof(o), .pool = pool, .mode = 0600, .flags = GPUSHM_TRANSIENT
	};
	int64_t shape[] = { TRIAL_BYTES };
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec), .ndim = 1, .shape = shape };
	int r = gpushm_dtype_parse("uint8", &spec.dtype);

	if (r == 0)
		r = gpushm_create_arrays(d->ctl->connection, name, &spec, 1, &o, ret);
	if (r < 0)
		return r;
	r = gpushm_write(*ret, 0, pattern, TRIAL_BYTES);
	return r < 0 ? r : gpushm_publish(*ret, GPUSHM_SEALED);
}

static void test_pool(struct doctor *d, const struct gpushm_pool *p)
{
	unsigned char pattern[TRIAL_BYTES];
	struct gpushm_buffer *b = NULL;
	char name[64];
	int r;

	/* Two trials have different bytes, so that those of an earlier one do not pass for ours. */
	if (getrandom(pattern, sizeof(pattern), 0) != sizeof(pattern)) {
		doctor_fail(d, p->name, NULL, "getrandom: %s", strerror(errno));
		return;
	}
	snprintf(name, sizeof(name), "~/gpushmctl-doctor-%d", getpid());
	r = create_trial(d, p->name, name, pattern, &b);
	if (r < 0)
		doctor_say(d, r == -ENOSPC || r == -EDQUOT ? FINDING_WARN : FINDING_FAIL, p->name,
			   NULL, "%s: %s", kind_word(p->kind), gpushm_error());
	else
		read_back(d, p->name, kind_word(p->kind), name, pattern);
	r = gpushm_close(b);
	if (r < 0)
		doctor_fail(d, p->name, NULL, "close: %s", gpushm_error());
}

static void test_pools(struct doctor *d)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0;
	int r = gpushm_pools(d->ctl->connection, &pools, &n);

	if (r < 0)
		doctor_fail(d, "pools", NULL, "%s", gpushm_error());
	for (size_t i = 0; i < n; i++) {
		if (pools[i]->failed)
			doctor_fail(d, pools[i]->name, NULL, "%s: %s", kind_word(pools[i]->kind),
				    pools[i]->why);
		else if (!pools[i]->allowed)
			doctor_warn(
				d, pools[i]->name,
				"ask for allow-users or allow-groups of the pool in gpushmd.conf",
				"%s: you may not create buffers in it", kind_word(pools[i]->kind));
		else
			test_pool(d, pools[i]);
	}
}

/* ---- models ---- */

static void test_models(struct doctor *d)
{
	struct model_library library;
	char why[512];

	if (model_library_find(&library, why, sizeof(why)) == 0)
		doctor_ok(d, "models", "libgpushm-load is there: load, save and verify work");
	else
		doctor_warn(d, "models", MODEL_LIBRARY_TODO, "%s", why);
}

/* ---- the command ---- */

static void finish(struct doctor *d)
{
	if (d->as_json) {
		json_close(&d->json, ']');
		json_uint(&d->json, "ok", d->counts[FINDING_OK]);
		json_uint(&d->json, "warn", d->counts[FINDING_WARN]);
		json_uint(&d->json, "fail", d->counts[FINDING_FAIL]);
		json_close(&d->json, '}');
	} else {
		printf("%u ok, %u %s, %u failed\n", d->counts[FINDING_OK],
		       OUTPUT_COUNT(d->counts[FINDING_WARN], "warning"), d->counts[FINDING_FAIL]);
	}
}

struct options {
	bool driver;
};

static int run(struct ctl *ctl, const void *options, size_t n, char **argv)
{
	const struct options *o = options;
	struct doctor d = { .ctl = ctl };

	d.as_json = ctl_json(ctl, &d.json);
	if (d.as_json) {
		json_open(&d.json, NULL, '{');
		json_open(&d.json, "checks", '[');
	}
	/* The facts come before this process starts the driver. */
	if (o->driver)
		doctor_facts(&d);
	else
		doctor_system(&d);
	doctor_cuda(&d);
	if (!o->driver) {
		test_models(&d);
		if (test_daemon(&d))
			test_pools(&d);
		/* The last one: what it starts is not ours, and large. */
		doctor_nixl(&d);
	}
	finish(&d);
	return d.counts[FINDING_FAIL] ? CTL_FAILED : CTL_OK;
}

const struct command command_doctor = {
	.name = "doctor",
	.synopsis = "[--driver]",
	.about = "test what this machine can do",
	.more = "Tests the kernel's features, the driver's device nodes, the driver, the daemon,\n"
		"and in each pool a small buffer that a second process reads. The exit status is\n"
		"1 if a test fails; warnings do not count.",
	OPTIONS(options,
		FLAG(options, driver, "driver", 0,
		     "test instead, in a minute, what gpushm relies on and no driver promises")),
	.connects_itself = true,
	.run = run,
};
