/* SPDX-License-Identifier: MIT
 *
 * Agents of NIXL over our own libnixl_capi.so: one that offers memory and one that reads it, with
 * each call failing in turn.
 */
#include "client/gpushm.h"
#include "client/models/nixl/agent.h"
#include "client/models/nixl/grant.h"
#include "client/models/nixl/library.h"
#include "tests/fakenixl/fakenixl.h"
#include "tests/lib/fds.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (1u << 20)

static char fake_path[PATH_MAX];
static int (*fail_at)(int);
static void (*wrong_at)(int);
static int (*alive)(void);

/* The fake lies at ../../fakenixl/ from this program. */
static void find_fake(void)
{
	char self[PATH_MAX - 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n < 0 ? 0 : n] = '\0';
	for (int up = 0; n > 0 && up < 3; up++)
		*strrchr(self, '/') = '\0';
	snprintf(fake_path, sizeof(fake_path), "%s/fakenixl/libnixl_capi.so", self);
}

static void open_fake(void)
{
	void *fake;

	setenv("GPUSHM_NIXL", fake_path, 1);
	fake = dlopen(fake_path, RTLD_NOW);
	ck_assert_msg(fake != NULL, "%s", dlerror());
	fail_at = (int (*)(int))dlsym(fake, "fakenixl_fail");
	wrong_at = (void (*)(int))dlsym(fake, "fakenixl_wrong");
	alive = (int (*)(void))dlsym(fake, "fakenixl_alive");
	fail_at(0);
	wrong_at(0);
	fds_mark();
}

static void check_leaks(void)
{
	ck_assert_int_eq(alive(), 0);
	fds_check();
}

/* ---- two agents ---- */

struct pair {
	struct nixl_agent *relay, *puller;
	char *from, *to;
	struct nixl_memory there, here;
};

static void pair_init(struct pair *p)
{
	*p = (struct pair){ .from = malloc(BYTES), .to = calloc(1, BYTES) };
	for (size_t i = 0; i < BYTES; i++)
		p->from[i] = (char)(i * 7 + i / 256);
	p->there = (struct nixl_memory){ .address = (uintptr_t)p->from, .bytes = BYTES };
	p->here = (struct nixl_memory){ .address = (uintptr_t)p->to, .bytes = BYTES };
}

static void pair_clear(struct pair *p)
{
	gpushm_private_nixl_free(p->puller);
	gpushm_private_nixl_free(p->relay);
	free(p->from);
	free(p->to);
}

static int introduce(struct pair *p)
{
	void *blob;
	size_t n;
	int r = gpushm_private_nixl_metadata(p->relay, &blob, &n);

	if (r < 0)
		return r;
	r = nixl_agent_meet(p->puller, blob, n);
	free(blob);
	return r;
}

static int pair_open(struct pair *p)
{
	int r = gpushm_private_nixl_new(&p->relay);

	if (r == 0)
		r = gpushm_private_nixl_register(p->relay, &p->there);
	if (r == 0)
		r = gpushm_private_nixl_new(&p->puller);
	if (r == 0)
		r = gpushm_private_nixl_register(p->puller, &p->here);
	return r == 0 ? introduce(p) : r;
}

/* Parts out of order. */
static int pair_read(struct pair *p)
{
	const struct nixl_part parts[] = {
		{ p->here.address, p->there.address, 1000 },
		{ p->here.address + 5000, p->there.address + 5000, BYTES - 5000 },
		{ p->here.address + 1000, p->there.address + 1000, 4000 },
	};
	struct nixl_read *read;
	int r = nixl_read_begin(p->puller, &p->here, &p->there, parts, 3, &read);

	if (r < 0)
		return r;
	while ((r = nixl_read_poll(read)) == 0)
		sched_yield();
	nixl_read_end(read);
	return r < 0 ? r : 0;
}

START_TEST(a_read_brings_the_right_bytes)
{
	struct pair p;

	pair_init(&p);
	ck_assert_int_eq(pair_open(&p), 0);
	ck_assert_int_eq(pair_read(&p), 0);
	ck_assert(memcmp(p.from, p.to, BYTES) == 0);
	pair_clear(&p);
	check_leaks();
}
END_TEST

START_TEST(a_failed_call_is_named_and_leaks_nothing)
{
	int n = 1, r;

	fail_at(0);
	do {
		struct pair p;

		pair_init(&p);
		fail_at(n);
		r = pair_open(&p);
		if (r == 0)
			r = pair_read(&p);
		ck_assert(r == 0 || r == -EIO);
		if (r < 0)
			ck_assert_msg(!strncmp(gpushm_error(), "NIXL: ", 6), "%s", gpushm_error());
		pair_clear(&p);
		ck_assert_int_eq(alive(), 0);
		n++;
	} while (r < 0);
	ck_assert_int_gt(n, 20);
	check_leaks();
}
END_TEST

