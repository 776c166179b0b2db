/* SPDX-License-Identifier: MIT
 *
 * Errors in configuration files: gpushmd reports each one with its file and line, all of them in
 * one run, and keeps neither half a configuration nor anything else.
 */
#include "tests/unit/daemon/config_fixture.h"

#include <sys/types.h>

/* ---- allocations that fail: these come before libc's for the code under test ---- */

static int allocations_left = -1; /* -1: unlimited */

static int allocation_fails(void)
{
	if (allocations_left == 0) {
		errno = ENOMEM;
		return 1;
	}
	if (allocations_left > 0)
		allocations_left--;
	return 0;
}

void *reallocarray(void *p, size_t n, size_t size)
{
	return allocation_fails() ? NULL : realloc(p, n * size);
}

char *strdup(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = allocation_fails() ? NULL : malloc(size);

	return copy ? memcpy(copy, text, size) : NULL;
}

/* ---- faults ---- */

static const struct {
	const char *text, *diagnostic; /* after "FILE:" */
} bad[] = {
	{ "a=b\nc=d\n", "1: an assignment before any section; allowed: [daemon], [limits]" },
	{ "[demon]\n", "1: unknown section [demon]; did you mean \"daemon\"?" },
	{ "[x]\na=b\n", "1: unknown section [x]; allowed: daemon, limits, pool" },
	{ "[daemon a]\n", "1: [daemon a]: this section takes no name" },
	{ "[daemon]\nsokcet=/a\n", "2: unknown key \"sokcet\"; did you mean \"socket\"?" },
	{ "[limits]\nMax_Bytes=1\n", "2: unknown key \"Max_Bytes\"; did you mean \"max-bytes\"?" },
	{ "[limits]\nsize=1\n",
	  "2: unknown key \"size\"; allowed: max-bytes, max-pool-share, max-buffers" },
	{ "[daemon]\nsocket=a\n", "2: socket=a: this can't be used; allowed: an absolute path" },
	{ "[daemon]\nsocket=/a/\n", "2: socket=/a/: " },
	{ "[daemon]\nsocket=/a\\\\", "2: socket=/a\\x5c: " },
	{ "[daemon]\nsocket=/"
	  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	  "aaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
	  "2: socket=/aaaaa" },
	{ "[daemon]\nmode=888\n", "2: mode=888: " },
	{ "[limits]\nmax-pool-share=101%\n", "2: max-pool-share=101%: this can't be used; allowed: "
					     "a part from 1% to 100% (\"50%\"), or "
					     "\"unlimited\"" },
	{ "[limits]\nmax-pool-share=10G\n", "2: max-pool-share=10G: this can't be used; allowed: a "
					    "part from 1% to 100% (\"50%\"), or "
					    "\"unlimited\"" },
	{ "[pool p]\nkind=vmm\nallow-groups=*\n",
	  "3: allow-groups=*: there is no group \"*\"; allowed: names or numbers of groups, with "
	  "blanks between" },
	{ "[daemon]\nunmapped-users=trust\n",
	  "2: unmapped-users=trust: this can't be used; allowed: refuse or share" },
	{ "[daemon]\nunwatched-clients=yes\n",
	  "2: unwatched-clients=yes: this can't be used; allowed: refuse or trust" },
	{ "[daemon]\nmode=1777\n", "2: mode=1777: " },
	{ "[daemon]\ndriver-timeout=0\n", "2: driver-timeout=0: " },
	{ "[daemon]\ndriver-timeout=86401\n", "2: driver-timeout=86401: " },
	{ "[daemon]\ndriver-timeout=5s\n", "2: driver-timeout=5s: " },
	{ "[daemon]\nbusy-poll=1001\n", "2: busy-poll=1001: " },
	{ "[daemon]\naudit=maybe\n", "2: audit=maybe: this can't be used; allowed: no or yes" },
	{ "[daemon]\nbusy-poll=50us\n", "2: busy-poll=50us: " },
	{ "[daemon]\nbusy-poll=-1\n", "2: busy-poll=-1: " },
	{ "[daemon]\nkeep=5m\n", "2: keep=5m: " },
	{ "[daemon]\nyield-timeout=86401\n", "2: yield-timeout=86401: " },
	{ "[daemon]\nmode=00777\n", "2: mode=00777: " },
	{ "[daemon]\ngroup=no such\n", "2: group=no such: there is no group \"no such\"" },
	{ "[daemon]\ngroup=4294967295\n", "2: group=4294967295: 4294967295 is no number of a" },
	{ "[daemon]\ngroup=-1\n", "2: group=-1: there is no group \"-1\"" },
	{ "[daemon]\ndefault-pool=a/b\n", "2: default-pool=a/b: " },
	{ "[daemon]\ndefault-pool=q\n[pool p]\nkind=vmm\n[pool r]\nkind=vmm\n",
	  "2: default-pool=q: there is no such pool; allowed: p, r" },
	{ "[limits]\nmax-bytes=80%\n", "2: max-bytes=80%: " },
	{ "[limits]\nmax-bytes=1.5\n", "2: max-bytes=1.5: it is no whole number of bytes" },
	{ "[limits]\nmax-bytes=-1\n", "2: max-bytes=-1: " },
	{ "[limits]\nmax-bytes=0x10\n", "2: max-bytes=0x10: " },
	{ "[limits]\nmax-bytes=1GBit\n", "2: max-bytes=1GBit: " },
	{ "[limits]\nmax-bytes=18446744073709551615\n", "2: max-bytes=18446744073709551615: " },
	{ "[limits]\nmax-bytes=18014398509481984K\n", "2: max-bytes=18014398509481984K: " },
	{ "[limits]\nmax-leases=4294967295\n", "2: max-leases=4294967295: " },
	{ "[limits]\nmax-leases=1K\n", "2: max-leases=1K: " },
	{ "[limits nosuchuser]\nmax-leases=1\n", "1: there is no user \"nosuchuser\"; allowed: a" },
	{ "[pool]\nkind=vmm\n", "1: [pool ]: " },
	{ "[pool a b]\nkind=vmm\n", "1: [pool a b]: " },
	{ "[pool p]\n", "1: [pool p] has no kind; allowed: kind= with host, pinned, vmm" },
	{ "[pool p]\nkind=gpu\n", "2: kind=gpu: this can't be used; allowed: host, pinned, vmm" },
	{ "[pool p]\nkind=\n", "1: [pool p] has no kind" },
	{ "[pool p]\nkind=vmm\nsize=0\n", "3: size=0: a pool of no size" },
	{ "[pool p]\nkind=vmm\nsize=0%\n", "3: size=0%: a pool of no size" },
	{ "[pool p]\nkind=vmm\nsize=101%\n", "3: size=101%: " },
	{ "[pool p]\nkind=vmm\nsize=nan%\n", "3: size=nan%: " },
	{ "[pool p]\nkind=vmm\nsize=unlimited\n", "3: size=unlimited: " },
	{ "[pool p]\nkind=vmm\nsize=.%\n", "3: size=.%: " },
	{ "[pool p]\nkind=vmm\ndevice=GPU-\n", "3: device=GPU-: " },
	{ "[pool p]\nkind=vmm\ndevice=MIG-1\n", "3: device=MIG-1: " },
	{ "[pool p]\nkind=vmm\ndevice=0000:3g:00.0\n", "3: device=0000:3g:00.0: " },
	{ "[pool p]\nkind=vmm\ndevice=12345\n", "3: device=12345: " },
	{ "[pool p]\nkind=vmm\ndevice=10000000:3b:00.0\n", "3: device=10000000:3b:00.0: " },
	{ "[pool p]\nkind=host\ndevice=0\n", "3: [pool p]: device has no meaning with kind=host" },
	{ "[pool p]\nkind=vmm\nnuma-node=0\n", "3: [pool p]: numa-node has no meaning with" },
	{ "[pool p]\nkind=pinned\nnuma-node=1024\n", "3: numa-node=1024: " },
	{ "[pool p]\nkind=vmm\nallow-users= , ,\n", "3: allow-users=, ,: it names nobody" },
	{ "[pool p]\nkind=vmm\nallow-users=root nosuchuser\n",
	  "3: allow-users=root nosuchuser: there is no user \"nosuchuser\"" },
	{ "[limits]\nmax-share=0%\n", "2: max-share=0%: this can't be used; allowed: a part" },
	{ "[limits]\nmax-share=101%\n", "2: max-share=101%: " },
	{ "[limits]\nmax-share=50\n", "2: max-share=50: " },
	{ "[pool p]\nkind=vmm\npending-max-age=20%\n", "3: pending-max-age=20%: " },
	{ "[pool p]\nkind=host\nallocate=yes\n", "3: allocate=yes: " },
	{ "[pool p]\nkind=vmm\nallocate=create\n", "3: [pool p]: allocate has no meaning" },
	{ "[pool p]\nkind=vmm\npending-max-age=86401\n", "3: pending-max-age=86401: " },
	{ "[limits]\nmax-bytes=\x1b[31m\n", "2: control character 0x1b" },
	{ "[limits]\nmax-buffers=0\n",
	  "2: max-buffers=0: this can't be used; allowed: a whole number from 1, or \"unlimited\"; "
	  "max-connections=0 keeps users out" },
	{ "[limits 7]\nmax-leases=0\n", "2: max-leases=0: " },
	{ "[pool p]\nkind=host\nsize=1G\n[limits]\n[pool p]\nsize=2G\n",
	  "6: size= is in line 3, too; delete one of them; allowed: once in a section of a file" },
	{ "[limits 0]\nmax-leases=1\n[limits root]\nmax-leases=1\n",
	  "4: max-leases= is in line 2, too; " },
};

