/* SPDX-License-Identifier: MIT
 *
 * gpushmctl in scripts and at a terminal, with a real daemon: events, names that move, holds, valid
 * JSON, completion with live names, colours, progress, the doctor.
 */
#include "proto/base/own.h"
#include "tests/lib/ctl.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

START_TEST(a_watch_prints_each_event)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --size=8 old\n"
		"coproc P { exec $ctl watch old new; }; exec 3<&${P[0]}; pid=$P_PID\n"
		"read -r what name id <&3; [[ \"$what $name\" == 'published old' ]] || exit 6\n"
		"$ctl create -q --shared --size=8 new\n"
		"read -r what name new <&3; [[ \"$what $name\" == 'published new' ]] || exit 7\n"
		"mkfifo in; $ctl hold --write new < in > out & holder=$!; exec 4> in\n"
		"until grep -q held out; do :; done; kill -KILL $holder; wait $holder\n"
		"read -r what name id <&3; [[ \"$what $id\" == \"dirty $new\" ]] || exit 8\n"
		"$ctl clean new; read -r what name id <&3; [[ $what == clean ]] || exit 9\n"
		"$ctl rm old; read -r what name id <&3; [[ \"$what $name\" == 'unlinked old' ]] "
		"|| exit 10\n"
		"kill -TERM $pid; wait $pid; [[ $? == 143 ]]");
	shell_expect(&sh, 0,
		     "id=$($ctl stat --json new | sed 's/.*\"id\":\"\\([0-9]*\\)\".*/\\1/')\n"
		     "[[ $($ctl watch --json --count=1 new) == "
		     "'{\"event\":\"published\",\"name\":\"new\",\"id\":\"'$id'\"}' ]] && "
		     "[[ $($ctl watch -q -c1 new) == '' ]]");
}
END_TEST

START_TEST(a_pattern_removes_exactly_what_it_matches)
{
	shell_expect(
		&sh, 0,
		"for n in m/a m/b/c m2 'm/*' 'x[1]' x1 '~/m'; do $ctl create -q --size=1 \"$n\"; "
		"done");
	/* A name is taken literally first. */
	shell_expect(
		&sh, 0,
		"names() { $ctl ls --names-only \"$@\" | tr '\\n' ' '; }\n"
		"$ctl rm 'm/*'; [[ $(names) == 'm/a m/b/c m2 x1 x[1] ~/m ' ]] || exit 7\n"
		"$ctl rm 'x[1]'; [[ $(names) == 'm/a m/b/c m2 x1 ~/m ' ]] || exit 8\n"
		"[[ $(names 'm*') == 'm/a m/b/c m2 ' && $(names '*1') == 'x1 ' ]] || exit 9\n"
		"[[ $(names m/) == 'm/a m/b/c ' && $(names '?2') == 'm2 ' ]] || exit 10\n"
		"$ctl rm 'x[0-9]' 'm/*'; [[ $(names) == 'm2 ~/m ' ]] || exit 11\n"
		/* A private name is like a hidden file. */
		"$ctl create -q --size=1 m/d; $ctl rm m/ '*'; [[ $(names) == '~/m ' ]] || exit 12\n"
		"$ctl rm '~/*'; [[ $(names) == '' ]]");
	shell_expect(&sh, 3, "$ctl rm 'y*'");
	complains("no buffer matches \"y*\"");
	shell_expect(&sh, 3, "$ctl create -q --size=1 z; $ctl rm 'y*' z");
	shell_expect(&sh, 0, "$ctl rm -f 'y*' y/ && [[ $($ctl ls --names-only) == '' ]]");
}
END_TEST

static const char complete[] = "source \"$source/client/ctl/completion/gpushmctl.bash\"\n"
			       "try() { COMP_WORDS=(\"$ctl\" \"$@\") COMP_CWORD=$#; "
			       "compopt() { :; }; COMPREPLY=(); "
			       "_gpushmctl; printf '%s,' \"${COMPREPLY[@]}\"; echo; }\n";

