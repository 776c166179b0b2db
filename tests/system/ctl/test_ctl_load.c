/* SPDX-License-Identifier: MIT
 *
 * gpushmctl and models, with a real daemon: load, save and verify, what put, get, ls and stat know
 * about safetensors files, progress, signals in the middle, and a machine without libgpushm-load.
 */
#include "proto/base/own.h"
#include "tests/lib/ctl.h"
#include "tests/lib/safetensors.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const struct safetensors_tensor tensors[] = {
	{ "model.embed.weight", "BF16", "300,70" },
	{ "model.layers.0.w", "F32", "64,64" },
	{ "model.layers.1.w", "F32", "64,64" },
	{ "model.layers.10.w", "F8_E4M3", "16,16" },
	{ "model.norm", "F16", "" },
	{ "head.bias", "I64", "0" },
	{ "head.mask", "BOOL", "7" },
};

#define LIBRARY "libgpushm-load.so." GPUSHM_SOVERSION

/* For the shells: a loop over the pools. */
#define EACH_POOL "for pool in $($ctl pools | awk 'NR > 1 { print $1 }'); do\n"

static void write_model(const char *name, size_t first, size_t n, const char *metadata)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", sh.folder, name);
	safetensors_write(path, tensors + first, n, metadata);
}

/* The plain bytes of each tensor, in files of its name. */
static void write_tensors(void)
{
	for (size_t i = 0; i < array_size(tensors); i++) {
		uint64_t bytes = safetensors_bytes(&tensors[i]);
		_cleanup_(free_ptr) void *data = malloc(bytes + 1);
		char path[160];
		FILE *f;

		ck_assert_ptr_nonnull(data);
		safetensors_fill(tensors[i].name, data, bytes);
		snprintf(path, sizeof(path), "%s/%s.raw", sh.folder, tensors[i].name);
		f = fopen(path, "we");
		ck_assert_ptr_nonnull(f);
		fwrite(data, 1, bytes, f);
		ck_assert_int_eq(fclose(f), 0);
	}
}

/* A model of 12 MiB, of which a pipe holds a small part. */
static void write_large(const char *name)
{
	static const struct safetensors_tensor large[] = { { "a", "U8", "6291456" },
							   { "b", "U8", "6291456" } };
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", sh.folder, name);
	safetensors_write(path, large, 2, NULL);
}

static void setup(void)
{
	ctl_setup();
	write_model("m.safetensors", 0, array_size(tensors), "{\"format\":\"pt\"}");
}

START_TEST(a_tensor_comes_back_unchanged)
{
	write_tensors();
	shell_expect(&sh, 0,
		     "same() { for raw in *.raw; do\n"
		     "	$ctl get --raw $1:${raw%%.raw} - | cmp $raw - || exit; done; }\n" EACH_POOL
		     "	$ctl load -q --pool=$pool m.safetensors m && same m || exit\n"
		     "	$ctl save -q m out.safetensors && $ctl load -q out.safetensors n && same n "
		     "|| "
		     "exit\n"
		     "	cmp <($ctl ls -a m | sed 1d | awk '{ print $1, $2, $3 }' | sort) \\\n"
		     "	    <($ctl ls -a n | sed 's/^n:/m:/;1d' | awk '{ print $1, $2, $3 }' | "
		     "sort) "
		     "|| exit\n"
		     "	$ctl save m - | $ctl load -q --pool=$pool - p && same p || exit\n"
		     "	$ctl rm m n p || exit\n"
		     "done");
}
END_TEST

START_TEST(put_and_get_know_a_model_by_its_file_name)
{
	shell_expect(
		&sh, 0,
		"$ctl put m.safetensors m && $ctl get -q m out.safetensors && "
		"$ctl put -q out.safetensors n && "
		"$ctl get --raw n:model.layers.0.w - | cmp - <($ctl get --raw m:model.layers.0.w "
		"-)");
	says("m: sealed, 7 tensors, 73.3 KiB, ");
	/* --raw is about one array, whatever the file's name is. */
	shell_expect(
		&sh, 0,
		"$ctl get -q --raw m:head.mask x.safetensors && (($(wc -c < x.safetensors) == 7))");
}
END_TEST