START_TEST(a_fault_is_told_once_with_its_line_and_what_is_allowed)
{
	struct loaded l = load_text(bad[_i].text);
	char wanted[512];

	snprintf(wanted, sizeof(wanted), "%s:%s", main_file, bad[_i].diagnostic);
	ck_assert_int_eq(l.result, -EINVAL);
	ck_assert_msg(strncmp(l.errors, wanted, strlen(wanted)) == 0, "wanted %s\ngot %s", wanted,
		      l.errors);
	ck_assert_ptr_eq(strchr(l.errors, '\n'), l.errors + strlen(l.errors) - 1);
	ck_assert(strstr(l.errors, "allowed: ") || strstr(l.errors, "did you mean "));
	loaded_done(&l);
}
END_TEST

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text != '\0'; text++)
		n += *text == '\n';
	return n;
}

START_TEST(every_fault_of_every_file_is_told_in_one_run)
{
	struct loaded l;

	write_file("g.conf.d/1.conf", "[pool p]\nsize=1Q\nsize=2Q\n[limits]\nmax-bytes=1\n");
	write_file("g.conf.d/2.conf", "nonsense\n");
	write_bytes("g.conf.d/3.conf", "[limits]\n\0", 10);
	l = load_text("[daemon]\nmode=x\n[oops]\nmode=y\nmode=z\n[pool p]\nfoo=1\n");
	ck_assert_int_eq(l.result, -EINVAL);
	ck_assert_msg(count_lines(l.errors) == 9, "%s", l.errors);
	loaded_done(&l);
}
END_TEST

