/* SPDX-License-Identifier: MIT
 *
 * gpushmctl with a real daemon: data come back byte for byte from every pool; each exit code has
 * its message; a command that fails or is interrupted leaves nothing behind.
 */
#include "proto/base/own.h"
#include "tests/lib/ctl.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *descr, *fortran, *shape;
	size_t bytes;
} files[] = {
	{ "'|b1'", "False", "(7,)", 7 },
	{ "'|i1'", "False", "(3, 5)", 15 },
	{ "'<i2'", "False", "(3, 5)", 30 },
	{ "'<i4'", "True", "(3, 5)", 60 },
	{ "'<i8'", "False", "()", 8 },
	{ "'|u1'", "False", "(0, 4)", 0 },
	{ "'<u2'", "True", "(2, 3, 4)", 48 },
	{ "'<u4'", "False", "(1, 1, 1, 6)", 24 },
	{ "'<u8'", "False", "(2,)", 16 },
	{ "'<f2'", "False", "(5, 2)", 20 },
	{ "'<f4'", "True", "(64, 33)", 8448 },
	{ "'<f8'", "False", "(300, 11)", 26400 },
	{ "'<c8'", "False", "(3,)", 24 },
	{ "'<c16'", "True", "(2, 2)", 64 },
	{ "'<V2'", "False", "(9, 3)", 54 },
	{ "'|V5'", "False", "(3,)", 15 },
	{ "'|S10'", "False", "(4,)", 40 },
	{ "'<U3'", "False", "(2,)", 24 },
	{ "'<M8[us]'", "False", "(3,)", 24 },
	{ "[('id', '<i8'), ('box', '<f4', (2, 2)), ('', '|V4')]", "False", "(3,)", 84 },
	{ "[('a', [('b', '<u2'), ('c', '|S3')]), ('d', '<f8')]", "True", "(2, 2)", 52 },
};

START_TEST(an_array_comes_back_unchanged)
{
	char name[16], put[1024] = "";

	for (size_t i = 0; i < array_size(files); i++) {
		snprintf(name, sizeof(name), "%zu.npy", i);
		ctl_write_npy(name, files[i].descr, files[i].fortran, files[i].shape,
			      files[i].bytes);
		snprintf(put + strlen(put), sizeof(put) - strlen(put), " a%zu=%s", i, name);
	}
	/* In every pool: each array in a buffer of its own, and all arrays in one buffer. */
	shell_expect(&sh, 0,
		     "pools=$($ctl pools | awk 'NR > 1 { print $1 }')\n"
		     "[[ $pools ]] || exit 9\n"
		     "for pool in $pools; do\n"
		     "	$ctl put -q --pool=$pool all/$pool %s || exit\n"
		     "	for ((i = 0; i < %zu; i++)); do\n"
		     "		$ctl put -q --pool=$pool $i.npy one || exit\n"
		     "		$ctl get -q one out.npy && cmp $i.npy out.npy || exit\n"
		     "		$ctl rm one || exit\n"
		     "		$ctl get -q all/$pool:a$i - | cmp $i.npy - || exit\n"
		     "	done\n"
		     "	$ctl rm all/$pool || exit\n"
		     "done",
		     put, array_size(files));
}
END_TEST

START_TEST(a_pipe_carries_every_chunk)
{
	/* More than two chunks, and not a multiple of a chunk. */
	ctl_write_npy("big.npy", "'|u1'", "False", "(20971521,)", 20971521);
	shell_expect(&sh, 0,
		     "for pool in $($ctl pools | awk 'NR > 1 { print $1 }'); do\n"
		     "	cat big.npy | $ctl put -q --pool=$pool - big || exit\n"
		     "	$ctl get big - | cat | cmp - big.npy || exit\n"
		     "	$ctl get -q --raw big raw && tail -c 20971521 big.npy | cmp - raw || exit\n"
		     "	$ctl rm big && $ctl create -q --pool=$pool --from raw --size=20971521 big "
		     "|| exit\n"
		     "	$ctl get big - | cmp - big.npy && $ctl rm big || exit\n"
		     "done");
}
END_TEST

START_TEST(a_new_buffer_is_zero)
{
	shell_expect(&sh, 0,
		     "for pool in $($ctl pools | awk 'NR > 1 { print $1 }'); do\n"
		     "	head -c 4194304 /dev/urandom | $ctl create -q --pool=$pool --from=- "
		     "--size=4M a && $ctl rm a || exit\n"
		     "	$ctl create -q --pool=$pool --shape=1024,1024 --dtype=float32 b || exit\n"
		     "	$ctl get --raw b - | cmp - <(head -c 4194304 /dev/zero) && $ctl rm b || "
		     "exit\n"
		     "done");
}
END_TEST