START_TEST(an_index_and_a_folder_are_loaded_whole)
{
	write_model("model-1.safetensors", 0, 3, NULL);
	write_model("model-2.safetensors", 3, 4, NULL);
	shell_expect(
		&sh, 0,
		"mkdir hf; mv model-*.safetensors hf\n"
		"echo '{\"metadata\":{},\"weight_map\":{\"model.embed.weight\":"
		"\"model-1.safetensors\",\"model.layers.0.w\":\"model-1.safetensors\","
		"\"model.layers.1.w\":\"model-1.safetensors\",\"model.layers.10.w\":"
		"\"model-2.safetensors\",\"model.norm\":\"model-2.safetensors\","
		"\"head.bias\":\"model-2.safetensors\",\"head.mask\":\"model-2.safetensors\"}}'"
		"> hf/model.safetensors.index.json\n"
		"names() { $ctl ls -a $1 | sed 1d | sed 's/^[^:]*://; s/ .*//' | sort; }\n"
		"$ctl load -q m.safetensors m && $ctl load -q hf/model.safetensors.index.json i && "
		"$ctl load -q hf f && $ctl load -q hf/model-1.safetensors hf/model-2.safetensors s "
		"&& "
		"$ctl put -q hf/model.safetensors.index.json p || exit\n"
		"for n in i f s p; do cmp <(names m) <(names $n) || exit; done");
}
END_TEST

START_TEST(the_options_of_load_take_effect)
{
	shell_expect(
		&sh, 0,
		"names() { $ctl ls -a $1 | sed 1d | sed 's/ .*//' | LC_ALL=C sort | tr '\\n' ' '; "
		"}\n"
		"$ctl load -q --only='model.layers.*' --only=head.mask --strip=model. "
		"m.safetensors a || exit\n"
		"[[ $(names a) == 'a:head.mask a:layers.0.w a:layers.1.w a:layers.10.w ' ]] || "
		"exit 7\n"
		"$ctl load -q --mode=0640 --group=$(id -g) --attr=x=y m.safetensors b && "
		"$ctl stat b > out && grep -q 'mode 0640' out && grep -q 'x = y' out || exit 8\n"
		"sha256sum m.safetensors > sums && "
		"$ctl load -q --sha256=sums --verify --threads=3 m.safetensors c || exit 9\n"
		"for io in auto cached direct; do "
		"$ctl load -q --io=$io --drop-cache m.safetensors d && $ctl rm d || exit 10; "
		"done");
	shell_expect(&sh, 1,
		     "sed -i s/./0/ sums; sed -i s/./1/ sums; sed -i s/^./f/ sums; "
		     "sed -i s/^../ff/ sums; $ctl load --sha256=sums m.safetensors e");
	complains("m.safetensors");
	shell_expect(&sh, 3, "$ctl stat e");
}
END_TEST

START_TEST(a_model_without_a_twin_is_evicted_and_loaded_again)
{
	shell_expect(
		&sh, 0,
		"$ctl load -q --keep=5m m.safetensors m && $ctl evict m || exit 5\n"
		"[[ $($ctl ls) == *'m '*'evicted (source)'* ]] || exit 6\n"
		"[[ $($ctl stat --json m) == *'\"residence\":\"source\"'*'\"keep_ms\":300000'* ]] "
		"|| "
		"exit 7\n"
		"$ctl promote m && $ctl verify -q m && [[ $($ctl ls) != *evicted* ]] || exit 8\n"
		"$ctl load -q --twin=host --keep=forever m.safetensors n && $ctl evict n || exit "
		"9\n"
		"[[ $($ctl stat --json n) == *'\"residence\":\"twin\"'*'\"keep_ms\":null'* ]] || "
		"exit 10\n"
		"$ctl load -q m.safetensors o && $ctl keep o 0 && $ctl evict m o && rm "
		"m.safetensors");
	shell_expect(&sh, 1, "$ctl promote o");
	complains("put it back, or load the buffer again");
	shell_expect(&sh, 2, "$ctl load --keep=soon m.safetensors p");
	complains("load: \"soon\" is not a time");
}
END_TEST

START_TEST(a_transient_model_ends_with_its_command)
{
	shell_expect(&sh, 0,
		     "mkfifo in; $ctl load --transient m.safetensors t < in > out & pid=$!\n"
		     "exec 3> in; $ctl wait t; until grep -q '^t: sealed' out; do :; done\n"
		     "$ctl get -q t:head.mask copy.npy || exit\n"
		     "exec 3>&-; wait $pid && $ctl stat t; [[ $? == 3 ]]");
}
END_TEST

