/* SPDX-License-Identifier: MIT
 *
 * The meaning of gpushmd.conf's values, where each came from, and which keys a reload does not
 * change. test_config_bad.c has files with errors.
 */
#include "proto/socket_path.h"
#include "tests/lib/forked.h"
#include "tests/unit/daemon/config_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

START_TEST(an_empty_file_gives_the_defaults_of_the_manual)
{
	struct config *c = load_good("");
	const struct limits_config *l = config_limits(c, 1001);

	ck_assert_uint_eq(c->socket_mode, 0666);
	ck_assert_uint_eq(c->socket_gid, (gid_t)-1);
	ck_assert_uint_eq(c->admin_gid, (gid_t)-1);
	ck_assert_uint_eq(c->busy_poll, 50);
	ck_assert(!c->trust_unwatched && !c->share_unmapped);
	ck_assert(c->auto_pools && c->default_pool[0] == '\0');
	ck_assert_uint_eq(c->n_pools, 0);
	ck_assert(l->bytes == UINT64_MAX && l->buffers == 16384);
	ck_assert_uint_eq(l->leases, 65536);
	ck_assert_uint_eq(l->peers, 1024);
	config_free(c);
}
END_TEST

/* Returns 0 if the configuration in force is that of a daemon of one's own, 1 if of a service. */
static int load_as_service(void *uid)
{
	struct config *c;
	int n;

	if (*(uid_t *)uid != geteuid() && (chown(folder, *(uid_t *)uid, (gid_t)-1) < 0 ||
					   setresuid(*(uid_t *)uid, *(uid_t *)uid, 0) < 0))
		return -1;
	c = load_good("[pool p]\nkind=mempool\n[pool q]\nkind=mempool\nallow-users=0\n"
		      "[pool r]\nkind=mempool\nallow-users=*\n[pool s]\nkind=vmm\n");
	ck_assert(c->pools[0].restricted == (c->pools[0].allow_groups.n == 1));
	ck_assert(c->pools[1].restricted && c->pools[1].allow_groups.n == 0);
	ck_assert(!c->pools[2].restricted && !c->pools[3].restricted);
	ck_assert_double_eq(c->limits.pool_share, c->pools[0].restricted ? 50 : 100);
	ck_assert(c->pools[0].share < 0);
	n = (int)c->pools[0].allow_groups.n;
	if (n == 1)
		ck_assert_uint_eq(c->pools[0].allow_groups.ids[0], getegid());
	config_free(c);
	return n;
}

START_TEST(a_service_restricts_a_mempool_and_a_users_daemon_does_not)
{
	uid_t root = 0, another = 65531;

	if (geteuid() != 0) {
		printf("skipped: needs root, to become another user\n");
		return;
	}
	ck_assert_int_eq(forked(load_as_service, &another), 0);
	ck_assert_int_eq(forked(load_as_service, &root), 1);
}
END_TEST

START_TEST(a_pools_defaults_depend_on_its_kind)
{
	struct config *c = load_good("[pool a]\nkind=vmm\n[pool b]\nkind=host\n"
				     "[pool c]\nkind=mempool\n[pool d]\nkind=pinned\n");
	static const double percent[] = { 100, 50, 100, 50 };

	ck_assert_uint_eq(c->n_pools, 4);
	ck_assert(!c->auto_pools);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_double_eq(c->pools[i].size.percent, percent[i]);
		ck_assert_int_eq(c->pools[i].numa_node, -1);
		ck_assert_str_eq(c->pools[i].device, "");
		ck_assert_uint_eq(c->pools[i].pending_max_age, 10);
		ck_assert(c->pools[i].kind == POOL_MEMPOOL || !c->pools[i].restricted);
		ck_assert(!c->pools[i].builtin);
	}
	config_free(c);
}
END_TEST