START_TEST(float8_and_float4_come_back_unchanged)
{
	ctl_write_npy("bytes.npy", "'|u1'", "False", "(6, 8)", 48);
	shell_expect(&sh, 0,
		     "$ctl put -q --dtype=float8_e4m3fn bytes.npy f8 || exit\n"
		     "$ctl stat --arrays f8 | grep -q 'float8_e4m3fn *(6, 8)' || exit\n"
		     "$ctl get -q f8 out.npy && grep -aq \"'|V1'\" out.npy || exit\n"
		     "cmp <(tail -c 48 bytes.npy) <(tail -c 48 out.npy) || exit\n"
		     "tail -c 48 bytes.npy | $ctl create -q --dtype=float4_e2m1fn --shape=12,8 "
		     "--from=- f4 || exit\n"
		     "$ctl get --raw f4 - | cmp - <(tail -c 48 bytes.npy)");
	shell_expect(&sh, 1, "echo old > keep; $ctl get f4 keep");
	complains("--raw");
	shell_expect(&sh, 0, "[[ $(cat keep) == old && $(echo keep*) == keep ]]");
}
END_TEST

START_TEST(create_takes_the_size_from_a_regular_file)
{
	/* A regular file has a size, also from where a reader of it has stopped; a device has no
	 * end. */
	ctl_write_npy("two.npy", "'|u1'", "False", "(1500,)", 1500);
	shell_expect(&sh, 0,
		     "tail -c 1500 two.npy > raw; : > empty\n"
		     "for pool in $($ctl pools | awk 'NR > 1 { print $1 }'); do\n"
		     "	$ctl create -q --pool=$pool --from=raw a || exit\n"
		     "	$ctl get --raw a - | cmp - raw && $ctl rm a || exit\n"
		     "	$ctl create -q --pool=$pool --from=raw --dtype=float32 a || exit\n"
		     "	$ctl stat --arrays a | grep -q '(375,)' && $ctl rm a || exit\n"
		     "	{ read -r -N 1; $ctl create -q --pool=$pool --from=- a; } < raw || exit\n"
		     "	$ctl get --raw a - | cmp - <(tail -c +2 raw) && $ctl rm a || exit\n"
		     "	$ctl create -q --pool=$pool --from=/dev/zero --size=10 a && $ctl rm a "
		     "|| exit\n"
		     "done");
	shell_expect(&sh, 0, "$ctl create -q --from=empty a && $ctl get --raw a - | cmp - empty");
}
END_TEST