START_TEST(the_holders_of_a_replaced_model_keep_it)
{
	write_model("new.safetensors", 1, 2, NULL);
	shell_expect(&sh, 0,
		     "$ctl load -q m.safetensors m; mkfifo in; $ctl hold m < in > out & pid=$!\n"
		     "exec 3> in; until grep -q held out; do :; done\n"
		     "$ctl load -q new.safetensors m; [[ $? == 1 ]] || exit 7\n"
		     "$ctl load -q --replace new.safetensors m || exit 8\n"
		     "[[ $($ctl ls -a m | wc -l) == 3 ]] || exit 9\n"
		     "$ctl ls --holders | grep -q \"^(unlinked) .* $pid \" || exit 10\n"
		     "exec 3>&-; wait $pid && [[ $($ctl ls --names-only) == m ]]");
}
END_TEST

/* The first of them loads, and the others wait for it or find it. */
START_TEST(load_if_missing_loads_a_model_once)
{
	write_large("l.safetensors");
	shell_expect(&sh, 0,
		     "for i in 1 2 3 4 5 6 7 8; do\n"
		     "	$ctl load --if-missing --json l.safetensors m > $i.json & pids+=\" $!\"; "
		     "done\n"
		     "for pid in $pids; do wait $pid || exit 7; done\n"
		     "(($(cat [0-9].json | grep -c '\"attached\":false') == 1)) || exit 8\n"
		     "(($(cat [0-9].json | grep -c '\"tensors\":2,\"digest\":\"xxh3:') == 8)) || "
		     "exit 9\n"
		     "(($(cat [0-9].json | grep -o '\"id\":\"[0-9]*\"' | sort -u | wc -l) == 1))");
	shell_expect(&sh, 0, "$ctl load --if-missing l.safetensors m");
	says("m: it was there already: sealed, 2 tensors, 12.0 MiB, ");
	/* Other files: the name is another model's. */
	shell_expect(&sh, 1, "$ctl load --if-missing m.safetensors m");
	complains("m");
	shell_expect(&sh, 0, "$ctl load --if-missing --replace m.safetensors m");
	says("m: sealed, 7 tensors");
}
END_TEST

START_TEST(a_waiting_load_takes_over_from_a_killed_loader)
{
	write_large("l.safetensors");
	shell_expect(
		&sh, 0,
		"mkfifo pipe; $ctl load - m < pipe & first=$!; exec 3> pipe\n"
		"head -c 1000000 l.safetensors >&3; until [[ $($ctl ls m) == *filling* ]]; do :; "
		"done\n"
		"$ctl load -q --if-missing l.safetensors m & second=$!\n"
		"for wait in 10ms 0; do $ctl load -q --if-missing --wait=$wait l.safetensors m; "
		"[[ $? == 5 ]] || exit 7; done\n"
		"kill -KILL $first; wait $first; wait $second || exit 8\n"
		"$ctl verify -q m");
}
END_TEST

/* bash has background processes ignore SIGINT. */
#define INTERRUPTIBLE "env --default-signal=INT $ctl "

/* Before the header is whole, in the middle of the first block, and in that of a later one. */
START_TEST(an_interrupted_load_leaves_no_buffer)
{
	write_large("l.safetensors");
	shell_expect(
		&sh, 0,
		"mkfifo pipe\n"
		"for bytes in 0 5 60 100000 7000000 12582000; do for signal in INT TERM HUP; do\n"
		"	" INTERRUPTIBLE
		"load --progress=json pipe half 2> err & load=$!; exec 3> pipe\n"
		"	head -c $bytes l.safetensors >&3\n"
		"	((bytes < 7000000)) || until grep -q total err; do :; done\n"
		"	kill -$signal $load; wait $load; status=$?; exec 3>&-\n"
		"	((status == 128 + $(kill -l $signal))) || { cat err; exit 7; }\n"
		"	((bytes < 7000000)) || grep -q interrupted err || exit 8\n"
		"	$ctl stat half 2> /dev/null; [[ $? == 3 ]] || exit 9\n"
		"done; done");
}
END_TEST