/* key=value as the file has it, and as gpushmd must understand and print it. */
static const struct {
	const char *section, *given, *written;
} values[] = {
	{ "[daemon]", "socket=/run/x y.sock", "socket=/run/x y.sock" },
	{ "[daemon]", "mode=660", "mode=0660" },
	{ "[daemon]", "mode=0", "mode=0000" },
	{ "[daemon]", "group=root", "group=root" },
	{ "[daemon]", "group=0", "group=root" },
	{ "[daemon]", "group=3999999999", "group=3999999999" },
	{ "[daemon]", "admin-group=12345678", "admin-group=12345678" },
	{ "[daemon]", "default-pool=gpu0", "default-pool=gpu0" },
	{ "[daemon]", "driver-timeout=1", "driver-timeout=1" },
	{ "[daemon]", "busy-poll=0", "busy-poll=0" },
	{ "[daemon]", "keep=300", "keep=300" },
	{ "[daemon]", "yield-timeout=0", "yield-timeout=0" },
	{ "[daemon]", "unwatched-clients=trust", "unwatched-clients=trust" },
	{ "[daemon]", "unmapped-users=share", "unmapped-users=share" },
	{ "[daemon]", "audit=yes", "audit=yes" },
	{ "[limits]", "max-bytes=40G", "max-bytes=40G" },
	{ "[limits]", "max-bytes=0", "max-bytes=0" },
	{ "[limits]", "max-bytes=1.5G", "max-bytes=1536M" },
	{ "[limits]", "max-bytes=64.0 MiB", "max-bytes=64M" },
	{ "[limits]", "max-pool-share=12.5%", "max-pool-share=12.5%" },
	{ "[limits]", "max-pool-share=1%", "max-pool-share=1%" },
	{ "[limits]", "max-pool-share=unlimited", "max-pool-share=100%" },
	{ "[pool p]\nkind=vmm", "max-pool-share=30%", "max-pool-share=30%" },
	{ "[pool p]\nkind=vmm", "allow-users=*", "allow-users=*" },
	{ "[limits]", "max-bytes=2048T", "max-bytes=2048T" },
	{ "[limits]", "max-bytes=18446744073709551614", "max-bytes=18446744073709551614" },
	{ "[limits]", "max-buffers=unlimited", "max-buffers=unlimited" },
	{ "[limits]", "max-leases=4294967294", "max-leases=4294967294" },
	{ "[limits]", "max-connections=0", "max-connections=0" },
	{ "[limits]", "max-share=1%", "max-share=1%" },
	{ "[limits]", "max-share=100.0%", "max-share=100%" },
	{ "[pool p]", "kind=mempool", "kind=mempool" },
	{ "[pool p]\nkind=vmm", "device=3", "device=3" },
	{ "[pool p]\nkind=vmm", "device=GPU-8c3b", "device=GPU-8c3b" },
	{ "[pool p]\nkind=vmm", "device=0000:3B:00.0", "device=0000:3b:00.0" },
	{ "[pool p]\nkind=vmm", "device=00000000:3b:00.0", "device=0000:3b:00.0" },
	{ "[pool p]\nkind=pinned", "numa-node=1", "numa-node=1" },
	{ "[pool p]\nkind=vmm", "size=40960M", "size=40G" },
	{ "[pool p]\nkind=vmm", "size=4097", "size=4097" },
	{ "[pool p]\nkind=vmm", "size=80%", "size=80%" },
	{ "[pool p]\nkind=vmm", "size=100.000000%", "size=100%" },
	{ "[pool p]\nkind=vmm", "size=0.000001%", "size=0.000001%" },
	{ "[pool p]\nkind=vmm", "allow-users=root, 4000000001", "allow-users=root 4000000001" },
	{ "[pool p]\nkind=vmm", "allow-groups=root", "allow-groups=root" },
	{ "[pool p]\nkind=host", "allocate=create", "allocate=create" },
	{ "[pool p]\nkind=host", "allocate=first-use", "allocate=first-use" },
	{ "[pool p]\nkind=vmm", "pending-max-age=0", "pending-max-age=0" },
	{ "[pool p]\nkind=vmm", "pending-max-age=3600", "pending-max-age=3600" },
};

