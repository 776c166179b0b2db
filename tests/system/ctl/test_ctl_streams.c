/* SPDX-License-Identifier: MIT
 *
 * gpushmctl streams and follow, and what ls and stat say of a stream. Producers and readers are
 * children of the test, so that they can be killed and stopped.
 */
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "tests/lib/ctl.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define SLOTS 4

/* What a producer does. */
struct plan {
	uint32_t flags;
	uint64_t limit_ms, frames; /* frames: then it waits for a reader, and closes the stream */
	bool two_arrays;
};

static pid_t children[CHILDREN];
static size_t n_children;

static void must(int r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "child: %s\n", gpushm_error());
	_exit(1);
}

/* Returns 0 in the child. */
static pid_t child(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	else
		children[n_children++] = pid;
	return pid;
}

static void publish(struct gpushm_stream *s, uint64_t i)
{
	struct gpushm_frame *f = NULL;
	struct gpushm_array *a = NULL;
	char meta[32];
	float x[6];

	must(gpushm_frame_begin(s, GPUSHM_ON_HOST, GPUSHM_WAIT_FOREVER, &f));
	must(gpushm_frame_array(f, "x", &a));
	for (int k = 0; k < 6; k++)
		x[k] = (float)(i * 10 + (uint64_t)k);
	must(gpushm_copy_from_host(a, x, NULL));
	gpushm_array_free(a);
	snprintf(meta, sizeof(meta), "frame %d", (int)i);
	must(gpushm_frame_publish(f, GPUSHM_ON_HOST, meta, strlen(meta)));
}

static void wait_for_a_reader(struct gpushm_stream *s)
{
	struct gpushm_stream_stats stats = { .struct_size = sizeof(stats) };

	while (stats.readers == 0) {
		usleep(2000);
		must(gpushm_stream_stats(s, &stats));
	}
}

/* A frame of 2 x 3 numbers each 4 ms: 10, 11, ... in frame 1. */
static pid_t produce(const char *name, const struct plan *p)
{
	static const int64_t shape[] = { 2, 3 };
	struct gpushm_array_spec arrays[] = {
		{ .struct_size = sizeof(*arrays), .name = "x", .ndim = 2, .shape = shape },
		{ .struct_size = sizeof(*arrays), .name = "y", .ndim = 1, .shape = shape }
	};
	struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
					   .arrays = arrays,
					   .n_arrays = p->two_arrays ? 2 : 1,
					   .slots = SLOTS,
					   .flags = p->flags,
					   .limit_ms = p->limit_ms };
	struct gpushm_stream *s = NULL;
	struct gpushm *c = NULL;
	pid_t pid = child();

	if (pid)
		return pid;
	must(gpushm_connect(NULL, &c));
	must(gpushm_dtype_parse("float32", &arrays[0].dtype));
	arrays[1].dtype = arrays[0].dtype;
	must(gpushm_stream_create(c, name, &spec, NULL, &s));
	for (uint64_t i = 1; p->frames == 0 || i <= p->frames; i++) {
		publish(s, i);
		if (p->frames == 0)
			usleep(4000);
	}
	wait_for_a_reader(s);
	gpushm_stream_close(s);
	gpushm_disconnect(c);
	_exit(0);
}

/* A reader that takes one frame, and never releases it. */
static pid_t hold(const char *name, enum gpushm_follow how)
{
	struct gpushm_stream *s = NULL;
	struct gpushm_frame *f = NULL;
	struct gpushm *c = NULL;
	pid_t pid = child();

	if (pid)
		return pid;
	must(gpushm_connect(NULL, &c));
	must(gpushm_stream_open(c, name, how, 1, 10000, NULL, &s));
	must(gpushm_frame_next(s, GPUSHM_ON_HOST, 10000, &f));
	for (;;)
		pause();
}

static void end(pid_t pid, int signal_number)
{
	kill(pid, signal_number);
	waitpid(pid, NULL, 0);
	for (size_t i = 0; i < n_children; i++)
		if (children[i] == pid)
			children[i] = 0;
}

static void teardown(void)
{
	for (size_t i = 0; i < n_children; i++)
		if (children[i])
			end(children[i], SIGKILL);
	n_children = 0;
	/* The daemon sees their ends, and drops what was theirs. */
	shell_expect(&sh, 0, "until [[ -z $($ctl streams --names-only) ]]; do sleep 0.01; done");
	ctl_teardown();
}