/* The exit status says whether there is a buffer. */
START_TEST(a_signal_at_any_moment_leaves_a_whole_model_or_none)
{
	write_large("l.safetensors");
	shell_expect(&sh, 0,
		     "for i in {1..40}; do\n"
		     "	" INTERRUPTIBLE "load -q l.safetensors m 2> err & load=$!\n"
		     "	sleep 0.0$((RANDOM %% 4))$((RANDOM %% 10)); kill -INT $load; wait $load; "
		     "r=$?\n"
		     "	[[ $r == 0 || $r == 130 ]] || { cat err; exit 7; }\n"
		     "	$ctl stat m &> /dev/null; [[ $? == $((r ? 3 : 0)) ]] || exit 8\n"
		     "	((r)) || { $ctl verify -q m && $ctl rm m; } || exit 9\n"
		     "done\n"
		     "$ctl load -q l.safetensors m; before=$(echo *)\n"
		     "for i in {1..40}; do\n"
		     "	" INTERRUPTIBLE "save -q m out.safetensors 2> err & save=$!\n"
		     "	sleep 0.0$((RANDOM %% 4))$((RANDOM %% 10)); kill -INT $save; wait $save; "
		     "r=$?\n"
		     "	[[ $r == 0 || $r == 130 ]] || { cat err; exit 10; }\n"
		     "	((r)) || { $ctl load -q out.safetensors n && $ctl rm n && rm "
		     "out.safetensors; } "
		     "|| exit 11\n"
		     "	[[ $(echo *) == $before ]] || { echo *; exit 12; }\n"
		     "done");
}
END_TEST

START_TEST(an_interrupted_save_leaves_no_file)
{
	write_large("l.safetensors");
	shell_expect(
		&sh, 0,
		"$ctl load -q l.safetensors m; mkfifo pipe; before=$(echo *)\n"
		"$ctl save m pipe & save=$!\n"
		"exec 3< pipe; head -c 100 <&3 > /dev/null\n"
		"kill -TERM $save; wait $save; [[ $? == 143 && $(echo *) == $before ]] || exit 7\n"
		"$ctl save m - | head -c 100 > /dev/null; [[ $(echo *) == $before ]] || exit 8\n"
		"trap '' PIPE; $ctl save m - | head -c 100 > /dev/null; [[ ${PIPESTATUS[0]} == 1 "
		"]]");
	ck_assert_msg(!*sh.err || !strcmp(sh.err, "gpushmctl: interrupted\n"), "%s", sh.err);
}
END_TEST

/* On a tmpfs the file has its whole size first, and elsewhere the size of what is written. */
START_TEST(a_file_size_limit_is_an_error_and_leaves_no_file)
{
	shell_expect(
		&sh, 0,
		"$ctl load -q m.safetensors m; before=$(echo *); shm=$(mktemp -d -p /dev/shm)\n"
		"trap 'rm -r $shm' EXIT\n"
		"says() { [[ $? == 1 && $err == *'File too large'* && $(echo *) == $before ]]; }\n"
		"for to in out.safetensors $shm/out.safetensors; do\n"
		"	err=$(ulimit -f 8; $ctl save m $to 2>&1); says || { echo $err; exit 7; }\n"
		"	[[ ! $(ls -A $shm) ]] || exit 8\n"
		"done\n"
		"err=$(ulimit -f 8; $ctl get m:model.embed.weight out.npy 2>&1); says || { echo "
		"$err; exit 9; }");
}
END_TEST

START_TEST(verify_tells_whether_the_contents_match_the_digest)
{
	ctl_write_npy("a.npy", "'<f4'", "False", "(2,)", 8);
	shell_expect(&sh, 0, "$ctl load -q m.safetensors m && $ctl verify m");
	says("m: ok, xxh3:");
	says(", 73.3 KiB");
	shell_expect(&sh, 0,
		     "d=$($ctl verify --json m | grep -o '\"digest\":\"xxh3:[0-9a-f]*\"') && "
		     "[[ $($ctl stat --json m) == *\"$d\"* ]]");
	shell_expect(
		&sh, 6,
		"$ctl put -q --attr=gpushm.content=xxh3:0123456789abcdef a.npy lie; $ctl verify "
		"lie");
	complains("lie");
	shell_expect(&sh, 1, "$ctl put -q a.npy none; $ctl verify none");
	complains("none");
	shell_expect(&sh, 3, "$ctl verify nothing");
}
END_TEST