START_TEST(a_key_of_an_older_version_is_told_and_has_no_effect)
{
	static const char *const former[] = { "[limits]\nmax-table-bytes=1M\n",
					      "[limits 7]\nmax-table-bytes=x\n",
					      "[pool p]\nkind=host\npending-max-count=0\n",
					      "[pool p]\nkind=host\npending-max-ratio=0.2\n",
					      "[pool p]\nkind=host\npending-max-bytes=1G\n",
					      "[pool p]\nkind=host\npending-max-buffer=1G\n" };
	struct loaded l = load_text(former[_i]);

	ck_assert_int_eq(l.result, 0);
	ck_assert_ptr_nonnull(strstr(l.errors, "= has no effect any more; delete it"));
	loaded_done(&l);
}
END_TEST

START_TEST(each_form_of_a_value_is_understood_and_written_with_its_line)
{
	char text[256], wanted[256];
	struct config *c;
	_cleanup_(free_ptr) char *dumped = NULL;

	snprintf(text, sizeof(text), "%s\n%s\n", values[_i].section, values[_i].given);
	c = load_good(text);
	dumped = dump(c);
	snprintf(wanted, sizeof(wanted), "\n%s  # %s:%d\n", values[_i].written, main_file,
		 strchr(values[_i].section, '\n') ? 3 : 2);
	ck_assert_msg(strstr(dumped, wanted), "no%sin:\n%s", wanted, dumped);
	config_free(c);
}
END_TEST

static const char everything[] = "[daemon]\n"
				 "socket=/run/g.sock\n"
				 "admin-group=root\n"
				 "default-pool=w\n"
				 "[limits]\nmax-leases=9\n"
				 "[limits root]\n"
				 "max-bytes=unlimited\n"
				 "[limits 4000000000]\n"
				 "max-bytes=7G\n"
				 "[pool w]\n"
				 "kind=vmm\n"
				 "allow-users=root\n"
				 "allow-users=4000000000 4000000001\n"
				 "size=33.3%\n"
				 "[pool x]\n"
				 "kind=host\n";

/* Cuts every comment, which is where two dumps differ. */
static void cut_comments(char *text)
{
	char *to = text;

	for (char *from = text; *from != '\0'; from++) {
		if (strncmp(from, "  # ", 4) == 0)
			from += strcspn(from, "\n");
		*to++ = *from;
	}
	*to = '\0';
}

START_TEST(a_dump_is_a_file_that_means_the_same)
{
	struct config *c = load_good(everything), *again;
	char *first = dump(c), *second;
	char names[256];

	again = load_good(first);
	config_needs_restart(c, again, names, sizeof(names));
	ck_assert_str_eq(names, "");
	second = dump(again);
	cut_comments(first);
	cut_comments(second);
	ck_assert_str_eq(first, second);
	free(first);
	free(second);
	config_free(again);
	config_free(c);
}
END_TEST

START_TEST(a_list_tells_the_line_of_each_part_and_an_empty_one_resets_it)
{
	char wanted[512];
	struct config *c = load_good("[pool p]\nkind=vmm\nallow-users=4000000000\nallow-users=\n"
				     "allow-users=4000000001 4000000002\n"
				     "allow-users=4000000003\n");
	char *dumped = dump(c);

	snprintf(wanted, sizeof(wanted),
		 "\nallow-users=4000000001 4000000002  # %s:5\nallow-users=4000000003  # %s:6\n",
		 main_file, main_file);
	ck_assert_msg(strstr(dumped, wanted), "%s", dumped);
	ck_assert_uint_eq(c->pools[0].allow_users.n, 3);
	ck_assert(c->pools[0].restricted);
	free(dumped);
	config_free(c);
}
END_TEST

START_TEST(a_list_that_was_reset_restricts_nobody)
{
	struct config *c = load_good("[pool p]\nkind=vmm\nallow-users=root\nallow-users=\n");

	ck_assert(!c->pools[0].restricted);
	ck_assert_uint_eq(c->pools[0].allow_users.n, 0);
	config_free(c);
}
END_TEST

START_TEST(an_empty_assignment_is_back_to_the_default)
{
	struct config *c = load_good("[daemon]\nmode=0600\nmode=\nsocket=/a\nsocket=\n"
				     "[limits]\nmax-leases=3\nmax-leases=\n"
				     "[pool p]\nkind=host\nsize=1G\nsize=\n");

	ck_assert_uint_eq(c->socket_mode, 0666);
	ck_assert_str_ne(c->socket_path, "/a");
	ck_assert_uint_eq(c->limits.leases, 65536);
	ck_assert_double_eq(c->pools[0].size.percent, 50);
	config_free(c);
}
END_TEST

