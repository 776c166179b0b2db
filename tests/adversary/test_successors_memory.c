/* SPDX-License-Identifier: MIT
 *
 * A daemon starts with what another one left, and each of its allocations fails in turn: either it
 * manages without, or it ends and leaves everything to the next daemon.
 */
#include "proto/base/own.h"
#include "tests/adversary/failmalloc.h"
#include "tests/lib/fds.h"
#include "tests/lib/kept.h"
#include "tests/lib/suite.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct failmalloc *shared;

static void setup(void)
{
	char path[] = "/tmp/gpushm-failmalloc-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_eq(ftruncate(fd, sizeof(*shared)), 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(shared != MAP_FAILED);
	close(fd);
	setenv(FAILMALLOC_ENV, path, 1);
	setenv("FAKECUDA_DEVICES", "0", 1);
	/* A daemon that can't start lets the kernel free what it has. */
	setenv("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1", 1);
	fds_mark();
	supervisor_init(&k, "[pool host]\nkind=host\nsize=64M\n");
	k.program = "tests/gpushmd-failmalloc";
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

static void teardown(void)
{
	kept_teardown();
	munmap(shared, sizeof(*shared));
	unlink(getenv(FAILMALLOC_ENV));
}

static bool is_ready(void)
{
	bool ready;

	pthread_mutex_lock(&k.lock);
	ready = k.ready > 0;
	pthread_mutex_unlock(&k.lock);
	return ready;
}

/* Starts a daemon whose n-th allocation fails, and if that one has ended, another with enough
 * memory. Returns false if the n-th allocation did not happen. */
static bool start_without(long n)
{
	int status = 0;
	pid_t ended = 0;
	bool failed;

	supervisor_end(&k, SIGKILL);
	atomic_store(&shared->left, n);
	supervisor_spawn(&k);
	client_await(is_ready() || (ended = waitpid(k.pid, &status, WNOHANG)) != 0);
	failed = atomic_exchange(&shared->left, 0) <= 0;
	if (ended) {
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) > 0, "allocation %ld: %#x",
			      n, status);
		supervisor_start(&k);
	}
	return failed;
}

static void check(struct gpushm_buffer *b, const char *name, long n)
{
	char text[16] = "";

	ck_assert_msg(gpushm_wait(c, name, 0) == 0, "allocation %ld: %s", n, gpushm_error());
	ck_assert_int_eq(gpushm_read(b, 0, text, sizeof(text)), 0);
	ck_assert_str_eq(text, name);
}

static struct gpushm_buffer *make(const char *name, enum gpushm_state state)
{
	char text[16] = "";
	struct gpushm_buffer *b = client_create(name, sizeof(text), NULL);

	strcpy(text, name);
	ck_assert_int_eq(gpushm_write(b, 0, text, sizeof(text)), 0);
	ck_assert_int_eq(gpushm_publish(b, state), 0);
	return b;
}

START_TEST(a_successor_without_memory_keeps_what_it_inherits)
{
	struct gpushm_buffer *x = make("x", GPUSHM_SHARED), *y = make("y", GPUSHM_SEALED);
	long n = 1;

	for (; start_without(n); n++) {
		check(x, "x", n);
		check(y, "y", n);
		ck_assert_msg(client_status().leases == 2, "allocation %ld: %u leases", n,
			      client_status().leases);
	}
	ck_assert_int_gt(n, 20);
	client_close_and_unlink(x, "x");
	client_close_and_unlink(y, "y");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("successors_memory");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_successor_without_memory_keeps_what_it_inherits);
	return suite_run("successors_memory", t, NULL);
}