START_TEST(stat_summarizes_a_model)
{
	shell_expect(&sh, 0, "$ctl load -q m.safetensors m; $ctl stat m");
	says("model       7 tensors, 73.3 KiB\n");
	says("types       bfloat16: 1 tensor, 41.0 KiB\n");
	says("            float32: 2 tensors, 32.0 KiB\n");
	says("            int64: 1 tensor, 0 B\n");
	says("contents    xxh3:");
	says("source      /");
	says("/m.safetensors\n");
	shell_expect(&sh, 0,
		     "$ctl stat --json m | grep -F \"\\\"source\\\":\\\"$(realpath "
		     "m.safetensors)\\\",\"");
	says("\"model\":{\"tensors\":7,\"digest\":\"xxh3:");
	says("\"bytes\":75033,\"dtypes\":[{\"dtype\":\"bfloat16\",\"tensors\":1,\"bytes\":42000},");
	shell_expect(&sh, 0, "$ctl create -q --size=1 x; $ctl stat x --json; $ctl stat x");
	ck_assert_ptr_null(strstr(sh.out, "model"));
	/* As gpushm.torch publishes it. */
	ctl_write_npy("a.npy", "'<f4'", "False", "(2,)", 8);
	shell_expect(&sh, 0, "$ctl put -q '--attr=gpushm.types=int8 2 40' a.npy t; $ctl stat t");
	says("model  ");
	says("  int8: 2 tensors, 40 B\n");
	shell_expect(&sh, 0, "$ctl put -q --attr=gpushm.types=int8 a.npy u; $ctl stat u");
	says("gpushm.types = int8\n");
}
END_TEST

START_TEST(stat_of_a_model_makes_no_driver_call)
{
	if (shell_run(&sh, "[[ ${FAKECUDA_STRICT-} ]]") != 0) {
		printf("skipped: the fake driver logs its calls\n");
		return;
	}
	shell_expect(
		&sh, 0,
		"$ctl load -q --pool=gpu0 m.safetensors m\n"
		"FAKECUDA_LOG=$PWD/opened $ctl verify -q m && [[ -s opened ]] || exit 7\n"
		"FAKECUDA_LOG=$PWD/calls $ctl stat -a m > /dev/null && [[ ! -s calls ]] || exit 8\n"
		"FAKECUDA_LOG=$PWD/calls $ctl stat m && [[ ! -s calls ]]");
	says("types       bfloat16: 1 tensor, 41.0 KiB\n");
}
END_TEST

/* Any user may set any attribute, also one that only loads write. */
START_TEST(stat_copes_with_malformed_model_attributes)
{
	static const char *const types[] = { "",
					     "x",
					     "float32 -1",
					     "float32 1",
					     "float32 1 99999999999999999999999999",
					     "a 1 2, b 3",
					     "\\e[2J 1 2",
					     ",,,,",
					     "1 1 1,2 2 2,3 3 3,4 4 4" };

	ctl_write_npy("a.npy", "'<f4'", "False", "(2,)", 8);
	for (size_t i = 0; i < array_size(types); i++) {
		shell_expect(
			&sh, 0,
			"$ctl put -q --attr=gpushm.source=x --attr=gpushm.types=$'%s' a.npy a && "
			"$ctl stat a && $ctl stat --json a && $ctl rm a",
			types[i]);
		ck_assert_ptr_null(strchr(sh.out, '\033'));
	}
	shell_expect(&sh, 0,
		     "many=$(printf 'f%%d 1 1, ' {1..100}); $ctl put -q --attr=gpushm.source=x "
		     "--attr=gpushm.types=\"$many\" a.npy a && $ctl stat a");
	says("  32 tensors, 32 B\n");
}
END_TEST

/* A table on a terminal is made to fit, line by line. */
START_TEST(a_large_model_is_listed_within_a_cpu_time_limit)
{
	enum { MANY = 130000 };
	_cleanup_(free_ptr) struct safetensors_tensor *many = calloc(MANY, sizeof(*many));
	_cleanup_(free_ptr) char *names = malloc(MANY * 48);
	char path[160];

	ck_assert(many && names);
	for (size_t i = 0; i < MANY; i++) {
		snprintf(names + i * 48, 48, "model.layers.%zu.mlp.experts.%zu.weight", i / 1000,
			 i % 1000);
		many[i] = (struct safetensors_tensor){ names + i * 48, "F32", "2,2" };
	}
	snprintf(path, sizeof(path), "%s/many.safetensors", sh.folder);
	safetensors_write(path, many, MANY, NULL);
	shell_expect(
		&sh, 0,
		"$ctl load -q many.safetensors m; ulimit -t 30; for c in 'stat -a' 'ls -a'; do "
		"TERM=xterm script -qec \"stty cols 60; $ctl $c m\" /dev/null | tail -1; done");
	says("\nm:model.l");
	says("\xe2\x80\xa6");
	says(".weight ");
}
END_TEST