START_TEST(mv_renames_a_buffer_and_replaces_only_by_force)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --size=8 a; $ctl create -q --size=16 b\n"
		"$ctl mv a c && [[ $($ctl ls --names-only | tr '\\n' ' ') == 'b c ' ]] || exit 6\n"
		"$ctl mv -f b c && [[ $($ctl ls --names-only) == c ]] || exit 7\n"
		"$ctl stat --json c | grep -q '\"bytes\":16,' || exit 8\n"
		"$ctl mv c '~/c' && $ctl mv --force '~/c' c");
	shell_expect(&sh, 3, "$ctl mv never d");
	complains("no buffer \"never\"");
	shell_expect(&sh, 1, "$ctl create -q --size=8 a; $ctl mv a c");
	complains("\"c\" is taken");
	complains("mv --force replaces");
	shell_expect(&sh, 1, "$ctl mv a 'b//c'");
	shell_expect(&sh, 2, "$ctl mv a");
	shell_expect(&sh, 2, "$ctl mv a b c");
	shell_expect(&sh, 0, "%stry mv --; try mv a; try mv -f x c; try mv a c b", complete);
	ck_assert_str_eq(sh.out, "--force,--socket,--json,--bytes,--quiet,--help,\na,\nc,\n,\n");
}
END_TEST

START_TEST(a_watch_says_what_is_replaced)
{
	shell_expect(
		&sh, 0,
		"id() { $ctl stat --json $1 | sed 's/.*\"id\":\"\\([0-9]*\\)\".*/\\1/'; }\n"
		"next() { read -r line <&3; [[ $line == \"$*\" ]] || { echo $line; exit 6; }; }\n"
		"$ctl create -q --size=8 m; one=$(id m)\n"
		"coproc P { exec $ctl watch m; }; exec 3<&${P[0]}; pid=$P_PID\n"
		"next published m $one; $ctl create -q --size=8 n; two=$(id n)\n"
		"$ctl mv m old; next unlinked m $one; $ctl mv old m; next published m $one\n"
		"$ctl mv -f n m; next replaced m $two $one; next published m $two\n"
		"$ctl mv m x; next unlinked m $two; $ctl rm x\n"
		"kill -TERM $pid; wait $pid; [[ $? == 143 ]]");
	shell_expect(&sh, 0,
		     "$ctl create -q --size=8 m; $ctl create -q --size=8 n\n"
		     "coproc P { exec $ctl watch --json m; }; exec 3<&${P[0]}; pid=$P_PID\n"
		     "read -r line <&3; $ctl mv -f n m; read -r line <&3; echo $line\n"
		     "kill -TERM $pid; wait $pid; [[ $? == 143 ]]");
	says("{\"event\":\"replaced\",\"name\":\"m\",\"id\":\"");
	says("\",\"previous\":\"");
}
END_TEST

START_TEST(a_hold_lasts_until_its_input_ends)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --size=4K h\n"
		"coproc P { exec $ctl hold h; }; exec 3<&${P[0]} 4>&${P[1]}; pid=$P_PID\n"
		"eval \"exec ${P[1]}>&-\"\n"
		"read -r word name number lease <&3\n"
		"[[ \"$word $name $number\" == \"held h $pid\" && $lease == [0-9]* ]] || exit\n"
		/* More than a pipe can hold: the command must read all of it. */
		"head -c 200000 /dev/zero >&4 || exit\n"
		"$ctl ls --holders | grep -q \"^h .* $pid .* $lease \" || exit\n"
		"$ctl rm h && $ctl ls --holders | grep -q \"^(unlinked) .* $pid \" || exit\n"
		"exec 4>&-; wait $pid && [[ $($ctl ls --json) == '[]' ]]");
}
END_TEST

/* Until the limit is raised again, the daemon has no descriptor for a connection. */
START_TEST(a_hold_tries_again_until_the_daemon_has_descriptors)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --size=4K h; mkfifo in; $ctl hold h < in > out 2> err & pid=$!\n"
		"exec 4> in; until grep -q held out; do :; done\n"
		"daemon=$($ctl status --json | grep -o '\"pid\":[0-9]*' | head -1 | tr -dc 0-9)\n"
		"read -r _ _ _ _ hard _ < <(grep 'open files' /proc/$daemon/limits)\n"
		"kill -STOP $pid; $ctl restart > restarted || exit 7\n"
		"until $ctl status 2>&1 | grep -q 'no file descriptors'; do\n"
		"	n=0; while [[ -e /proc/$daemon/fd/$n ]]; do ((n++)); done\n"
		"	prlimit --pid $daemon --nofile=$n:$hard || exit 8; done\n"
		"kill -CONT $pid; until [[ -s err ]]; do :; done\n"
		"grep -q 'trying again' err || exit 9\n"
		"prlimit --pid $daemon --nofile=$hard:$hard\n"
		"exec 4>&-; wait $pid && [[ $(wc -l < err) == 1 ]] && $ctl rm h");
}
END_TEST