static const struct plan steady;

START_TEST(streams_are_in_the_order_of_their_names)
{
	static const char *const names[] = { "c", "a", "d", "b" };

	for (size_t i = 0; i < array_size(names); i++) {
		produce(names[i], &steady);
		shell_expect(&sh, 0, "$ctl wait -t10 %s", names[i]);
	}
	shell_expect(&sh, 0, "[[ $(echo $($ctl streams --names-only)) == 'a b c d' ]]");
}
END_TEST

START_TEST(top_shows_the_rate_and_the_producer_of_a_stream)
{
	pid_t pid = produce("cam", &steady);

	shell_expect(&sh, 0,
		     "$ctl wait -t10 cam; $ctl top --once --delay=0.3 > text\n"
		     "grep -Eq '^cam .* [0-9.]+ frames/s .* %d' text || { cat text; exit 6; }\n"
		     "$ctl top --json --once --delay=0.3 | grep -q '\"frames_per_second\": *[1-9]'",
		     pid);
}
END_TEST

/* ---- follow ---- */

/* check FILE FRAMES: the .npy file has so many frames, one number after the other. FRAMES 0: any.
 */
static const char check_npy[] =
	"check() { python3 - \"$@\" <<'EOF'\n"
	"import ast, struct, sys\n"
	"b = open(sys.argv[1], 'rb').read()\n"
	"assert b[:8] == b'\\x93NUMPY\\x01\\x00', b[:8]\n"
	"n = 10 + struct.unpack('<H', b[8:10])[0]\n"
	"h = ast.literal_eval(b[10:n].decode())\n"
	"frames = int(sys.argv[2]) or h['shape'][0]\n"
	"assert h == {'descr': '<f4', 'fortran_order': False, 'shape': (frames, 2, 3)}, h\n"
	"assert len(b) == n + frames * 24 and n % 64 == 0, (len(b), n)\n"
	"x = struct.unpack(f'<{frames * 6}f', b[n:])\n"
	"first = x[0]\n"
	"assert x == tuple(first + 10 * (i // 6) + i % 6 for i in range(frames * 6)), x\n"
	"EOF\n}\n";

START_TEST(follow_prints_the_published_frames)
{
	produce("cam", &steady);
	shell_expect(&sh, 0,
		     "$ctl follow --timeout=10 --every --count=3 cam > lines\n"
		     "[[ $(wc -l < lines) == 3 ]] || exit 6\n"
		     "read -r time _ first _ slot rest < lines\n"
		     "[[ $time == 20*Z && $rest == *'ms old, meta frame '* ]] || exit 7\n"
		     "n=${first%%,}; while read -r _ _ frame _ _ _ _ _ _ meta; do\n"
		     "	[[ $frame == $n, && $meta == \"frame $n\" ]] || exit 8\n"
		     "	n=$((n + 1))\n"
		     "done < lines");
	shell_expect(&sh, 0,
		     "$ctl follow --count=2 --json cam > lines; python3 -c '\n"
		     "import json\n"
		     "a, b = [json.loads(line) for line in open(\"lines\")]\n"
		     "assert b[\"frame\"] > a[\"frame\"] and a[\"ok\"] and a[\"age_ms\"] >= 0, a\n"
		     "assert a[\"meta\"] == \"frame %%d\" %% a[\"frame\"], a\n"
		     "assert b[\"skipped\"] == b[\"frame\"] - a[\"frame\"] - 1, b\n"
		     "assert list(a) == [\"frame\", \"time\", \"age_ms\", \"slot\", \"skipped\", "
		     "\"ok\", \"meta\"]\n'");
	shell_expect(&sh, 0, "[[ -z $($ctl follow -q --count=2 cam) ]]");
}
END_TEST