START_TEST(a_read_from_a_peer_that_has_gone_fails)
{
	struct pair p;

	pair_init(&p);
	ck_assert_int_eq(pair_open(&p), 0);
	p.relay = gpushm_private_nixl_free(p.relay);
	ck_assert_int_eq(pair_read(&p), -EIO);
	ck_assert_msg(strstr(gpushm_error(), "connection"), "%s", gpushm_error());
	pair_clear(&p);
	check_leaks();
}
END_TEST

START_TEST(a_read_can_be_given_up_and_leaks_nothing)
{
	struct pair p;
	struct nixl_part part;
	struct nixl_read *read;

	setenv("FAKENIXL_STALL", "1", 1);
	pair_init(&p);
	ck_assert_int_eq(pair_open(&p), 0);
	part = (struct nixl_part){ p.here.address, p.there.address, BYTES };
	ck_assert_int_eq(nixl_read_begin(p.puller, &p.here, &p.there, &part, 1, &read), 0);
	ck_assert_int_eq(nixl_read_poll(read), 0);
	nixl_read_end(read);
	pair_clear(&p);
	check_leaks();
}
END_TEST

START_TEST(metadata_of_something_else_are_refused)
{
	struct pair p;

	pair_init(&p);
	ck_assert_int_eq(gpushm_private_nixl_new(&p.puller), 0);
	ck_assert_int_eq(nixl_agent_meet(p.puller, "no metadata", 11), -EIO);
	ck_assert_msg(strstr(gpushm_error(), "versions"), "%s", gpushm_error());
	pair_clear(&p);
	check_leaks();
}
END_TEST

/* ---- the fake finds misuse ---- */

static int register_twice(void *arg)
{
	struct pair *p = arg;

	freopen("/dev/null", "w", stderr);
	gpushm_private_nixl_register(p->relay, &p->there);
	return 0;
}

static int read_unregistered(void *arg)
{
	struct pair *p = arg;
	struct nixl_part part = { (uintptr_t)p->from, p->there.address, 10 };
	struct nixl_read *read;

	freopen("/dev/null", "w", stderr);
	nixl_read_begin(p->puller, &p->here, &p->there, &part, 1, &read);
	return 0;
}

START_TEST(the_fake_library_aborts_on_misuse)
{
	struct pair p;

	pair_init(&p);
	ck_assert_int_eq(pair_open(&p), 0);
	ck_assert_int_eq(forked(register_twice, &p), -SIGABRT);
	ck_assert_int_eq(forked(read_unregistered, &p), -SIGABRT);
	pair_clear(&p);
	check_leaks();
}
END_TEST

/* ---- grants ---- */

static const char grant_text[] =
	"{\"version\":1,\"session\":\"0123456789abcdef0123456789abcdef\",\"expires\":60,"
	"\"nixl\":\"1.5.1\",\"etag\":\"\\\"x\\\"\",\"size\":1000,\"header\":200,"
	"\"metadata\":\"bml4bA==\",\"memory\":{\"gpu\":false,\"device\":0,"
	"\"address\":139637976727552,\"bytes\":4096},"
	"\"pieces\":[[200,300,0],[500,400,512],[900,100,1024]]}";

START_TEST(a_grant_stays_the_same_when_it_is_read_and_written)
{
	struct nixl_part *parts;
	struct grant g;
	char *text;
	size_t n;

	ck_assert_int_eq(grant_parse("x", grant_text, strlen(grant_text), &g), 0);
	ck_assert_int_eq(gpushm_private_grant_format(&g, &text), 0);
	ck_assert_str_eq(text, grant_text);
	ck_assert_str_eq(g.etag, "\"x\"");
	ck_assert_uint_eq(g.n_metadata, 4);
	ck_assert_int_eq(grant_parts(&g, 450, 451, 7000, &parts, &n), 0);
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(parts[0].remote, g.memory.address + 250);
	ck_assert_uint_eq(parts[0].bytes, 50);
	ck_assert_uint_eq(parts[1].remote, g.memory.address + 512);
	ck_assert_uint_eq(parts[1].local, 7050);
	ck_assert_uint_eq(parts[2].bytes, 1);
	free(parts);
	free(text);
	grant_clear(&g);
}
END_TEST