static const struct {
	int status;
	const char *command, *says;
} failures[] = {
	{ 2, "$ctl load m.safetensors", "something is missing" },
	{ 2, "$ctl load m.safetensors cut.safetensors", "is a file: write gpushmctl load" },
	{ 2, "$ctl load --io=fast m.safetensors x", "is not one of auto|cached|direct" },
	{ 2, "$ctl load --progress=loud m.safetensors x", "is not one of auto|always|never|json" },
	{ 2, "$ctl load --threads=0 m.safetensors x", "whole number of at least 1" },
	{ 2, "$ctl load --shared m.safetensors x", "no such option" },
	{ 2, "$ctl load --relpace m.safetensors x", "did you mean --replace?" },
	{ 2, "$ctl load --group=nosuchgroup m.safetensors x", "no group" },
	{ 2, "$ctl load --transient - x < m.safetensors", "standard input is the model" },
	{ 2, "$ctl put --shared m.safetensors x", "--shared: a model is sealed" },
	{ 2, "$ctl put --dtype=int8 m.safetensors x", "says the types of its tensors itself" },
	{ 1, "$ctl put x w=m.safetensors", "gpushmctl load FILE NAME takes it" },
	{ 1, "$ctl put w=m.safetensors x", "gpushmctl load FILE NAME takes it" },
	{ 1, "cat m.safetensors | $ctl put - x", "gpushmctl load FILE NAME takes it" },
	{ 1, "$ctl load nothing.safetensors x", "No such file" },
	{ 1, "$ctl load cut.safetensors x", "cut.safetensors" },
	{ 1, "cat cut.safetensors | $ctl load - x", "standard input" },
	{ 1, "$ctl load old.npy x", "old.npy" },
	{ 1, "mkdir -p empty; $ctl load empty x", "empty" },
	{ 1, "printf 'GGUF\\3\\0\\0\\0 and more' > q.gguf; $ctl load q.gguf x",
	  "q.gguf is not a safetensors file, but a GGUF file: load the safetensors files" },
	{ 1, "printf 'PK\\3\\4 and more' > q.pt; $ctl load q.pt x",
	  "q.pt is not a safetensors file, but a PyTorch file: safetensors.torch.save_file(" },
	{ 1, "$ctl load Org/M-8B x", "https://huggingface.co/Org/M-8B/resolve/main/, and what " },
	{ 1, "$ctl load Org/M-8B x", "~/.cache/huggingface/hub/models--Org--M-8B/snapshots/" },
	{ 1, "$ctl load no/such/file x", "no/such/file: No such file or directory" },
	{ 1, "$ctl put -q old.npy plain; $ctl verify plain; r=$?; $ctl rm plain; exit $r",
	  "plain: there is no digest to compare with: gpushmctl load and pull leave one" },
	{ 1, "$ctl load --only='y*' m.safetensors x", "y*" },
	{ 1, "$ctl load m.safetensors m.safetensors x", "model.embed.weight" },
	{ 1, "$ctl load m.safetensors taken",
	  "; --replace takes the name over, --if-missing uses" },
	{ 1, "$ctl load --if-missing --only=head.mask m.safetensors taken", "; --replace takes" },
	{ 1, "$ctl load m.safetensors --threads=4294967296 m.safetensors x", "model.embed.weight" },
	{ 1, "$ctl load m.safetensors ../x", "../x" },
	{ 3, "$ctl load --pool=nothing m.safetensors x", "nothing" },
	{ 4, "$ctl -s /nonexistent/socket load m.safetensors x", "/nonexistent/socket" },
	{ 3, "$ctl save nothing out.safetensors", "nothing" },
	{ 5, "$ctl save --timeout=10ms nothing out.safetensors", "nothing" },
	{ 1, "$ctl save taken nofolder/out.safetensors", "No such file" },
	{ 1, "$ctl save taken /dev/full", "No space left" },
	{ 2, "$ctl save taken x.safetensors.index.json", "name the file FILE.safetensors" },
	{ 2, "$ctl get taken:head.mask x.safetensors", "leave out the array" },
	{ 2, "$ctl get --array=head.mask taken x.safetensors", "leave out the array" },
	{ 2, "$ctl ls --arrays --holders", "choose one" },
};

