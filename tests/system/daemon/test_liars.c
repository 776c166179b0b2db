/* SPDX-License-Identifier: MIT
 *
 * A process says that it has let go of a buffer, and keeps its memory. On a GPU only the driver
 * knows: the daemon sees that the eviction freed nothing, and the bytes count for that process's
 * user until the process ends. Runs over a real driver, too.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/ctl.h"
#include "tests/lib/raw.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)
#define BYTES_OF_ONE (96 * MIB)
#define STRANGER 2002

static struct gpushm_pool *vmm, **pools;
static struct role_process liar;
static char state[32];

static void setup(void)
{
	size_t n;

	snprintf(state, sizeof(state), "/tmp/liars-XXXXXX");
	close(mkstemp(state));
	chmod(state, 0666);
	setenv("FAKECUDA_STATE", state, 1); /* the same GPU for all processes */
	client_setup();
	shell_open(&sh);
	setenv("GPUSHM_SOCKET", d.socket, 1);
	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	vmm = NULL;
	for (size_t i = 0; i < n; i++)
		if (pools[i]->kind == GPUSHM_VMM && !pools[i]->failed && !vmm)
			vmm = pools[i];
	liar.pid = 0;
}

static void teardown(void)
{
	if (liar.pid > 0) {
		kill(liar.pid, SIGKILL);
		role_wait(&liar);
	}
	pools = gpushm_free(pools);
	shell_close(&sh);
	client_teardown();
	unlink(state);
}

/* Driver calls that the library under test knows nothing of; as in cuda.h, which is not there
 * everywhere. */
struct location {
	int type, id;
};
struct properties {
	int type, handle_types;
	struct location location;
	void *meta;
	unsigned char flags[8];
};
static int (*cu_import)(unsigned long long *handle, void *fd, int type);
static int (*cu_create)(unsigned long long *handle, size_t bytes, const struct properties *,
			unsigned long long flags);
static int (*cu_release)(unsigned long long handle);

static bool driver_start(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned);

	if (!driver)
		return false;
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&cu_import = dlsym(driver, "cuMemImportFromShareableHandle");
	*(void **)&cu_create = dlsym(driver, "cuMemCreate");
	*(void **)&cu_release = dlsym(driver, "cuMemRelease");
	return init && cu_import && cu_create && cu_release && init(0) == 0;
}

static bool import(int fd)
{
	unsigned long long handle;
	bool done = driver_start() && cu_import(&handle, (void *)(intptr_t)fd, 1) == 0;

	close(fd);
	return done;
}

/* Another program on the GPU, which takes some memory and gives it back, all the time. */
static int neighbour_role(char **args)
{
	const struct properties p = { .type = 1, .location = { 1, 0 } };
	unsigned long long handle;

	if (!driver_start())
		return 2;
	puts("works");
	fflush(stdout);
	for (;;)
		if (cu_create(&handle, (uint64_t)(rand() % 100 + 1) * 2 * MIB, &p, 0) == 0) {
			poll(NULL, 0, rand() % 3);
			cu_release(handle);
		}
}

/* socket name how uid: opens it, says that it is away, and in fact "keeps" it, or "leaves" it. */
static int opener_role(char **args)
{
	struct raw r;
	uint64_t lease;
	char line[16];

	if (atoi(args[3]) && !user_become((uid_t)atoi(args[3]), (gid_t)atoi(args[3])))
		return 2;
	raw_greet(&r, args[0]);
	lease = raw_open(&r, args[1]);
	if (strcmp(args[2], "keeps") == 0 && !import(fcntl(r.frame.fds[0], F_DUPFD_CLOEXEC, 0)))
		return 3;
	frame_close_fds(&r.frame);
	if (raw_call(&r, REQUEST(SUSPEND, Suspend, suspend, SET(lease, lease))) != 0)
		return 4;
	puts("away");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		if (line[0] == 'c')
			printf("%d\n",
			       raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))));
	raw_close(&r);
	return 0;
}

static void start(struct role_process *p, const char *name, const char *how, uid_t uid)
{
	char line[16], number[16];
	const char *args[] = { d.socket, name, how, number, NULL };

	snprintf(number, sizeof(number), "%u", uid);
	role_start(p, "opener", args);
	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "away");
}

/* With a twin, and nobody has it open. */
static void make(const char *name)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = vmm->name,
					   .mode = 0644 };
	struct gpushm_buffer *b = client_create(name, BYTES_OF_ONE, &o);

	ck_assert_msg(gpushm_publish(b, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_msg(gpushm_make_twin(c, name, "host") == 0, "%s", gpushm_error());
}

static struct gpushm_pool now(void)
{
	struct gpushm_pool **list = NULL, found = { 0 };
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &list, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i]->name, vmm->name) == 0)
			found = *list[i];
	gpushm_free(list);
	return found;
}

