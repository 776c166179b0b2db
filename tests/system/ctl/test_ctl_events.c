/* SPDX-License-Identifier: MIT
 *
 * gpushmctl events, as scripts use it.
 */
#include "client/gpushm_memory.h"
#include "tests/lib/ctl.h"
#include "tests/lib/suite.h"

#include <check.h>

/* follow ARGS: a process whose lines are read from fd 3; pid. */
static const char follower[] =
	"follow() { coproc P { exec $ctl events \"$@\"; }; exec 3<&${P[0]}; pid=$P_PID\n"
	"	until [[ $($ctl status --json | grep -o '\"waiting\":1') ]]; do :; done; }\n";

START_TEST(a_follower_prints_each_event)
{
	shell_expect(&sh, 0,
		     "%sfollow --type created,published,renamed,unlinked,freed\n"
		     "$ctl create -q --sealed --size=4K a; $ctl mv a b; $ctl rm b\n"
		     "for type in created published renamed unlinked freed; do\n"
		     "	read -r time what name rest <&3; [[ $what == $type ]] || exit 6\n"
		     "	[[ $time =~ ^[0-9:]{8}\\.[0-9]{3}$ ]] || exit 7\n"
		     "	[[ $what == freed || $rest == *'by '*'(process '*', gpushmctl)' ]] || exit "
		     "8\n"
		     "done\n"
		     "kill -INT $pid; kill -TERM $pid; wait $pid; (($? > 128))",
		     follower);
}
END_TEST

START_TEST(json_events_are_one_object_per_line)
{
	shell_expect(&sh, 0,
		     "$ctl create -q --shared --size=4K a; $ctl get -q --raw nothing 2> /dev/null\n"
		     "$ctl hold --write a < /dev/null > /dev/null; $ctl rm a\n"
		     "$ctl events --once --json > lines; python3 -c '\n"
		     "import json\n"
		     "all = [json.loads(line) for line in open(\"lines\")]\n"
		     "assert [e[\"event\"] for e in all] == [\"started\", \"created\", "
		     "\"published\", \"closed\", \"opened\", \"closed\", \"unlinked\", \"freed\"]\n"
		     "assert all[1][\"name\"] == \"a\" and all[1][\"size_bytes\"] == 4096\n"
		     "assert all[4][\"access\"] == \"write\" and \"access\" not in all[1]\n"
		     "assert \"uid\" not in all[7] and all[6][\"command\"] == \"gpushmctl\"\n"
		     "numbers = [int(e[\"number\"]) for e in all]\n"
		     "assert numbers == sorted(numbers)\n"
		     "'");
}
END_TEST

START_TEST(a_filter_selects_only_its_events)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --sealed --size=4K m/a; $ctl create -q --sealed --size=4K n\n"
		"$ctl mv n o\n"
		"lines() { $ctl events --once \"$@\" | wc -l; }\n"
		"[[ $(lines 'm/*') == 3 && $(lines m/) == 3 && $(lines n) == 4 ]] || exit 6\n"
		"[[ $(lines --type renamed) == 1 && $(lines --user $(id -u)) == 7 ]] || exit 7\n"
		"[[ $(lines --user 54321) == 0 && $(lines --since 1h) == 8 ]] || exit 8\n"
		"[[ $(lines --count 2) == 2 && $(lines -q) == 0 ]] || exit 9");
}
END_TEST

START_TEST(a_mistake_has_its_exit_code_and_message)
{
	shell_expect(&sh, 5, "$ctl events --timeout=20ms");
	shell_expect(&sh, 2, "$ctl events --user=nobody-of-that-name");
	complains("no user of that name");
	shell_expect(&sh, 2, "$ctl events --type=created,nonsense");
	complains("\"nonsense\"");
	shell_expect(&sh, 1, "$ctl events --once > /dev/full");
	complains("No space left");
	shell_expect(&sh, 4, "$ctl events --socket=/nowhere");
}
END_TEST

/* The test's process is one of two that hold it. */
START_TEST(a_buffer_that_is_away_is_shown_so)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	shell_expect(&sh, 0, "$ctl create -q --shared --size=4K a");
	ck_assert_int_eq(gpushm_connect(NULL, &conn), 0);
	ck_assert_int_eq(gpushm_open(conn, "a", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_suspend(b, 0), 0);
	shell_expect(&sh, 0,
		     "coproc H { exec $ctl hold --write a; }; read -r line <&${H[0]}; pid=$H_PID\n"
		     "[[ $($ctl ls) == *'shared, away 1/2'* ]] || exit 6\n"
		     "[[ $($ctl stat a) == *'shared, away 1/2'*'for '*'s; away'* ]] || exit 7\n"
		     "[[ $($ctl ls --holders | grep -c ' away$') == 1 ]] || exit 8\n"
		     "[[ $($ctl stat --json a) == *'\"away\":1'*'\"away\":true'* ]] || exit 9\n"
		     "[[ $($ctl ls --json) == *'\"away\":1'* ]] || exit 10\n"
		     "[[ $($ctl top --once --delay=0) == *'(away)'* ]] || exit 11\n"
		     "[[ $($ctl metrics) == *$'\\ngpushm_leases_away 1\\n'* ]] || exit 12\n"
		     "kill $pid; wait $pid; [[ $? == 143 ]]");
	ck_assert_int_eq(gpushm_resume(b, 1000), 0);
	shell_expect(&sh, 0,
		     "[[ $($ctl ls; $ctl stat a) != *away* ]] || exit 6\n"
		     "[[ $($ctl events --once --type suspended,resumed) =~ "
		     "'suspended     a by '.*'resumed       a by ' ]]");
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_disconnect(conn);
}
END_TEST