static const struct {
	int status;
	const char *command, *says;
} failures[] = {
	{ 2, "$ctl", "a command is missing" },
	{ 2, "$ctl statsu", "did you mean \"status\"?" },
	{ 2, "$ctl ls --hodlers", "did you mean --holders?" },
	{ 2, "$ctl stat", "something is missing" },
	{ 2, "$ctl get a b c", "too many words" },
	{ 2, "$ctl restart now", "too many words: gpushmctl restart\n" },
	{ 2, "$ctl put a b c", "ARRAY=FILE" },
	{ 2, "$ctl create x", "--size or --shape" },
	{ 2, "$ctl create x --size=7 --dtype=float32", "whole number" },
	{ 2, "$ctl create x --shape=4,a", "8,1080" },
	{ 2, "$ctl create x --size=1 --sealed --shared", "choose one" },
	{ 2, "$ctl create x --size=1 --attr=novalue", "KEY=VALUE" },
	{ 2, "$ctl create x --size=1 --group=nosuchgroup", "no group" },
	{ 2, "$ctl create x --shape=4 --dtype=float33", "float33" },
	{ 2, "$ctl --json=tall ls", "--json=pretty" },
	{ 3, "$ctl stat nothing", "nothing" },
	{ 3, "$ctl rm nothing", "nothing" },
	{ 3, "$ctl get nothing file", "nothing" },
	{ 3, "$ctl hold nothing", "nothing" },
	{ 3, "$ctl create --pool=nothing --size=1 x", "nothing" },
	{ 3, "$ctl get two file", "its 2 arrays are \"x\", \"y\"" },
	{ 3, "$ctl get two:z file", "no array \"z\"" },
	{ 4, "$ctl -s /nonexistent/socket status", "/nonexistent/socket" },
	{ 5, "$ctl wait nothing --timeout=10ms", "nothing" },
	{ 5, "$ctl wait nothing --timeout=0", "nothing" },
	{ 5, "$ctl watch nothing --timeout=10ms", "nothing that is watched" },
	{ 2, "$ctl watch nothing --count=0", "whole number of at least 1" },
	{ 2, "$ctl watch nothing --count=2x", "whole number of at least 1" },
	{ 1, "$ctl watch a//b", "a//b" },
	{ 2, "$ctl watch 'm/*'", "gpushmctl events prints what happens" },
	{ 2, "$ctl watch m/", "is a pattern" },
	{ 1, "$ctl watch two --count=1 > /dev/full", "No space left" },
	{ 1, "$ctl put two.npy two", "two" },
	{ 1, "$ctl put nothing.npy x", "No such file" },
	{ 1, "$ctl put /dev/null x", "too short" },
	{ 1, "head -c 130 two.npy > cut; $ctl put cut x", "of 8 bytes, but 2 bytes follow" },
	{ 1, "head -c 130 two.npy | $ctl put - x", "it has 2 of the 8 bytes" },
	{ 1, "cat two.npy two.npy > long; $ctl put long x", "of 8 bytes, but 144 bytes follow" },
	{ 1, "cat two.npy two.npy | $ctl put - x", "more than the 8 bytes" },
	{ 1, "$ctl put raw x", "gpushmctl create --from takes" },
	{ 1, "printf 'PK\\003\\004 and more' > x.npz; $ctl put x.npz x", "unzip it" },
	{ 1, "$ctl create --from=raw -S 1000 x", "has 1500 bytes, but the array needs 1000" },
	{ 1, "$ctl create --from=raw -S 2000 x", "has 1500 bytes, but the array needs 2000" },
	{ 1, "$ctl create --from=raw -n 10,10 -d float32 x", "but the array needs 400: leave out" },
	{ 1, "$ctl create --from=- -S 1000 x < raw", "has 1500 bytes, but" },
	{ 1, "cat raw | $ctl create --from=- -S 1000 x", "more than the 1000 bytes" },
	{ 1, "cat raw | $ctl create --from=- -S 2000 x", "it has 1500 of the 2000 bytes" },
	{ 2, "cat raw | $ctl create --from=- x", "give --size or --shape" },
	{ 2, "$ctl create --size=0 x", "\"0\" is not a size: it must be at least 1" },
	{ 2, "$ctl create --size=0 --from=raw x", "\"0\" is not a size" },
	{ 2, "$ctl create --from=/dev/zero x", "give --size or --shape" },
	{ 2, "$ctl create --from=raw -d float64 x",
	  "1500 bytes are not a whole number of float64" },
	{ 1, "$ctl get two:x /dev/full", "No space left" },
	{ 1, "$ctl get two:x nothing/file", "No such file" },
	{ 3, "$ctl rm nope", "gpushmctl: no buffer \"nope\"; gpushmctl ls shows what there is\n" },
	{ 3, "$ctl mv nope other", "no buffer \"nope\" (gpushmctl ls shows what there is)\n" },
	{ 3,
	  "$ctl create -q --size=1 d/a && $ctl create -q --size=1 d/b && $ctl rm d; r=$?; "
	  "$ctl rm d/; exit $r",
	  "no buffer \"d\"; gpushmctl rm d/ removes the 2 below it" },
	{ 2, "$ctl put new two.npy", "\"new\" is no file; write gpushmctl put FILE.npy NAME" },
	{ 2, "$ctl put x=two.npy two.npy new", "\"two.npy\" is not ARRAY=FILE; write gpushmctl" },
	{ 1, "$ctl hold --write two < /dev/null", "sealed" },
	{ 1, "$ctl create '../x' --size=1", "../x" },
	{ 1, "$ctl ls > /dev/full", "No space left" },
};

START_TEST(a_failure_has_its_exit_code_and_message)
{
	ctl_write_npy("two.npy", "'<f4'", "False", "(2,)", 8);
	/* The name comes last; version 0.2 had it first. */
	shell_expect(&sh, 0,
		     "$ctl put -q old x=two.npy y=two.npy && $ctl put -q =two.npy a=b && "
		     "$ctl put -q - two.npy < two.npy && $ctl rm two.npy && "
		     "$ctl put -q x=two.npy y=two.npy two; head -c 1500 /dev/zero > raw\n"
		     "[[ $(echo $($ctl ls --names-only)) == 'a=b old two' ]] && $ctl rm old a=b");
	for (size_t i = 0; i < array_size(failures); i++) {
		shell_expect(&sh, failures[i].status, "%s", failures[i].command);
		complains(failures[i].says);
		ck_assert_str_eq(sh.out, "");
	}
	/* The failures have created nothing. */
	shell_expect(&sh, 0, "[[ $($ctl ls --names-only) == two ]]");
}
END_TEST

START_TEST(a_failed_write_to_standard_output_is_named)
{
	shell_expect(&sh, 1, "$ctl create --size=1 x > /dev/full");
	complains("standard output: No space left on device");
	/* It is published by then. */
	shell_expect(&sh, 0, "$ctl rm x");
}
END_TEST