START_TEST(a_transient_buffer_ends_with_its_command)
{
	shell_expect(&sh, 0,
		     "mkfifo in; $ctl create --transient --size=4K t < in > out & pid=$!\n"
		     "exec 3> in; $ctl wait t; until grep -q '^t: shared' out; do :; done\n"
		     "$ctl get -q t copy || exit\n"
		     "exec 3>&-; wait $pid && $ctl stat t; [[ $? == 3 ]]");
}
END_TEST

START_TEST(json_output_is_valid_json)
{
	static const char *const commands[] = {
		"status",
		"pools",
		"ls",
		"ls --holders",
		"stat odd",
		"stat --arrays odd",
		"doctor",
		"get odd:x out.npy",
		"hold odd",
		"put x.npy y",
		"create --size=1 z",
		"restart",
	};

	ctl_write_npy("x.npy", "[('a\"b', '<f4')]", "False", "(2,)", 8);
	shell_expect(&sh, 0,
		     "$ctl put -q --attr=text='a \"b\" \\' --attr=bytes=$'\\xff\\x01' "
		     "--attr=k$'\\xc3\\xa9'= "
		     "$'odd' x=x.npy $'\\xe6\\xbc\\xa2 \"q\"=x.npy'");
	if (shell_run(&sh, "command -v python3") != 0) {
		printf("skipped: there is no python3 to read JSON\n");
		return;
	}
	for (size_t i = 0; i < array_size(commands); i++) {
		shell_expect(&sh, 0, "set -o pipefail; $ctl %s --json | python3 -m json.tool",
			     commands[i]);
		shell_run(&sh, "$ctl rm -f y z");
		shell_expect(&sh, 0,
			     "set -o pipefail; $ctl --json=pretty %s | python3 -m json.tool",
			     commands[i]);
		shell_run(&sh, "$ctl rm -f y z");
	}
	shell_expect(&sh, 0,
		     "$ctl stat odd --json | python3 -c 'import json, sys\n"
		     "a = json.load(sys.stdin)[\"attrs\"]\n"
		     "assert a[\"text\"] == \"a \\\"b\\\" \\\\\", a\n"
		     "assert a[\"bytes\"] == {\"base64\": \"/wE=\"}, a\n"
		     "assert a[\"k\\u00e9\"] == \"\", a'");
	/* Old keys stay beside the words that the text output uses. */
	shell_expect(&sh, 0,
		     "$ctl status --json | python3 -c 'import json, sys\n"
		     "s = json.load(sys.stdin)\n"
		     "u = s[\"usage\"][0]\n"
		     "assert s[\"peers\"] == s[\"connections\"] == 1, s\n"
		     "assert s[\"suspects\"] == s[\"ending\"] == 0, s\n"
		     "assert u[\"peers\"] == u[\"connections\"], u'");
}
END_TEST

START_TEST(commands_names_and_options_are_completed)
{
	shell_expect(&sh, 0,
		     "$ctl create -q --size=1 models/a && $ctl create -q --size=1 'models/b c'");
	shell_expect(
		&sh, 0,
		"%stry prom; try get mod; try rm models/a 'models/b'; try ls --ho; try --json = p; "
		"try create -p ho; try put x; touch file.npy; try put fi; "
		"try -s /nonexistent get mod",
		complete);
	ck_assert_str_eq(sh.out, "promote,\nmodels/a,models/b\\ c,\nmodels/b\\ c,\n--holders,\n"
				 "pretty,\nhost,\n,\nfile.npy,\n,\n");
	/* bash's script and the manual have every command; zsh's script asks gpushmctl. */
	shell_expect(&sh, 0,
		     "cd \"$source\"; for c in $($ctl --help | sed -n '/^Commands/,/^$/s/^  "
		     "\\([a-z]*\\) .*/\\1/p'); do\n"
		     "	grep -q \"^	local commands=.*\\b$c\\b\" "
		     "client/ctl/completion/gpushmctl.bash || exit 1\n"
		     "	grep -Eq \"^.It (Xo )?Cm $c\\b\" man/gpushmctl.1 || exit 1; n=x${n-}\n"
		     "done; [[ ${#n} -ge 15 ]]");
}
END_TEST