START_TEST(drop_ins_override_in_the_order_of_their_names)
{
	struct config *c;
	_cleanup_(free_ptr) char *dumped = NULL;
	char wanted[256];

	write_file("g.conf.d/20-b.conf", "[limits]\nmax-leases=20\n");
	write_file("g.conf.d/10-a.conf", "[limits]\nmax-leases=10\nmax-buffers=10\n");
	write_file("g.conf.d/30-c.txt", "[limits]\nmax-leases=30\n");
	write_file("g.conf.d/.40.conf", "[limits]\nmax-leases=40\n");
	c = load_good("[limits]\nmax-leases=1\nmax-buffers=1\nmax-connections=1\n");
	ck_assert_uint_eq(c->limits.leases, 20);
	ck_assert_uint_eq(c->limits.buffers, 10);
	ck_assert_uint_eq(c->limits.peers, 1);
	dumped = dump(c);
	snprintf(wanted, sizeof(wanted), "max-leases=20  # %s.d/20-b.conf:2\n", main_file);
	ck_assert_ptr_nonnull(strstr(dumped, wanted));
	config_free(c);
}
END_TEST

START_TEST(a_drop_in_may_change_a_pool_of_the_main_file)
{
	struct config *c;

	write_file("g.conf.d/a.conf", "[pool p]\nkind=host\nsize=1G\n");
	c = load_good("[pool p]\nkind=vmm\n[pool q]\nkind=vmm\n");
	ck_assert_uint_eq(c->n_pools, 2);
	ck_assert_int_eq(c->pools[0].kind, POOL_HOST);
	ck_assert_uint_eq(c->pools[0].size.bytes, 1u << 30);
	config_free(c);
}
END_TEST

START_TEST(a_users_limits_are_the_general_ones_where_it_has_none)
{
	struct config *c;
	const struct limits_config *l;

	/* [limits] comes later, and a second section names the same user by name. */
	c = load_good("[limits root]\nmax-leases=5\n[limits 0]\nmax-buffers=6\n"
		      "[limits]\nmax-connections=7\nmax-leases=8\n");
	ck_assert_uint_eq(c->n_user_limits, 1);
	l = config_limits(c, 0);
	ck_assert_uint_eq(l->leases, 5);
	ck_assert_uint_eq(l->buffers, 6);
	ck_assert_uint_eq(l->peers, 7);
	ck_assert_uint_eq(config_limits(c, 1)->leases, 8);
	config_free(c);
}
END_TEST

static const struct {
	const char *text, *pool;
} defaults[] = {
	{ "[pool a]\nkind=host\n[pool host]\nkind=host\n[pool gpu0]\nkind=vmm\n", "gpu0" },
	{ "[pool a]\nkind=host\n[pool host]\nkind=host\n", "host" },
	{ "[pool a]\nkind=host\n[pool b]\nkind=host\n", "a" },
	{ "[daemon]\ndefault-pool=b\n[pool a]\nkind=host\n[pool b]\nkind=host\n", "b" },
};

START_TEST(a_create_without_a_pool_always_finds_one)
{
	struct config *c = load_good(defaults[_i].text);

	ck_assert_str_eq(c->default_pool, defaults[_i].pool);
	config_free(c);
}
END_TEST

static const char base[] = "[daemon]\nsocket=/s\n[pool a]\nkind=vmm\nsize=1G\n"
			   "[pool b]\nkind=pinned\nnuma-node=0\n";

static const struct {
	const char *change, *names;
} changes[] = {
	{ "", "" },
	{ "[pool a]\nsize=1024M\n", "" },
	{ "[pool a]\nallow-users=root\npending-max-age=1\n", "" },
	{ "[daemon]\nadmin-group=root\ndefault-pool=b\n[limits]\nmax-bytes=1\n", "" },
	{ "[daemon]\nsocket=/t\nmode=0600\ngroup=root\n",
	  "[daemon] socket, [daemon] mode, [daemon] group" },
	{ "[pool a]\nsize=2G\ndevice=1\n", "[pool a] device, [pool a] size" },
	{ "[pool b]\nnuma-node=1\n", "[pool b] numa-node" },
	{ "[pool b]\nnuma-node=\nkind=host\n", "[pool b] kind, [pool b] numa-node" },
	{ "[pool c]\nkind=host\n", "[pool c]" },
};