START_TEST(every_fault_of_an_unknown_users_section_is_told)
{
	struct loaded l = load_text("[limits nosuchuser]\nmax-bytes=20GG\nmax-bufers=5\n");

	ck_assert_int_eq(l.result, -EINVAL);
	ck_assert_msg(count_lines(l.errors) == 3, "%s", l.errors);
	ck_assert_ptr_nonnull(strstr(l.errors, "did you mean \"max-buffers\"?"));
	loaded_done(&l);
}
END_TEST

START_TEST(a_fault_that_a_later_file_overrides_is_told_all_the_same)
{
	struct loaded l;

	write_file("g.conf.d/1.conf", "[limits]\nmax-leases=1\n");
	l = load_text("[limits]\nmax-leases=x\n");
	ck_assert_int_eq(l.result, -EINVAL);
	ck_assert_uint_eq(count_lines(l.errors), 1);
	loaded_done(&l);
}
END_TEST

START_TEST(a_named_file_that_is_missing_is_an_error)
{
	struct loaded l = load_path(main_file);

	ck_assert_int_eq(l.result, -ENOENT);
	ck_assert_ptr_nonnull(strstr(l.errors, "g.conf: can't be read: No such file"));
	loaded_done(&l);
}
END_TEST

START_TEST(what_is_no_file_is_refused_and_never_waited_for)
{
	struct loaded l = load_path(folder);

	ck_assert_int_eq(l.result, -EISDIR);
	loaded_done(&l);
	ck_assert_int_eq(mkfifo(main_file, 0600), 0);
	l = load_path(main_file);
	ck_assert_int_eq(l.result, -EINVAL);
	ck_assert_ptr_nonnull(strstr(l.errors, "this is no file; allowed: a regular file"));
	loaded_done(&l);
}
END_TEST

START_TEST(a_drop_in_that_can_not_be_read_is_an_error)
{
	struct loaded l;
	char path[128];

	write_file("g.conf.d/1.conf", "");
	snprintf(path, sizeof(path), "%s/g.conf.d/2.conf", folder);
	ck_assert_int_eq(symlink("/nonexistent/x", path), 0);
	l = load_text("[limits]\nmax-leases=y\n");
	ck_assert_int_eq(l.result, -ENOENT);
	ck_assert_uint_eq(count_lines(l.errors), 2);
	loaded_done(&l);
}
END_TEST