START_TEST(processes_are_asked_to_suspend_and_not_any_more)
{
	shell_expect(&sh, 0,
		     "$ctl create -q --sealed --size=4K a; $ctl suspend a || exit 5\n"
		     "coproc H { exec $ctl hold a; }; read -r line <&${H[0]}; pid=$H_PID\n"
		     "$ctl resume a; [[ $($ctl wanted --json=short) == '[]' ]] || exit 6\n"
		     "text=$($ctl suspend --timeout=0.1 a 2>&1); [[ $? == 5 ]] || exit 7\n"
		     "[[ $text == *\"a: process $pid (gpushmctl) of \"*' has not suspended it' ]] "
		     "|| exit 8\n"
		     "[[ $($ctl wanted) == \"a: process $pid \"* && $($ctl stat a) == *', wanted'* "
		     "]] || exit 9\n"
		     "[[ $($ctl wanted --json) == *'\"name\":\"a\"'*\"\\\"pid\\\":$pid\"* ]] || "
		     "exit 10\n"
		     "$ctl resume a && [[ ! $($ctl wanted) ]] || exit 11\n"
		     "$ctl suspend none; [[ $? == 3 ]] || exit 12\n"
		     "kill $pid; wait $pid; [[ $? == 143 ]]");
}
END_TEST

START_TEST(a_buffer_is_demoted_and_promoted)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --sealed --size=4K a; $ctl evict a && exit 5\n"
		"$ctl keep a 5m && exit 6\n"
		"$ctl demote --pool host a && $ctl evict a || exit 7\n"
		"[[ $($ctl ls) == *'(twin of a)'*' sealed '*'a '*'evicted (twin)'* ]] || exit 8\n"
		"[[ $($ctl stat a) == *'evicted (twin)'* ]] || exit 9\n"
		"[[ $($ctl stat --json a) == *'\"residence\":\"twin\"'* ]] || exit 10\n"
		"[[ $($ctl metrics) == *$'\ngpushm_evictions_total 1\n'* ]] || exit 11\n"
		"$ctl ls --arrays > /dev/null && $ctl stat --arrays a > /dev/null || exit 17\n"
		"[[ $($ctl ls) == *'evicted (twin)'* ]] || exit 18\n"
		"$ctl promote a && [[ $($ctl ls) != *evicted* ]] || exit 12\n"
		"[[ $($ctl stat --json a) == *'\"residence\":\"resident\"'* ]] || exit 13\n"
		"$ctl keep --priority 2 a 5m || exit 14\n"
		"[[ $($ctl stat --json a) == *'\"keep_ms\":300000,\"priority\":2'* ]] || exit 15\n"
		"$ctl keep a forever && $ctl keep a 0 && [[ ! $($ctl wanted) ]] || exit 16\n"
		"[[ $($ctl events --once --type evicted,restored) =~ "
		"'evicted       a by '.*'restored      a by ' ]]");
	shell_expect(&sh, 2, "$ctl keep a soon");
	complains("0, 300, 5m or forever");
	shell_expect(&sh, 2, "$ctl keep --priority high a 0");
	complains("not a whole number");
	shell_expect(&sh, 2, "$ctl demote a");
	complains("--pool names");
}
END_TEST

/* It gets no signal while it waits for an event: it looks whether somebody reads. */
START_TEST(a_follower_ends_with_its_reader)
{
	shell_expect(&sh, 0, "%sfollow; exec 3<&-; eval \"exec ${P[0]}<&-\"; wait $pid", follower);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ctl_events");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, ctl_setup, ctl_teardown);
	tcase_add_test(tc, a_follower_prints_each_event);
	tcase_add_test(tc, json_events_are_one_object_per_line);
	tcase_add_test(tc, a_filter_selects_only_its_events);
	tcase_add_test(tc, a_mistake_has_its_exit_code_and_message);
	tcase_add_test(tc, a_buffer_that_is_away_is_shown_so);
	tcase_add_test(tc, processes_are_asked_to_suspend_and_not_any_more);
	tcase_add_test(tc, a_buffer_is_demoted_and_promoted);
	tcase_add_test(tc, a_follower_ends_with_its_reader);
	return suite_run("ctl_events", tc, NULL);
}
