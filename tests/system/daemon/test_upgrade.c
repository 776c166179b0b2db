/* SPDX-License-Identifier: MIT
 *
 * A planned restart runs the program file from which the daemon was started: an updated program
 * takes over, and one that can't is refused before anything changes.
 */
#include "client/gpushm.h"
#include "client/gpushm_memory.h"
#include "proto/base/own.h"
#include "tests/lib/reexec.h"
#include "tests/lib/role.h"
#include "tests/lib/run.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRANGER 1234

static void edit_program(const char *script)
{
	char text[256], command[512];

	snprintf(command, sizeof(command), "cd %s && %s", d.folder, script);
	ck_assert_msg(run_program("/bin/sh", (const char *[]){ "-c", command, NULL }, text,
				  sizeof(text)) == 0,
		      "%s: %s", script, text);
}

/* Makes another program: its version has as many letters. */
#define OTHER_VERSION "LC_ALL=C sed 's/" GPUSHM_VERSION "/9.9.9/g' old >new && chmod 755 new"

START_TEST(the_new_program_takes_over_after_an_update)
{
	struct gpushm_buffer *b = reexec_make(NULL, "a", GPUSHM_SEALED);
	struct gpushm_status *st;

	_Static_assert(sizeof(GPUSHM_VERSION) == sizeof("9.9.9"), "as many letters");
	edit_program("mv gpushmd old && " OTHER_VERSION " && mv new gpushmd && rm old");
	reexec_restart();
	st = reexec_status();
	ck_assert_str_eq(st->software, "gpushmd 9.9.9");
	ck_assert_int_eq(st->pid, d.pid);
	gpushm_free(st);
	reexec_check(b, "a");
	client_close_and_unlink(b, "a");
}
END_TEST

/* Each puts another file in the program's place; the client's error must contain the words. */
static const struct {
	const char *script, *words;
} useless[] = {
	{ "mv gpushmd old", "No such file" },
	{ "cp gpushmd old && chmod 644 gpushmd", "Permission denied" },
	{ "mv gpushmd old && mkdir gpushmd", "Permission denied" },
	{ "mv gpushmd old && echo rubbish >gpushmd && chmod 755 gpushmd", "status 127" },
	{ "mv gpushmd old && printf '#!/bin/sh\\nexit 3\\n' >gpushmd && chmod 755 gpushmd",
	  "status 3" },
	{ "mv gpushmd old && printf '#!/bin/sh\\nkill -ABRT $$\\n' >gpushmd && chmod 755 gpushmd",
	  "signal 6" },
	/* The program passes the check, and is no program any more at the exec. */
	{ "mv gpushmd old && printf '#!/bin/sh\\nrm %s\\n' $PWD/gpushmd >gpushmd && "
	  "chmod 755 gpushmd",
	  "can't be run: No such file" },
	{ "cp gpushmd old && echo rubbish >>gpushmd.conf", "status 2" },
};

START_TEST(a_program_that_cannot_take_over_is_refused)
{
	struct gpushm_buffer *b = reexec_make(NULL, "a", GPUSHM_SHARED), *w = NULL;
	struct gpushm_status *before = reexec_status(), *after;

	edit_program(useless[_i].script);
	ck_assert_int_eq(gpushm_restart(c), -ENOEXEC);
	ck_assert_str_eq(gpushm_error_code(), "RESTART");
	ck_assert_msg(strstr(gpushm_error(), useless[_i].words) &&
			      strstr(gpushm_error(), "goes on as it is"),
		      "%s", gpushm_error());
	ck_assert_uint_eq(daemon_log_count(&d, "no restart: "), 1);
	/* The same daemon continues to serve, and has lost no connection and nothing else. */
	after = reexec_status();
	ck_assert_uint_eq(after->requests, before->requests + 2);
	ck_assert_uint_eq(after->peers, 1);
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_WRITE, 0, NULL, &w), 0);
	reexec_check(w, "a");
	ck_assert_int_eq(gpushm_close(w), 0);
	edit_program("if [ -d gpushmd ]; then rmdir gpushmd; fi; mv old gpushmd; chmod 755 gpushmd;"
		     " : >gpushmd.conf");
	reexec_restart();
	reexec_check(b, "a");
	ck_assert_int_eq(gpushm_buffer_lost(b), 0);
	client_close_and_unlink(b, "a");
	gpushm_free(before);
	gpushm_free(after);
}
END_TEST

START_TEST(a_program_refuses_a_journal_that_it_cannot_read)
{
	char text[512];

	ck_assert_int_eq(run_program(d.copy,
				     (const char *[]){ "--config", d.config, "--check-restart=1",
						       NULL },
				     text, sizeof(text)),
			 0);
	ck_assert_int_eq(run_program(d.copy,
				     (const char *[]){ "--config", d.config, "--check-restart=4000",
						       NULL },
				     text, sizeof(text)),
			 1);
	ck_assert_msg(strstr(text, "can't follow"), "%s", text);
}
END_TEST