START_TEST(a_failure_has_its_exit_code_and_message)
{
	ctl_write_npy("old.npy", "'<f4'", "False", "(2,)", 8);
	shell_expect(
		&sh, 0,
		"head -c 70000 m.safetensors > cut.safetensors; $ctl load -q m.safetensors taken");
	for (size_t i = 0; i < array_size(failures); i++) {
		shell_expect(&sh, failures[i].status, "%s", failures[i].command);
		complains(failures[i].says);
		ck_assert_str_eq(sh.out, "");
	}
	shell_expect(&sh, 1, "$ctl load m.safetensors m.safetensors twice");
	complains("two tensors are named");
	ck_assert_ptr_null(strstr(sh.err, "--replace"));
	/* The failures have created nothing. */
	shell_expect(&sh, 0, "[[ $($ctl ls --names-only) == taken && ! -e out.safetensors ]]");
}
END_TEST

START_TEST(json_output_is_valid_json)
{
	static const char *const commands[] = { "load m.safetensors x",
						"load --if-missing m.safetensors m",
						"put m.safetensors x",
						"save m out.safetensors",
						"get m out.safetensors",
						"verify m",
						"stat m",
						"stat --arrays m",
						"ls --arrays" };

	if (shell_run(&sh, "command -v python3") != 0) {
		printf("skipped: there is no python3 to read JSON\n");
		return;
	}
	shell_expect(&sh, 0, "$ctl load -q m.safetensors m");
	for (size_t i = 0; i < array_size(commands); i++) {
		shell_expect(&sh, 0,
			     "set -o pipefail; for j in short pretty; do "
			     "$ctl --json=$j %s | python3 -m json.tool || exit; $ctl rm -f x; done",
			     commands[i]);
		ck_assert_str_eq(sh.err, "");
	}
	shell_expect(&sh, 0,
		     "$ctl load --json m.safetensors x > out; $ctl rm x\n"
		     "python3 -c 'import json\n"
		     "r = json.load(open(\"out\"))\n"
		     "assert r[\"bytes\"] == 75033 and r[\"tensors\"] == 7, r\n"
		     "assert r[\"seconds\"] > 0 and r[\"digest\"].startswith(\"xxh3:\"), r\n"
		     "assert not r[\"attached\"] and r[\"name\"] == \"x\", r'");
}
END_TEST

START_TEST(progress_is_shown_as_its_option_says)
{
	write_large("l.safetensors");
	shell_expect(&sh, 0, "$ctl load --progress=always l.safetensors x");
	complains("gpushmctl: x: 100%, 12.0 MiB of 12.0 MiB, ");
	shell_expect(&sh, 0, "$ctl load --replace l.safetensors x");
	ck_assert_str_eq(sh.err, "");
	shell_expect(&sh, 0,
		     "command -v python3 > /dev/null || exit 0\n"
		     "$ctl load -q --replace --progress=json l.safetensors x 2> lines && "
		     "$ctl save -q --progress=json x out.safetensors 2>> lines && "
		     "$ctl verify -q --progress=json x 2>> lines && "
		     "python3 -c 'import json\n"
		     "ends = 0\n"
		     "for line in open(\"lines\"):\n"
		     "    p = json.loads(line)\n"
		     "    assert p[\"event\"] == \"progress\" and p[\"total\"] == 12 << 20, p\n"
		     "    ends += p[\"bytes\"] == p[\"total\"]\n"
		     "assert ends == 3, ends'");
	/* At a terminal a slow load draws a bar after a second, and removes it. */
	shell_expect(
		&sh, 0,
		"mkfifo pipe; (head -c 5000000 l.safetensors; sleep 1.3; "
		"tail -c +5000001 l.safetensors) > pipe &\n"
		"TERM=xterm script -qec \"stty cols 100; $ctl load --replace pipe x\" /dev/null");
	says("MiB of 12.0 MiB, ");
	says("\r\033[K");
	says("x: sealed, 2 tensors, 12.0 MiB");
	shell_expect(&sh, 0,
		     "TERM=xterm script -qec \"$ctl load --replace l.safetensors x; "
		     "$ctl load --progress=never --replace l.safetensors x\" /dev/null");
	ck_assert_ptr_null(strstr(sh.out, " of "));
}
END_TEST