START_TEST(the_name_of_an_array_is_completed)
{
	ctl_write_npy("x.npy", "'<f4'", "False", "(2,)", 8);
	shell_expect(
		&sh, 0,
		"$ctl put -q 'm/b c' layer/w=x.npy layer/b=x.npy 'a$(touch ran)=x.npy' =x.npy\n"
		"$ctl put -q m/w w=x.npy");
	/* bash splits at the colon, unless COMP_WORDBREAKS is set so that it does not. */
	shell_expect(&sh, 0,
		     "%stry get m/w :; try get 'm/b\\ c' : lay; try get m/w:; "
		     "try get 'm/b\\ c:layer/b'; try get --array = lay; "
		     "try get 'm/b\\ c' -A lay; touch file; try get m/w : w fi; "
		     "try get m/w : nothing; try get 'm/b\\ c' : 'a'; [[ ! -e ran ]]",
		     complete);
	ck_assert_str_eq(sh.out, "w,\nlayer/w,layer/b,\nm/w:w,\nm/b\\ c:layer/b,\n,\n"
				 "layer/w,layer/b,\nfile,\n,\na\\$\\(touch\\ ran\\),\n");
}
END_TEST

/* Any user may choose a buffer's name, and an administrator's shell completes it. */
START_TEST(a_completion_quotes_a_name_and_runs_nothing)
{
	shell_expect(&sh, 0,
		     "for n in 'x$(touch ran)' 'x`touch ran`' 'x;touch ran' 'x$HOME' 'x~/*'; do\n"
		     "	$ctl create -q --size=1 \"$n\"; done");
	shell_expect(&sh, 0, "%stry get x; try get 'x\\$H'; try get 'x$H'; [[ ! -e ran ]]",
		     complete);
	ck_assert_str_eq(
		sh.out,
		"x\\$\\(touch\\ ran\\),x\\$HOME,x\\;touch\\ ran,x\\`touch\\ ran\\`,x~/\\*,\n"
		"x\\$HOME,\nx\\$HOME,\n");
}
END_TEST

START_TEST(colours_respect_the_terminal_and_no_color)
{
	static const char script[] =
		"$ctl create -q --size=1 x\n"
		"t() { script -qec \"$ctl ls\" /dev/null | grep -c $'\\033'; }\n"
		"TERM=xterm t; TERM=dumb t; NO_COLOR=1 TERM=xterm t; NO_COLOR= TERM=xterm t; "
		"$ctl ls | grep -c $'\\033'; true";

	shell_expect(&sh, 0, "unset NO_COLOR; %s", script);
	ck_assert_str_eq(sh.out, "2\n0\n0\n2\n0\n");
}
END_TEST

START_TEST(a_table_fits_the_terminal_and_is_whole_in_a_pipe)
{
	static const char name[] = "a/name/that/is/much/longer/than/a/narrow/terminal/can/show";

	shell_expect(&sh, 0,
		     "$ctl create -q --size=1 %s\n"
		     "t() { script -qec \"stty cols $1; $ctl $2\" /dev/null | tr -d '\\r'; }\n"
		     "export NO_COLOR=1 TERM=xterm LC_ALL=C.UTF-8; unset COLUMNS\n"
		     "for w in 110 95 80 60 40; do\n"
		     "	t $w ls > out; [[ $(wc -L < out) -le $w && $(wc -l < out) == 2 ]] || exit "
		     "7\n"
		     "	tail -1 out | grep -q '^a/name.*….*/show .* shared' || exit 8\n"
		     "done\n"
		     /* Wide, or to a pipe, nothing is left out. The age grows meanwhile. */
		     "young() { sed -E 's/ +[0-9]+ ?[a-z]+$//'; }\n"
		     "t 40 'ls -w' | young | cmp - <(COLUMNS=40 $ctl ls | young) || exit 9\n"
		     "$ctl ls | grep -q %s || exit 9\n"
		     "t 150 ls | young | cmp - <($ctl ls | young) || exit 10\n"
		     /* What is no name, is wrapped. */
		     "t 40 'stat %s' > out && [[ $(wc -L < out) -le 40 ]] || exit 11\n"
		     "for w in 100 46 40 36; do\n"
		     "	t $w pools > out && [[ $(wc -L < out) -le $w ]] || exit 12\n"
		     "done",
		     name, name, name);
}
END_TEST