START_TEST(follow_records_frames_in_a_numpy_file)
{
	produce("cam", &steady);
	shell_expect(
		&sh, 0,
		"%s$ctl follow -t10 --every --count=7 --out=7.npy cam > said || exit\n"
		"check 7.npy 7 && [[ $(tail -n1 said) == '7.npy: 7 frames' ]] || exit 7\n"
		"$ctl follow --every -c5 -o - cam | cat > pipe.npy; check pipe.npy 5 || exit 8\n"
		"$ctl follow --every -c5 -o - --raw -A x cam | wc -c | grep -qx 120 || exit 9\n"
		"[[ $(echo *) == '7.npy pipe.npy said' ]]",
		check_npy);
	shell_expect(&sh, 2, "$ctl follow -o - cam");
	complains("give --count or --raw");
	shell_expect(&sh, 3, "$ctl follow -c1 --out=z.npy --array=z cam");
	complains("no array \"z\"; its only array is \"x\"");
	shell_expect(&sh, 1, "$ctl follow -c1 --out=/dev/full --raw cam");
	complains("No space left");
	shell_expect(&sh, 1, "$ctl follow -c1 --out=no/folder.npy cam");
	complains("No such file");
	shell_expect(&sh, 0, "[[ $(echo *) == '7.npy pipe.npy said' ]]");
}
END_TEST

START_TEST(a_signal_keeps_the_recorded_frames)
{
	produce("cam", &steady);
	shell_expect(&sh, 0,
		     "%s$ctl follow -t10 --every --out=x.npy cam > lines & pid=$!\n"
		     "until [[ -s lines ]] && (($(wc -l < lines) >= 20)); do :; done\n"
		     "kill -TERM $pid; wait $pid; [[ $? == 143 ]] || exit 6\n"
		     "check x.npy 0 || exit 7\n"
		     "[[ $(echo *) == 'lines x.npy' ]]",
		     check_npy);
}
END_TEST

/* The size of a file ends here, as the space of a disk does. */
START_TEST(a_full_disk_keeps_the_recorded_frames)
{
	produce("cam", &steady);
	shell_expect(
		&sh, 0,
		"%s(ulimit -f 1; trap '' XFSZ; exec $ctl follow -q -t10 --every --out=x.npy cam)\n"
		"[[ $? == 1 ]] || exit 6\n"
		"check x.npy 37 || exit 7\n"
		"[[ $(echo *) == x.npy ]]",
		check_npy);
	complains("x.npy: File too large");
}
END_TEST

START_TEST(recording_a_stream_of_two_arrays_needs_the_name_of_one)
{
	produce("cam", &(struct plan){ .two_arrays = true });
	shell_expect(&sh, 3, "$ctl follow -t10 --count=1 --out=x.npy cam");
	complains("its 2 arrays are \"x\", \"y\"");
	shell_expect(&sh, 0, "%s$ctl follow -e -c4 --out=x.npy -A x cam && check x.npy 4",
		     check_npy);
}
END_TEST

START_TEST(the_end_of_a_stream_is_an_error_only_before_the_count)
{
	static const struct plan three = { .flags = GPUSHM_KEEP_QUEUE, .frames = 3 };

	produce("cam", &three);
	shell_expect(&sh, 0,
		     "$ctl follow -t10 --share cam > lines; [[ $? == 0 ]] || exit\n"
		     "[[ $(cut -d' ' -f3 lines | tr -d '\\n') == 1,2,3, ]]");
	produce("cam2", &three);
	shell_expect(&sh, 1, "$ctl follow -t10 --share --count=9 cam2");
	complains("the stream ended after 3 of 9 frames");
}
END_TEST

START_TEST(follow_reports_the_death_of_a_producer_once)
{
	pid_t pid = produce("cam", &steady);

	shell_expect(&sh, 0,
		     "$ctl follow -q -t10 --count=1 cam\n"
		     "{ $ctl follow cam --timeout=2 > out 2> said; : > ended; } &\n"
		     "until [[ -s out ]]; do :; done");
	end(pid, SIGKILL);
	shell_expect(
		&sh, 0,
		"until grep -q 'the producer died' said; do [[ ! -e ended ]] || exit 6; done\n"
		"[[ $($ctl streams -d0) == *orphaned*'another one may continue'* ]] || exit 7\n"
		"until [[ -e ended ]]; do sleep 0.1; done; grep -q 'no frame came' said || exit 8\n"
		"[[ $(grep -c died said) == 1 ]]");
}
END_TEST