/* A folder with the program and libgpushm, but without libgpushm-load. */
START_TEST(a_missing_library_is_named_and_breaks_only_model_commands)
{
	shell_expect(
		&sh, 0,
		"mkdir bin; cp $ctl bin; cp -P ${ctl%%/*}/libgpushm.so* bin; "
		"bin/gpushmctl create -q --size=1 x && bin/gpushmctl ls && bin/gpushmctl rm x");
	shell_expect(&sh, 1, "bin/gpushmctl load m.safetensors m");
	complains("models need a library: " LIBRARY " can't be loaded: ");
	complains("install libgpushm-load");
	shell_expect(&sh, 1, "$ctl load -q m.safetensors m; bin/gpushmctl save m out.safetensors");
	complains(LIBRARY);
	shell_expect(&sh, 1, "bin/gpushmctl verify m");
	complains(LIBRARY);
	shell_expect(&sh, 0, "bin/gpushmctl doctor");
	says("warn  models         " LIBRARY " can't be loaded: ");
	shell_expect(&sh, 0, "$ctl doctor");
	says("ok    models ");
	/* And where it is, only commands that need it load it. */
	shell_expect(
		&sh, 0,
		"LD_DEBUG=files $ctl stat m 2>&1 | grep -q libgpushm.so || exit 7\n"
		"! LD_DEBUG=files $ctl stat m 2>&1 | grep -q 'gpushm-load\\|jansson' || exit 8\n"
		"LD_DEBUG=files $ctl verify m 2>&1 | grep -q gpushm-load");
}
END_TEST

static const char complete[] = "source \"$source/client/ctl/completion/gpushmctl.bash\"\n"
			       "try() { COMP_WORDS=(\"$ctl\" \"$@\") COMP_CWORD=$#; "
			       "compopt() { :; }; COMPREPLY=(); "
			       "_gpushmctl; printf '%s,' \"${COMPREPLY[@]}\"; echo; }\n";

START_TEST(models_and_their_files_are_completed)
{
	shell_expect(&sh, 0,
		     "$ctl load -q m.safetensors llama; mkdir models; touch m.txt; "
		     "touch models/model.safetensors.index.json models/x.safetensors");
	shell_expect(
		&sh, 0,
		"%stry load m; try load models/; try load m.safetensors lla; try save ll; "
		"try save llama m.s; try verify l; try load --io = d; try load --progress = n; "
		"try load --if; try ls --ar; try load --only = x m.safe",
		complete);
	ck_assert_str_eq(sh.out, "models,m.safetensors,\n"
				 "models/x.safetensors,models/model.safetensors.index.json,\n"
				 "llama,\nllama,\nm.safetensors,\nllama,\ndirect,\nnever,\n"
				 "--if-missing,\n--arrays,\nm.safetensors,\n");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ctl_load");

	tcase_set_timeout(tc, 180);
	tcase_add_checked_fixture(tc, setup, ctl_teardown);
	tcase_add_test(tc, a_tensor_comes_back_unchanged);
	tcase_add_test(tc, put_and_get_know_a_model_by_its_file_name);
	tcase_add_test(tc, an_index_and_a_folder_are_loaded_whole);
	tcase_add_test(tc, the_options_of_load_take_effect);
	tcase_add_test(tc, a_model_without_a_twin_is_evicted_and_loaded_again);
	tcase_add_test(tc, a_transient_model_ends_with_its_command);
	tcase_add_test(tc, the_holders_of_a_replaced_model_keep_it);
	tcase_add_test(tc, load_if_missing_loads_a_model_once);
	tcase_add_test(tc, a_waiting_load_takes_over_from_a_killed_loader);
	tcase_add_test(tc, an_interrupted_load_leaves_no_buffer);
	tcase_add_test(tc, a_signal_at_any_moment_leaves_a_whole_model_or_none);
	tcase_add_test(tc, an_interrupted_save_leaves_no_file);
	tcase_add_test(tc, a_file_size_limit_is_an_error_and_leaves_no_file);
	tcase_add_test(tc, verify_tells_whether_the_contents_match_the_digest);
	tcase_add_test(tc, stat_summarizes_a_model);
	tcase_add_test(tc, stat_of_a_model_makes_no_driver_call);
	tcase_add_test(tc, stat_copes_with_malformed_model_attributes);
	tcase_add_test(tc, a_large_model_is_listed_within_a_cpu_time_limit);
	tcase_add_test(tc, a_failure_has_its_exit_code_and_message);
	tcase_add_test(tc, json_output_is_valid_json);
	tcase_add_test(tc, progress_is_shown_as_its_option_says);
	tcase_add_test(tc, a_missing_library_is_named_and_breaks_only_model_commands);
	tcase_add_test(tc, models_and_their_files_are_completed);
	return suite_run("ctl_load", tc, NULL);
}
