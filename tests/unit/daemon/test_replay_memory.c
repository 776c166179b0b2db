/* SPDX-License-Identifier: MIT
 *
 * Replays a journal while each of our allocations fails in turn.
 */
#include "daemon/state/replay.h"
#include "daemon/util/log.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/unit/daemon/serialize_fixture.h"
#include "tests/unit/memory_fixture.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Receives what systemd would. */
static int listen_for_notifications(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "@gpushm-test-replay-%d", getpid());
	setenv("NOTIFY_SOCKET", a.sun_path, 1);
	a.sun_path[0] = '\0';
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
					  strlen(a.sun_path + 1))),
			 0);
	return fd;
}

static int replay_once(const struct ledger *l, unsigned long n)
{
	struct named_fd one = { .fd = fcntl(l->serializer.journal.fd, F_DUPFD_CLOEXEC, 3) };
	struct fdstore store = { .received = { .items = &one, .n = 1 }, .systemd = true };
	struct replay r;
	uint64_t generation;
	int err;

	strcpy(one.name, fdstore_name('j', l->serializer.journal.generation).text);
	memory_left = n;
	err = WITHOUT_MEMORY(replay(&store, &r, &generation));
	close_fd(&one.fd);
	if (err == 0)
		replay_done(&r);
	return err;
}

START_TEST(a_journal_survives_a_replay_that_runs_out_of_memory)
{
	struct ledger *l = ledger_new(1);
	int supervisor = listen_for_notifications(), err = -ENOMEM;
	unsigned long n;
	char text[64];

	log_open(-1);
	while (l->serializer.journal.used < 4096)
		step(l);
	for (n = 1; err < 0; n++) {
		err = replay_once(l, n);
		ck_assert(err == 0 || err == -ENOMEM);
		ck_assert_int_lt(recv(supervisor, text, sizeof(text), 0), 0);
	}
	ck_assert_uint_gt(n, 10);
	memory_left = 0;
	close(supervisor);
	ledger_free(l);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("replay_memory");

	tcase_add_checked_fixture(t, fds_mark, fds_check);
	tcase_add_test(t, a_journal_survives_a_replay_that_runs_out_of_memory);
	return suite_run("replay_memory", t, NULL);
}