START_TEST(a_dropped_reader_ends_with_a_message)
{
	produce("cam", &(struct plan){ .limit_ms = 50 });
	shell_expect(&sh, 0,
		     "$ctl follow -t10 --every cam > lines 2> said & pid=$!\n"
		     "until [[ -s lines ]]; do :; done; kill -STOP $pid\n"
		     "until [[ $($ctl streams -d0) == *dropped* ]]; do :; done\n"
		     "kill -CONT $pid; wait $pid; [[ $? == 1 ]] || exit 6\n"
		     "grep -q 'this reader was dropped' said");
}
END_TEST

START_TEST(follow_ends_with_its_reader)
{
	produce("cam", &steady);
	shell_expect(&sh, 0, "$ctl follow -t10 cam | head -n1 > line; [[ -s line ]]");
}
END_TEST

static const struct {
	int status;
	const char *command, *says;
} failures[] = {
	{ 2, "$ctl follow", "something is missing" },
	{ 2, "$ctl follow a b", "too many words" },
	{ 2, "$ctl follow --every --latest cam", "choose one" },
	{ 2, "$ctl follow --raw cam", "are for --out" },
	{ 2, "$ctl follow --array=x cam", "are for --out" },
	{ 2, "$ctl follow --count=0 cam", "whole number of at least 1" },
	{ 2, "$ctl follow --lates cam", "did you mean --latest?" },
	{ 2, "$ctl folow cam", "did you mean \"follow\"?" },
	{ 2, "$ctl stream", "did you mean \"streams\"?" },
	{ 2, "$ctl streams a b", "too many words" },
	{ 3, "$ctl follow nothing", "nothing" },
	{ 5, "$ctl follow --timeout=20ms nothing", "nothing" },
	{ 1, "$ctl follow plain", "plain" },
	{ 1, "$ctl follow --count=1 cam > /dev/full", "No space left" },
	{ 1, "$ctl streams > /dev/full", "No space left" },
	{ 4, "$ctl -s /nonexistent/socket streams", "/nonexistent/socket" },
};

START_TEST(a_mistake_has_its_exit_code_and_message)
{
	produce("cam", &steady);
	shell_expect(&sh, 0, "$ctl follow -q -t10 -c1 cam; $ctl create -q --size=8 plain");
	for (size_t i = 0; i < array_size(failures); i++) {
		shell_expect(&sh, failures[i].status, "%s", failures[i].command);
		complains(failures[i].says);
	}
}
END_TEST

/* ---- streams, ls, stat ---- */

START_TEST(streams_ls_and_stat_show_a_stream_and_its_readers)
{
	produce("cam", &steady);
	shell_expect(
		&sh, 0,
		"$ctl follow -q -t10 --every cam & pid=$!\n"
		"until [[ $($ctl streams -d0) == *every* ]]; do :; done\n"
		"$ctl streams --json > list; $ctl streams > text; $ctl stat cam > stat\n"
		"$ctl stat --json cam > stat.json; $ctl ls > ls; $ctl ls --json > ls.json\n"
		"kill $pid; python3 -c '\n"
		"import json\n"
		"[s] = json.load(open(\"list\"))\n"
		"assert s[\"name\"] == \"cam\" and s[\"state\"] == \"running\", s\n"
		"assert s[\"slots\"] == 4 and s[\"newest\"] > 0 and s[\"limit_ms\"] == 10000\n"
		"assert 5 < s[\"rate\"] <= 260, s\n"
		"[r] = s[\"readers\"]\n"
		"assert r[\"follow\"] == \"every\" and r[\"command\"] == \"gpushmctl\", r\n"
		"assert r[\"taken\"] > 0 and r[\"rate\"] > 5 and not r[\"stuck\"], r\n"
		"b = json.load(open(\"stat.json\"))\n"
		"assert b[\"stream\"] and b[\"stream_details\"][\"slots\"] == 4, b\n"
		"assert b[\"stream_details\"].keys() == s.keys()\n"
		"assert json.load(open(\"ls.json\"))[0][\"stream\"]\n"
		"' || exit 6\n"
		"grep -q '^cam  *running' text && grep -q '^  reader 0  every' text || exit 7\n"
		"grep -q '^state *shared, stream' stat && grep -q '^stream *running' stat || "
		"exit 8\n"
		"grep -q '^slots *4 of ' stat && grep -q '^readers *0: .*gpushmctl' stat || exit "
		"9\n"
		"grep -q 'shared, stream' ls");
	shell_expect(&sh, 0,
		     "$ctl create -q --size=8 plain; [[ $($ctl streams --json plain) == "
		     "'[]' ]] || exit 6\n"
		     "$ctl stat --json plain | grep -q '\"stream\":false' || exit 7\n"
		     "! $ctl stat plain | grep -q ^slots");
}
END_TEST