START_TEST(a_file_of_one_mebibyte_is_read_and_one_byte_more_is_not)
{
	size_t size = 1u << 20;
	char *text = malloc(size + 1);
	struct loaded l;

	memset(text, '#', size + 1);
	write_bytes("g.conf", text, size);
	l = load_path(main_file);
	ck_assert_int_eq(l.result, 0);
	loaded_done(&l);
	write_bytes("g.conf", text, size + 1);
	l = load_path(main_file);
	ck_assert_int_eq(l.result, -EFBIG);
	ck_assert_ptr_nonnull(strstr(l.errors, "the file is too large; allowed: 1048576 bytes"));
	loaded_done(&l);
	free(text);
}
END_TEST

/* n sections, each numbered in its header and in its value. The caller frees *ret. */
static void many_sections(const char *header, const char *assignment, unsigned n, char **ret)
{
	size_t size;
	FILE *out = open_memstream(ret, &size);

	for (unsigned i = 0; i < n; i++)
		fprintf(out, "%s%u]\n%s%u\n", header, i, assignment, i);
	fclose(out);
}

START_TEST(one_pool_too_many_is_told_and_the_limit_with_it)
{
	char *text = NULL;
	struct loaded l;

	many_sections("[pool p", "kind=host\npending-max-age=", POOLS_MAX + 1, &text);
	l = load_text(text);
	ck_assert_int_eq(l.result, -EINVAL);
	ck_assert_ptr_nonnull(strstr(l.errors, ":193: one pool too many; allowed: 64 of them\n"));
	ck_assert_uint_eq(count_lines(l.errors), 1);
	loaded_done(&l);
	*strstr(text, "[pool p64]") = '\0';
	l = load_text(text);
	ck_assert_int_eq(l.result, 0);
	ck_assert_uint_eq(l.config->n_pools, POOLS_MAX);
	loaded_done(&l);
	free(text);
}
END_TEST

START_TEST(users_too_many_are_told_and_the_last_one_allowed_has_its_limits)
{
	char *text = NULL;
	struct loaded l;

	many_sections("[limits ", "max-connections=", 4097, &text);
	l = load_text(text);
	ck_assert_int_eq(l.result, -EINVAL);
	ck_assert_uint_eq(count_lines(l.errors), 1);
	loaded_done(&l);
	*strstr(text, "[limits 4096]") = '\0';
	l = load_text(text);
	ck_assert_int_eq(l.result, 0);
	ck_assert_uint_eq(config_limits(l.config, 4095)->peers, 4095);
	loaded_done(&l);
	free(text);
}
END_TEST

START_TEST(memory_that_runs_out_at_any_point_leaves_nothing_behind)
{
	static const char text[] = "[daemon]\nsocket=/a\n[limits 7]\nmax-leases=1\n"
				   "[limits 8]\n[pool p]\nkind=vmm\nallow-users=1 2 3\n"
				   "allow-groups=4 5\n[pool q]\nkind=host\n";
	struct loaded l;
	int failures = 0;

	write_file("g.conf", text);
	for (int n = 0;; n++) {
		FILE *errors = fopen("/dev/null", "w");

		l = (struct loaded){ 0 };
		allocations_left = n;
		l.result = config_load(main_file, errors, &l.config);
		allocations_left = -1;
		fclose(errors);
		if (l.result == 0)
			break;
		ck_assert_int_eq(l.result, -ENOMEM);
		ck_assert_ptr_null(l.config);
		failures++;
	}
	ck_assert_int_gt(failures, 10);
	ck_assert_uint_eq(l.config->n_pools, 2);
	loaded_done(&l);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config_bad");
	TCase *tc = tcase_create("config_bad");

	tcase_add_checked_fixture(tc, folder_make, folder_drop);
	tcase_add_loop_test(tc, a_fault_is_told_once_with_its_line_and_what_is_allowed, 0,
			    array_size(bad));
	tcase_add_test(tc, every_fault_of_every_file_is_told_in_one_run);
	tcase_add_test(tc, every_fault_of_an_unknown_users_section_is_told);
	tcase_add_test(tc, a_fault_that_a_later_file_overrides_is_told_all_the_same);
	tcase_add_test(tc, a_named_file_that_is_missing_is_an_error);
	tcase_add_test(tc, what_is_no_file_is_refused_and_never_waited_for);
	tcase_add_test(tc, a_drop_in_that_can_not_be_read_is_an_error);
	tcase_add_test(tc, a_file_of_one_mebibyte_is_read_and_one_byte_more_is_not);
	tcase_add_test(tc, one_pool_too_many_is_told_and_the_limit_with_it);
	tcase_add_test(tc, users_too_many_are_told_and_the_last_one_allowed_has_its_limits);
	tcase_add_test(tc, memory_that_runs_out_at_any_point_leaves_nothing_behind);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