START_TEST(only_a_slow_put_shows_progress)
{
	ctl_write_npy("slow.npy", "'|u1'", "False", "(9000000,)", 9000000);
	/* The first chunk that arrives after one second draws the bar. */
	shell_expect(
		&sh, 0,
		"mkfifo pipe; (head -c 1000 slow.npy; sleep 1.1; tail -c +1001 slow.npy) > pipe &\n"
		"TERM=xterm script -qec \"$ctl put pipe slow\" /dev/null");
	says(" of 8.6 MiB, ");
	says("slow: sealed, 1 array, 8.6 MiB");
	shell_expect(&sh, 0, "TERM=xterm script -qec \"$ctl put slow.npy fast\" /dev/null");
	ck_assert_ptr_null(strstr(sh.out, " of "));
}
END_TEST

START_TEST(the_doctor_reports_each_fault_and_no_other)
{
	shell_expect(&sh, 0, "$ctl doctor");
	says("ok    daemon ");
	says("ok    host           host: written here, read by another process, the same");
	shell_expect(&sh, 0,
		     "$ctl doctor | grep -c 'read by another process' > a; "
		     "$ctl pools | tail -n +2 | wc -l > b; cmp a b");
	shell_expect(&sh, 0,
		     "! $ctl doctor | grep -q 'cuda:0.*vmm:' || $ctl doctor | grep -q "
		     "'cuda:0.*streams:'");
	/* A real driver would try to connect to that folder's server. */
	shell_expect(&sh, 0,
		     "$ctl doctor | grep -q 'Fake H200' || exit 0\n"
		     "mkdir mps; touch mps/control\n"
		     "CUDA_MPS_PIPE_DIRECTORY=$PWD/mps $ctl doctor | grep -q '^warn  MPS' && "
		     "! CUDA_MPS_PIPE_DIRECTORY=$PWD/none $ctl doctor | grep -q MPS");
	shell_expect(&sh, 1, "$ctl --socket=$PWD/none doctor");
	says("fail  socket ");
	says("start the daemon");
	says("in a container, mount");
	/* The README says: from Linux 6.5 on, a container needs no host PIDs. */
	shell_expect(&sh, 0,
		     "unshare --user --map-root-user --pid --fork --mount-proc true || exit 0\n"
		     "unshare --user --map-root-user --pid --fork --mount-proc $ctl doctor > out\n"
		     "grep -q \"pidfd .*the kernel names a socket's process\" out || exit 0\n"
		     "grep -q '^ok    container .*PID namespace of its own' out && "
		     "! grep -q -e '--pid=host' out");
	shell_expect(&sh, 1, "touch file; $ctl --socket=$PWD/file doctor");
	says("not a socket");
}
END_TEST

START_TEST(opens_of_a_buffer_are_counted)
{
	shell_expect(&sh, 0,
		     "$ctl create -q --size=1 x; $ctl stat --json x | grep -q '\"opens\":0[,}]' || "
		     "exit 7\n"
		     "$ctl get -q x x.npy; $ctl hold x < /dev/null > /dev/null\n"
		     "$ctl ls --json | grep -q '\"opens\":2[,}]'");
}
END_TEST

START_TEST(a_count_of_one_is_in_the_singular)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --size=1 x; mkfifo in; $ctl hold x < in > out & exec 4> in\n"
		"until grep -q held out; do :; done; $ctl status; $ctl stat x; $ctl doctor -q; "
		"exec 4>&-; wait");
	says("1 buffer, 1 lease, 2 connections, 0 waiting");
	says("held by    1 reader, 0 writers\n");
	ck_assert_msg(!strstr(sh.out, "1 buffers") && !strstr(sh.out, "1 warnings"), "%s", sh.out);
}
END_TEST

/* A user has a name, and permissions are written as stat(1) and ls(1) write them. */
START_TEST(users_and_modes_are_shown_as_words_and_numbers)
{
	shell_expect(&sh, 0, "$ctl create -q --size=1 --mode=0640 x; $ctl stat x; echo; id -u");
	says(", mode 0640 (rw-r-----)\n");
	shell_expect(
		&sh, 0,
		"[[ $($ctl stat x) == *\"$(id -un):$(id -gn) ($(id -u):$(id -g)), mode\"* ]] && "
		"$ctl hold x --json < /dev/null > /dev/null && $ctl stat x --json > out && "
		"grep -q '\"uid\":'$(id -u)',\"user\":\"'$(id -un)'\"' out && "
		"grep -q '\"gid\":'$(id -g)',\"group\":\"'$(id -gn)'\"' out");
}
END_TEST