/* As gpushmd 0.2, which knows no buffer without memory, does with a journal of another version. */
#define BEFORE_AWAY                                                                     \
	"mv gpushmd old && printf '#!/bin/sh\\ncase $* in *restart=1*) ;; *restart=*) " \
	"exit 1;; esac\\nexec %s \"$@\"\\n' $PWD/old >gpushmd && chmod 755 gpushmd"

static void refuse_older(const char *words)
{
	ck_assert_int_eq(gpushm_restart(c), -ENOEXEC);
	ck_assert_msg(strstr(gpushm_error(), words) && strstr(gpushm_error(), "before 0.3"), "%s",
		      gpushm_error());
}

START_TEST(an_older_program_is_refused_while_it_would_lose_a_buffer)
{
	struct gpushm_buffer *b = reexec_make(NULL, "a", GPUSHM_SEALED);

	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_make_twin(c, "a", "host"), 0);
	ck_assert_int_eq(gpushm_evict(c, "a"), 0);
	edit_program(BEFORE_AWAY);
	refuse_older("evicted buffers (1:");
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), 0);
	reexec_check(b, "a");
	ck_assert_int_eq(gpushm_suspend(b, 0), 0);
	refuse_older("suspended opens (1:");
	ck_assert_int_eq(gpushm_resume(b, 0), 0);
	reexec_restart();
	reexec_check(b, "a");
	client_close_and_unlink(b, "a");
	edit_program("mv old gpushmd");
}
END_TEST

/* Its check takes a while. */
#define SLOW                                                                                   \
	"mv gpushmd old && printf '#!/bin/sh\\ncase $* in *check-restart*) touch %s; sleep 1;" \
	"; esac\\nexec %s \"$@\"\\n' $PWD/begun $PWD/old >gpushmd && chmod 755 gpushmd"

START_TEST(a_suspend_during_the_check_repeats_it)
{
	struct gpushm_buffer *b = reexec_make("host", "a", GPUSHM_SEALED);
	char begun[512];

	snprintf(begun, sizeof(begun), "%s/begun", d.folder);
	edit_program(SLOW);
	ck_assert_int_eq(kill(d.pid, SIGUSR2), 0);
	while (access(begun, F_OK) < 0)
		poll(NULL, 0, 5);
	ck_assert_int_eq(gpushm_suspend(b, 0), 0);
	reexec_restart();
	ck_assert_int_eq(gpushm_resume(b, 0), 0);
	reexec_check(b, "a");
	ck_assert_uint_eq(daemon_log_count(&d, "no restart"), 0);
	client_close_and_unlink(b, "a");
	edit_program("rm begun && mv old gpushmd");
}
END_TEST

START_TEST(a_stranger_may_not_restart_the_daemon)
{
	struct role_process stranger;

	if (!user_may_change())
		return;
	ck_assert_int_eq(chmod(d.socket, 0666), 0);
	user_start(&stranger, d.socket, STRANGER, STRANGER);
	user_does(&stranger, "restart", "ACCESS");
	user_end(&stranger);
	ck_assert_uint_eq(daemon_log_count(&d, "restart"), 0);
}
END_TEST

START_TEST(gpushmctl_restart_reports_the_takeover_or_the_error)
{
	char text[512];

	ck_assert_int_eq(run_program(build_path("gpushmctl"),
				     (const char *[]){ "--socket", d.socket, "restart", NULL },
				     text, sizeof(text)),
			 0);
	ck_assert_msg(strstr(text, "has taken over"), "%s", text);
	edit_program("mv gpushmd old");
	ck_assert_int_eq(run_program(build_path("gpushmctl"),
				     (const char *[]){ "--socket", d.socket, "restart", NULL },
				     text, sizeof(text)),
			 1);
	ck_assert_msg(strstr(text, "No such file"), "%s", text);
	edit_program("mv old gpushmd");
}
END_TEST

static const struct role roles[] = { { "user", user_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("upgrade");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, reexec_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, the_new_program_takes_over_after_an_update);
	tcase_add_loop_test(t, a_program_that_cannot_take_over_is_refused, 0,
			    (int)array_size(useless));
	tcase_add_test(t, a_program_refuses_a_journal_that_it_cannot_read);
	tcase_add_test(t, an_older_program_is_refused_while_it_would_lose_a_buffer);
	tcase_add_test(t, a_suspend_during_the_check_repeats_it);
	tcase_add_test(t, a_stranger_may_not_restart_the_daemon);
	tcase_add_test(t, gpushmctl_restart_reports_the_takeover_or_the_error);
	return suite_run("upgrade", t, NULL);
}