START_TEST(metrics_count_a_stream)
{
	produce("cam", &steady);
	shell_expect(&sh, 0,
		     "$ctl follow -q -t10 -c1 cam; $ctl metrics > sums; $ctl metrics --by-stream > "
		     "each\n"
		     "grep -q '^gpushm_streams{state=\"running\"} 1$' sums || exit 6\n"
		     "grep -q '^gpushm_streams_frames_total [1-9]' sums || exit 7\n"
		     "! grep -q cam sums || exit 8\n"
		     "grep -q '^gpushm_stream_frames_total{stream=\"cam\",id=\"[0-9]*\"} [1-9]' "
		     "each");
}
END_TEST

START_TEST(the_list_names_the_reader_that_holds_a_frame)
{
	pid_t bad;

	produce("cam", &steady);
	bad = hold("cam", GPUSHM_LATEST);
	shell_expect(
		&sh, 0,
		"until [[ $($ctl streams -d0 c) == *stuck* ]]; do sleep 0.05; done\n"
		"$ctl streams -d0 c | grep -q '^cam: reader 0 (%d .*) has held frame [0-9]* for "
		"[0-9.]*s; [0-9]* frames are newer$' || exit 6\n"
		"$ctl streams -d0 --json | grep -q '\"oldest_reader\":0,' || exit 7\n"
		"$ctl streams -d0 --json | grep -q '\"stuck\":true' || exit 8\n"
		"$ctl stat cam | grep -q '^note *reader 0'",
		bad);
}
END_TEST

static const char complete[] = "source \"$source/client/ctl/completion/gpushmctl.bash\"\n"
			       "try() { COMP_WORDS=(\"$ctl\" \"$@\") COMP_CWORD=$#; "
			       "compopt() { :; }; COMPREPLY=(); "
			       "_gpushmctl; printf '%s,' \"${COMPREPLY[@]}\"; echo; }\n";

START_TEST(a_completion_offers_only_streams_to_follow)
{
	produce("cam", &steady);
	shell_expect(&sh, 0,
		     "$ctl follow -q -t10 -c1 cam; $ctl create -q --size=8 camera\n"
		     "%stry foll; try stre; try follow ca; try streams ''; try follow --e\n"
		     "try streams --d; try follow --out = x c",
		     complete);
	ck_assert_str_eq(sh.out, "follow,\nstreams,\ncam,\ncam,\n--every,\n--delay,\ncam,\n");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ctl_streams");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, ctl_setup, teardown);
	tcase_add_test(tc, streams_are_in_the_order_of_their_names);
	tcase_add_test(tc, top_shows_the_rate_and_the_producer_of_a_stream);
	tcase_add_test(tc, follow_prints_the_published_frames);
	tcase_add_test(tc, follow_records_frames_in_a_numpy_file);
	tcase_add_test(tc, a_signal_keeps_the_recorded_frames);
	tcase_add_test(tc, a_full_disk_keeps_the_recorded_frames);
	tcase_add_test(tc, recording_a_stream_of_two_arrays_needs_the_name_of_one);
	tcase_add_test(tc, the_end_of_a_stream_is_an_error_only_before_the_count);
	tcase_add_test(tc, follow_reports_the_death_of_a_producer_once);
	tcase_add_test(tc, a_dropped_reader_ends_with_a_message);
	tcase_add_test(tc, follow_ends_with_its_reader);
	tcase_add_test(tc, a_mistake_has_its_exit_code_and_message);
	tcase_add_test(tc, streams_ls_and_stat_show_a_stream_and_its_readers);
	tcase_add_test(tc, metrics_count_a_stream);
	tcase_add_test(tc, the_list_names_the_reader_that_holds_a_frame);
	tcase_add_test(tc, a_completion_offers_only_streams_to_follow);
	return suite_run("ctl_streams", tc, NULL);
}