/* Each of them would lead out of the memory, or leave a hole in the file. */
static const struct {
	const char *was, *is;
} lies[] = {
	{ "\"version\":1", "\"version\":2" },
	{ "0123456789abcdef0", "" },
	{ "abcdef", "abcde!" },
	{ "\"expires\":60", "\"expires\":-1" },
	{ "\"size\":1000", "\"size\":1001" },
	{ "\"size\":1000", "\"size\":100" },
	{ "\"header\":200", "\"header\":201" },
	{ "bml4bA==", "" },
	{ "bml4bA==", "b!l4bA==" },
	{ "\"bytes\":4096", "\"bytes\":1123" },
	{ "\"bytes\":4096", "\"bytes\":9223372036854775807" },
	{ "\"address\":1", "\"address\":-1" },
	{ "\"device\":0", "\"device\":1024" },
	{ "[500,400,512]", "[500,400,3800]" },
	{ "[500,400,512]", "[501,399,512]" },
	{ "[500,400,512]", "[500,0,512],[500,400,512]" },
	{ "[500,400,512]", "[500,400,-1]" },
	{ "[500,400,512]", "[500,400]" },
	{ "[900,100,1024]", "[900,101,1024]" },
	{ "[900,100,1024]", "[900,18446744073709551615,1024]" },
	{ "\"pieces\"", "\"peaces\"" },
	{ "\"pieces\":[[", "\"slots\":3,\"slot\":1366,\"peaces\":[[" },
	{ "\"pieces\":[[", "\"slots\":257,\"slot\":1,\"peaces\":[[" },
	{ "\"pieces\":[[", "\"slots\":1,\"slot\":0,\"peaces\":[[" },
	{ "}", "" },
};

START_TEST(a_grant_that_lies_is_refused)
{
	const char *was = lies[_i].was, *is = lies[_i].is, *at = strstr(grant_text, was);
	char text[2 * sizeof(grant_text)];
	struct grant g;

	ck_assert_ptr_nonnull(at);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - grant_text), grant_text, is,
		 at + strlen(was));
	ck_assert_int_eq(grant_parse("host/name", text, strlen(text), &g), -EBADMSG);
	ck_assert_msg(strstr(gpushm_error(), "host/name"), "%s", gpushm_error());
	grant_clear(&g);
}
END_TEST

/* ---- where the library is ---- */

static int look(void *arg)
{
	const struct nixl_library *l;
	int r;

	setenv("GPUSHM_NIXL", arg, 1);
	r = nixl_library(&l);
	if (r < 0)
		return strstr(gpushm_error(), arg) && r == -ENOSYS ? -1 : -2;
	return strcmp(l->version, "9.8.7") == 0 ? 1 : 0;
}

/* A folder of Python packages as the wheel makes it. */
static void make_packages(char *folder)
{
	char path[PATH_MAX];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/nixl_cu12-9.8.7.dist-info", folder);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/.nixl_cu12.mesonpy.libs", folder);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	strcat(path, "/libnixl_capi.so");
	ck_assert_int_eq(symlink(fake_path, path), 0);
}

static void remove_packages(const char *folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/.nixl_cu12.mesonpy.libs/libnixl_capi.so", folder);
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
	snprintf(path, sizeof(path), "%s/nixl_cu12-9.8.7.dist-info", folder);
	rmdir(path);
	rmdir(folder);
}

START_TEST(the_library_of_a_wheel_is_found)
{
	char folder[] = "/tmp/gpushm-nixl-XXXXXX", other[] = "/tmp/gpushm-nixl-XXXXXX";
	char missing[] = "/nonexistent/libnixl_capi.so", text[] = "/proc/self/status";

	make_packages(folder);
	ck_assert_int_eq(forked(look, folder), 1);
	remove_packages(folder);
	ck_assert_ptr_nonnull(mkdtemp(other));
	ck_assert_int_eq(forked(look, other), -1);
	rmdir(other);
	ck_assert_int_eq(forked(look, missing), -1);
	ck_assert_int_eq(forked(look, text), -1);
	ck_assert_int_eq(forked(look, fake_path), 0);
}
END_TEST

int main(void)
{
	TCase *agents = tcase_create("agents"), *library = tcase_create("library");
	TCase *grants = tcase_create("grants");

	find_fake();
	tcase_add_checked_fixture(agents, open_fake, NULL);
	tcase_add_test(agents, a_read_brings_the_right_bytes);
	tcase_add_test(agents, a_failed_call_is_named_and_leaks_nothing);
	tcase_add_test(agents, a_read_from_a_peer_that_has_gone_fails);
	tcase_add_test(agents, a_read_can_be_given_up_and_leaks_nothing);
	tcase_add_test(agents, metadata_of_something_else_are_refused);
	tcase_add_test(agents, the_fake_library_aborts_on_misuse);
	tcase_add_test(library, the_library_of_a_wheel_is_found);
	tcase_add_checked_fixture(grants, fds_mark, fds_check);
	tcase_add_test(grants, a_grant_stays_the_same_when_it_is_read_and_written);
	tcase_add_loop_test(grants, a_grant_that_lies_is_refused, 0,
			    sizeof(lies) / sizeof(lies[0]));
	return suite_run("nixl", agents, library, grants, NULL);
}