START_TEST(what_a_reload_can_not_change_is_named)
{
	struct config *old = load_good(base), *fresh;
	char names[256];

	write_file("g.conf.d/1.conf", changes[_i].change);
	fresh = load_good(base);
	config_needs_restart(old, fresh, names, sizeof(names));
	ck_assert_str_eq(names, changes[_i].names);
	config_free(fresh);
	config_free(old);
}
END_TEST

START_TEST(a_pool_that_went_needs_a_restart_and_names_are_cut)
{
	struct config *old = load_good(base), *fresh = load_good("[daemon]\nsocket=/s\n");
	char names[20];

	config_needs_restart(old, fresh, names, sizeof(names));
	ck_assert_str_eq(names, "[pool a], [pool b]");
	config_needs_restart(old, fresh, names, 18);
	ck_assert_str_eq(names, "[pool a], [pool b");
	config_needs_restart(old, fresh, names, 1);
	ck_assert_str_eq(names, "");
	config_free(fresh);
	config_free(old);
}
END_TEST

/* In a child, as an ordinary user where the test may become one. */
static int check_user_socket(void)
{
	char wanted[SOCKET_PATH_SIZE];
	struct loaded l;
	int wrong;

	if (geteuid() == 0 && (setgid(4000000) < 0 || setuid(4000000) < 0))
		return 1;
	socket_path_of_user(wanted);
	l = load_path("/dev/null");
	wrong = strcmp(l.config->socket_path, wanted) != 0;
	loaded_done(&l);
	return wrong;
}

START_TEST(a_users_daemon_listens_where_his_clients_look)
{
	int status = 0;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(check_user_socket());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(roots_daemon_listens_where_clients_look_first)
{
	struct config *c;

	if (geteuid() != 0) {
		printf("skipped: this is root's default\n");
		return;
	}
	c = load_good("");
	ck_assert_str_eq(c->socket_path, "/run/gpushm/gpushmd.sock");
	config_free(c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tc = tcase_create("config");

	tcase_add_checked_fixture(tc, folder_make, folder_drop);
	tcase_add_test(tc, an_empty_file_gives_the_defaults_of_the_manual);
	tcase_add_test(tc, a_service_restricts_a_mempool_and_a_users_daemon_does_not);
	tcase_add_test(tc, a_pools_defaults_depend_on_its_kind);
	tcase_add_loop_test(tc, a_key_of_an_older_version_is_told_and_has_no_effect, 0, 6);
	tcase_add_loop_test(tc, each_form_of_a_value_is_understood_and_written_with_its_line, 0,
			    array_size(values));
	tcase_add_test(tc, a_dump_is_a_file_that_means_the_same);
	tcase_add_test(tc, a_list_tells_the_line_of_each_part_and_an_empty_one_resets_it);
	tcase_add_test(tc, a_list_that_was_reset_restricts_nobody);
	tcase_add_test(tc, an_empty_assignment_is_back_to_the_default);
	tcase_add_test(tc, drop_ins_override_in_the_order_of_their_names);
	tcase_add_test(tc, a_drop_in_may_change_a_pool_of_the_main_file);
	tcase_add_test(tc, a_users_limits_are_the_general_ones_where_it_has_none);
	tcase_add_loop_test(tc, a_create_without_a_pool_always_finds_one, 0, array_size(defaults));
	tcase_add_loop_test(tc, what_a_reload_can_not_change_is_named, 0, array_size(changes));
	tcase_add_test(tc, a_pool_that_went_needs_a_restart_and_names_are_cut);
	tcase_add_test(tc, a_users_daemon_listens_where_his_clients_look);
	tcase_add_test(tc, roots_daemon_listens_where_clients_look_first);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