START_TEST(an_interrupted_put_leaves_no_buffer)
{
	/* Far more than a pipe holds: once all of it is written, the transfer has begun. */
	ctl_write_npy("some.npy", "'|u1'", "False", "(1000000,)", 900000);
	shell_expect(&sh, 143,
		     "mkfifo pipe; $ctl put pipe half & put=$!\n"
		     "exec 3> pipe; cat some.npy >&3\n"
		     "kill -TERM $put; wait $put; status=$?\n"
		     "$ctl stat half &> /dev/null; [[ $? == 3 ]] || exit 1\n"
		     "exit $status");
	complains("interrupted");
}
END_TEST

START_TEST(an_interrupted_get_leaves_no_file)
{
	shell_expect(&sh, 0,
		     "$ctl create -q --size=30M big; mkfifo pipe\n"
		     "$ctl get big pipe & get=$!\n"
		     "exec 3< pipe; head -c 100 <&3 > /dev/null\n"
		     "kill -TERM $get; wait $get; [[ $? == 143 && $(echo *) == pipe ]]");
}
END_TEST

START_TEST(a_failed_copy_from_a_gpu_is_named_and_leaves_no_file)
{
	if (shell_run(&sh, "[[ ${FAKECUDA_STRICT-} ]]") != 0) {
		printf("skipped: the fake driver makes a copy fail\n");
		return;
	}
	shell_expect(
		&sh, 0,
		"head -c 20000000 /dev/urandom > in; $ctl create -q --pool=gpu0 --from=in big\n"
		"for n in 1 2 3 5; do\n"
		"	FAKECUDA_FAIL=$n:cuMemcpyDtoHAsync $ctl get --raw big out 2> err; r=$?\n"
		"	((r == 1)) && grep -q cuMemcpyDtoHAsync err && [[ $(echo out*) == 'out*' "
		"]] "
		"|| exit 9\n"
		"done\n"
		"$ctl get -q --raw big out && cmp in out");
}
END_TEST

START_TEST(get_writes_through_a_link_and_keeps_the_mode)
{
	shell_expect(
		&sh, 0,
		"$ctl create -q --size=3K x; echo old > real; chmod 0640 real; ln -s real link\n"
		"$ctl get -q x link && [[ -L link && $(stat -c %%a real) == 640 ]] || exit 1\n"
		"$ctl get x - | cmp - real || exit 1\n"
		"umask 0027; $ctl get -q x new && [[ $(stat -c %%a new) == 640 ]] || exit 1\n"
		/* /dev/stdout is such a link; get as root could replace it. */
		"mkdir d; ln -s /proc/self/fd/1 d/stdout\n"
		"$ctl get -q x d/stdout > out && [[ -L d/stdout ]] && cmp real out || exit 1\n"
		"$ctl get -q x d/stdout | cmp - real && [[ $(echo * d/*) == 'd link new out "
		"real d/stdout' ]]");
}
END_TEST

START_TEST(get_and_save_write_only_the_bytes_to_dev_stdout)
{
	shell_expect(&sh, 0,
		     "$ctl create -q --size=3K x; head -c 3072 /dev/zero > in\n"
		     "for json in '' --json; do\n"
		     "	$ctl get $json --raw x /dev/stdout | cmp - in || exit 1\n"
		     "	$ctl get $json --raw x /dev/stdout > out; cmp out in || exit 2\n"
		     "	$ctl save $json x /dev/stdout | cmp - <($ctl save x -) || exit 3\n"
		     "done\n"
		     "[[ $($ctl get --raw x out) == 'out: '* && $($ctl save x s) == 's: '* ]]");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ctl");

	tcase_set_timeout(tc, 180);
	tcase_add_checked_fixture(tc, ctl_setup, ctl_teardown);
	tcase_add_test(tc, an_array_comes_back_unchanged);
	tcase_add_test(tc, a_pipe_carries_every_chunk);
	tcase_add_test(tc, a_new_buffer_is_zero);
	tcase_add_test(tc, float8_and_float4_come_back_unchanged);
	tcase_add_test(tc, create_takes_the_size_from_a_regular_file);
	tcase_add_test(tc, a_failure_has_its_exit_code_and_message);
	tcase_add_test(tc, a_failed_write_to_standard_output_is_named);
	tcase_add_test(tc, an_interrupted_put_leaves_no_buffer);
	tcase_add_test(tc, an_interrupted_get_leaves_no_file);
	tcase_add_test(tc, a_failed_copy_from_a_gpu_is_named_and_leaves_no_file);
	tcase_add_test(tc, get_writes_through_a_link_and_keeps_the_mode);
	tcase_add_test(tc, get_and_save_write_only_the_bytes_to_dev_stdout);
	return suite_run("ctl", tc, NULL);
}