static uint64_t charged(uid_t uid)
{
	struct gpushm_status *st = NULL;
	uint64_t bytes = 0;

	ck_assert_int_eq(gpushm_status(c, &st), 0);
	for (size_t i = 0; i < st->n_usage; i++)
		if (st->usage[i]->uid == uid)
			bytes = st->usage[i]->bytes;
	gpushm_free(st);
	return bytes;
}

static void evict(const char *name)
{
	ck_assert_msg(gpushm_evict(c, name) == 0, "%s", gpushm_error());
	ck_assert_msg(gpushm_flush(c, NULL) == 0, "%s", gpushm_error());
}

static void end(struct role_process *p)
{
	kill(p->pid, SIGKILL);
	role_wait(p);
	p->pid = 0;
}

START_TEST(who_keeps_what_was_evicted_is_named_and_pays_until_it_ends)
{
	uid_t uid = user_may_change() ? STRANGER : geteuid();
	uint64_t before;

	if (!vmm)
		return;
	make("m");
	before = charged(uid) - (uid == geteuid() ? BYTES_OF_ONE : 0);
	start(&liar, "m", "keeps", uid == geteuid() ? 0 : uid);
	evict("m");
	ck_assert_uint_eq(now().suspect_bytes, BYTES_OF_ONE);
	ck_assert_uint_eq(now().used_bytes, BYTES_OF_ONE);
	ck_assert_uint_eq(charged(uid), before + BYTES_OF_ONE);
	shell_expect(&sh, 0, "$ctl ls --holders | grep -c 'not let go of'; $ctl pools");
	shell_expect(&sh, 0, "$ctl ls --holders | grep 'not let go of' | grep ' %d '", liar.pid);
	shell_expect(&sh, 0, "$ctl events --once --type suspect | grep 'm by .*process %d, '",
		     liar.pid);
	ck_assert_uint_eq(daemon_log_count(&d, "96.0 MiB did not become free"), 1);
	end(&liar);
	client_await(now().used_bytes == 0);
	ck_assert_uint_eq(now().suspect_bytes, 0);
	ck_assert_uint_eq(charged(uid), before);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

START_TEST(a_close_does_not_end_what_is_kept)
{
	char line[16];

	if (!vmm)
		return;
	make("m");
	start(&liar, "m", "keeps", 0);
	evict("m");
	ck_assert_uint_eq(now().suspect_bytes, BYTES_OF_ONE);
	role_write_line(&liar, "close");
	role_read_line(&liar, line, sizeof(line));
	ck_assert_str_eq(line, "0");
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	ck_assert_uint_eq(now().suspect_bytes, BYTES_OF_ONE);
	end(&liar);
	client_await(now().used_bytes == 0);
}
END_TEST

static void stay_honest(int rounds)
{
	make("m");
	for (int i = 0; i < rounds; i++) {
		struct gpushm_buffer *b = NULL;

		ck_assert_msg(gpushm_open(c, "m", GPUSHM_READ, 10000, NULL, &b) == 0, "%s",
			      gpushm_error());
		start(&liar, "m", "leaves", 0);
		ck_assert_int_eq(gpushm_suspend(b, 0), 0);
		evict("m");
		ck_assert_uint_eq(now().suspect_bytes, 0);
		ck_assert_uint_eq(now().used_bytes, 0);
		end(&liar);
		ck_assert_int_eq(gpushm_close(b), 0);
	}
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}

START_TEST(who_has_let_go_of_it_is_no_suspect)
{
	if (vmm)
		stay_honest(3);
}
END_TEST

START_TEST(nobody_is_a_suspect_for_what_another_program_takes_meanwhile)
{
	struct role_process neighbour;
	char line[16];

	if (!vmm)
		return;
	role_start(&neighbour, "neighbour", (const char *[]){ NULL });
	role_read_line(&neighbour, line, sizeof(line));
	stay_honest(10);
	end(&neighbour);
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "opener", opener_role },
					     { "neighbour", neighbour_role },
					     { "user", user_role } };
	TCase *t = tcase_create("liars");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, who_keeps_what_was_evicted_is_named_and_pays_until_it_ends);
	tcase_add_test(t, a_close_does_not_end_what_is_kept);
	tcase_add_test(t, who_has_let_go_of_it_is_no_suspect);
	tcase_add_test(t, nobody_is_a_suspect_for_what_another_program_takes_meanwhile);
	return suite_run("liars", t, NULL);
}