START_TEST(a_closed_pipe_ends_a_command_silently)
{
	shell_expect(
		&sh, 0,
		"trap '' PIPE; $ctl create -q --size=9M x; $ctl get x - | head -c 1 > /dev/null; "
		"$ctl ls | true; true");
	ck_assert_str_eq(sh.err, "");
}
END_TEST

START_TEST(each_command_has_help_with_its_options)
{
	shell_expect(&sh, 0,
		     "$ctl help rm | cmp - <($ctl rm --help) && $ctl help | cmp - <($ctl --help) "
		     "&& $ctl help help | grep -q 'help \\[COMMAND\\]'");
	shell_expect(&sh, 2, "$ctl help crate");
	complains("did you mean \"create\"?");
	shell_expect(&sh, 2, "$ctl help rm ls");
	complains("too many words");
	shell_expect(
		&sh, 0,
		"for c in $($ctl help | sed -n '/^Commands/,/^$/s/^  \\([a-z]*\\) .*/\\1/p'); do "
		"$ctl $c --help | grep -q -- --socket || exit 1; done");
	shell_expect(&sh, 0, "$ctl --version");
	says("gpushmctl " GPUSHM_VERSION " (libgpushm " GPUSHM_VERSION ")");
}
END_TEST

/* "none" is waited for in the daemon when that is stopped. */
START_TEST(a_daemon_that_does_not_reply_is_named_and_ends_a_command)
{
	shell_expect(&sh, 4,
		     "number() { $ctl status --json | grep -o \"\\\"$1\\\": *[0-9]*\" | grep -o "
		     "'[0-9]*$'; }\n"
		     "pid=$(number pid)\n"
		     "GPUSHM_TIMEOUT_MS=200 $ctl wait --timeout=3s none & wait=$!\n"
		     "until [[ $(number waiting) == 1 ]]; do :; done\n"
		     "kill -STOP $pid; wait $wait; code=$?; kill -CONT $pid\n"
		     "$ctl status > /dev/null && exit $code");
	complains("is stopped (state T)");
	complains("not replied to STAT");
	shell_expect(&sh, 4, "GPUSHM_TIMEOUT_MS=x $ctl status");
	complains("GPUSHM_TIMEOUT_MS=x");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ctl_scripts");

	tcase_set_timeout(tc, 180);
	tcase_add_checked_fixture(tc, ctl_setup, ctl_teardown);
	tcase_add_test(tc, a_watch_prints_each_event);
	tcase_add_test(tc, a_pattern_removes_exactly_what_it_matches);
	tcase_add_test(tc, mv_renames_a_buffer_and_replaces_only_by_force);
	tcase_add_test(tc, a_watch_says_what_is_replaced);
	tcase_add_test(tc, a_hold_lasts_until_its_input_ends);
	tcase_add_test(tc, a_hold_tries_again_until_the_daemon_has_descriptors);
	tcase_add_test(tc, a_transient_buffer_ends_with_its_command);
	tcase_add_test(tc, json_output_is_valid_json);
	tcase_add_test(tc, commands_names_and_options_are_completed);
	tcase_add_test(tc, the_name_of_an_array_is_completed);
	tcase_add_test(tc, a_completion_quotes_a_name_and_runs_nothing);
	tcase_add_test(tc, colours_respect_the_terminal_and_no_color);
	tcase_add_test(tc, a_table_fits_the_terminal_and_is_whole_in_a_pipe);
	tcase_add_test(tc, only_a_slow_put_shows_progress);
	tcase_add_test(tc, the_doctor_reports_each_fault_and_no_other);
	tcase_add_test(tc, opens_of_a_buffer_are_counted);
	tcase_add_test(tc, a_count_of_one_is_in_the_singular);
	tcase_add_test(tc, users_and_modes_are_shown_as_words_and_numbers);
	tcase_add_test(tc, a_closed_pipe_ends_a_command_silently);
	tcase_add_test(tc, a_daemon_that_does_not_reply_is_named_and_ends_a_command);
	tcase_add_test(tc, each_command_has_help_with_its_options);
	return suite_run("ctl_scripts", tc, NULL);
}
