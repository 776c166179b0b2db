/* SPDX-License-Identifier: MIT
 *
 * The memory of a buffer that was loaded from files goes without a twin, and comes back from the
 * files: the same bytes or an error that says what to do, and never others, nor those of a twin
 * that is damaged.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_memory.h"
#include "client/gpushm_private.h"
#include "client/gpushm_query.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/kind.h"
#include "tests/lib/kept.h"
#include "tests/lib/model_files.h"
#include "tests/lib/raw.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <arpa/inet.h>
#include <check.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHAPE "9000001" /* three blocks, and a part of a page */
#define OWNER 65531
#define WORKERS 4

static void setup(void)
{
	model_files_open();
	client_setup();
}

static void setup_small(void)
{
	model_files_open();
	client_setup_with("[pool models]\nkind=host\nsize=16M\npending-max-age=0\n");
}

static void teardown(void)
{
	model_files_close();
	client_teardown();
}

static void setup_kept(void)
{
	model_files_open();
	kept_setup();
}

static void teardown_kept(void)
{
	model_files_close();
	kept_teardown();
}

#define ck_works(call) ck_assert_msg((call) == 0, "%s", gpushm_error())
#define ck_refuses(call, error, text)                                                          \
	do {                                                                                   \
		int r_ = (call);                                                               \
		ck_assert_msg(r_ == -(error), "%d, not %d: %s", r_, -(error), gpushm_error()); \
		model_expect_error(text);                                                      \
	} while (0)

static const char *write_model(void)
{
	return model_write("m.safetensors", "a", SHAPE);
}

static void change_byte(const char *path, long at, int how)
{
	FILE *f = fopen(path, "r+e");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, at, SEEK_END), 0);
	fputc(how, f);
	ck_assert_int_eq(fclose(f), 0);
}

static void load_to(const char *pool, const char *name, const char *source)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };

	ck_works(gpushm_load(c, &source, 1, name, &o, NULL, NULL));
}

static void load_evicted(const char *source)
{
	load_to("host", "~/m", source);
	ck_works(gpushm_evict(c, "~/m"));
}

static enum gpushm_residence residence(const char *name)
{
	struct gpushm_stat *st = NULL;
	enum gpushm_residence r;

	ck_works(gpushm_stat(c, name, 0, 0, &st));
	r = st->residence;
	gpushm_free(st);
	return r;
}

static int try_open(void)
{
	struct gpushm_buffer *b = NULL;
	int r = gpushm_open(c, "~/m", GPUSHM_READ, 10000, NULL, &b);

	if (r < 0)
		return r;
	model_expect(b, "a", "a");
	return gpushm_close(b);
}

static void expect_all_well(void)
{
	ck_works(try_open());
	ck_assert_int_eq(residence("~/m"), GPUSHM_RESIDENT);
	ck_works(gpushm_unlink(c, "~/m"));
}

/* ---- away and back ---- */

static void comes_back(const char *pool)
{
	struct gpushm_buffer *b = NULL;
	void *host, *device;

	load_to(pool, "~/m", write_model());
	ck_works(gpushm_open(c, "~/m", GPUSHM_READ, 0, NULL, &b));
	host = gpushm_buffer_host_ptr(b);
	device = gpushm_buffer_device_ptr(b);
	for (int i = 0; i < 3; i++) {
		ck_works(gpushm_suspend(b, 0));
		ck_works(gpushm_evict(c, "~/m"));
		ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
		ck_assert_uint_eq(client_used_bytes(), 0);
		ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
		ck_assert_int_eq(residence("~/m"), GPUSHM_RESIDENT);
		ck_assert_ptr_eq(gpushm_buffer_host_ptr(b), host);
		ck_assert_ptr_eq(gpushm_buffer_device_ptr(b), device);
		model_expect(b, "a", "a");
	}
	ck_works(gpushm_close(b));
	ck_works(gpushm_evict(c, "~/m"));
	ck_works(gpushm_verify((ck_works(gpushm_open(c, "~/m", GPUSHM_READ, 0, NULL, &b)), b), NULL,
			       NULL, NULL));
	ck_works(gpushm_close(b));
	expect_all_well();
}

START_TEST(a_buffer_comes_back_from_its_file_on_each_pool)
{
	struct gpushm_pool **pools = NULL;
	size_t n;

	ck_works(gpushm_pools(c, &pools, &n));
	for (size_t i = 0; i < n; i++)
		if (!pools[i]->failed && !kind_opens_pool(pools[i]->kind))
			comes_back(pools[i]->name);
	gpushm_free(pools);
}
END_TEST

START_TEST(a_folder_of_shards_is_loaded_again)
{
	model_write("x-1.safetensors", "a", SHAPE);
	model_write("x-2.safetensors", "b", "5");
	load_evicted(model_file(""));
	expect_all_well();
}
END_TEST

/* Of a load that says nothing about it all is as it was. */
START_TEST(memory_that_nobody_has_offered_stays)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o) };
	struct gpushm_buffer *b = NULL;

	load_to("models", "~/m", write_model());
	ck_refuses(gpushm_create(c, "~/more", 9 << 20, &o, &b), ENOSPC, "");
	ck_assert_int_eq(residence("~/m"), GPUSHM_RESIDENT);
	ck_works(gpushm_set_keep(c, "~/m", GPUSHM_WAIT_FOREVER, 0));
	ck_refuses(gpushm_create(c, "~/more", 9 << 20, &o, &b), ENOSPC, "");
	ck_works(gpushm_set_keep(c, "~/m", 0, 0));
	ck_works(gpushm_create(c, "~/more", 9 << 20, &o, &b));
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	ck_works(gpushm_discard(b));
	expect_all_well();
}
END_TEST

START_TEST(a_load_makes_the_twin_and_says_how_long_it_stays)
{
	const char *source = write_model();
	struct gpushm_load_options load = { .struct_size = sizeof(load),
					    .flags = GPUSHM_LOAD_KEEP,
					    .keep_ms = 5000,
					    .twin = "host" };
	struct gpushm_stat *st = NULL;

	ck_works(gpushm_load(c, &source, 1, "~/m", NULL, &load, NULL));
	ck_works(gpushm_stat(c, "~/m", 0, 0, &st));
	ck_assert_uint_eq(st->keep_ms, 5000);
	gpushm_free(st);
	ck_works(gpushm_evict(c, "~/m"));
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_TWIN);
	ck_works(unlink(source));
	expect_all_well();
	load.twin = NULL;
	write_model();
	ck_works(gpushm_load(c, &source, 1, "~/m", NULL, &load, NULL));
	ck_works(gpushm_evict(c, "~/m"));
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	expect_all_well();
	load.twin = "nowhere"; /* the buffer is there all the same */
	ck_refuses(gpushm_load(c, &source, 1, "~/m", NULL, &load, NULL), ENOENT, "nowhere");
	expect_all_well();
}
END_TEST

/* ---- what can't come back does not go ---- */

START_TEST(a_buffer_whose_source_is_not_there_is_not_evicted)
{
	const char *source = write_model(), *two[] = { source, source };
	struct gpushm_load_options part = { .struct_size = sizeof(part) };
	const char *only = "a";
	struct gpushm_buffer *b;

	load_to("host", "~/m", source);
	ck_works(rename(source, model_file("other")));
	ck_refuses(gpushm_evict(c, "~/m"), ENODATA, "No such file");
	ck_refuses(gpushm_set_keep(c, "~/m", 0, 0), ENODATA, "put it back");
	ck_works(rename(model_file("other"), source));
	model_write("m.safetensors", "b", SHAPE);
	ck_refuses(gpushm_evict(c, "~/m"), ESTALE, "other headers");
	write_model();
	two[1] = model_write("n.safetensors", "b", "5");
	expect_all_well();
	ck_works(gpushm_load(c, two, 2, "~/m", NULL, NULL, NULL));
	ck_refuses(gpushm_evict(c, "~/m"), ESTALE, "several sources");
	ck_works(gpushm_unlink(c, "~/m"));
	part.only = &only;
	part.n_only = 1;
	ck_works(gpushm_load(c, &source, 1, "~/m", NULL, &part, NULL));
	ck_refuses(gpushm_evict(c, "~/m"), ESTALE, "a part of one");
	expect_all_well();
	b = client_create("~/m", 4096, NULL);
	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	ck_refuses(gpushm_evict(c, "~/m"), EBUSY, "no twin and no source");
	client_close_and_unlink(b, "~/m");
}
END_TEST

START_TEST(a_buffer_in_use_is_not_evicted)
{
	const char *source = write_model();
	struct gpushm_buffer *b = NULL;

	ck_works(model_load(c, source, "~/m", 0, &b));
	ck_refuses(gpushm_evict(c, "~/m"), EBUSY, "is in use");
	/* Nobody looks for a source where there is a twin. */
	ck_works(unlink(source));
	ck_works(gpushm_make_twin(c, "~/m", "host"));
	ck_refuses(gpushm_evict(c, "~/m"), EBUSY, "is in use");
	ck_works(gpushm_close(b));
	expect_all_well();
}
END_TEST

/* ---- what has changed meanwhile ---- */

START_TEST(a_file_with_other_bytes_is_never_published)
{
	const char *source = write_model();

	load_evicted(source);
	change_byte(source, -1, 'x');
	ck_refuses(try_open(), ESTALE, "has the digest");
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	ck_assert_uint_eq(client_used_bytes(), 0);
	model_write("m.safetensors", "b", SHAPE);
	ck_refuses(try_open(), ESTALE, "other headers");
	ck_works(truncate(source, 100));
	ck_refuses(try_open(), ESTALE, "m.safetensors");
	ck_works(unlink(source));
	ck_refuses(try_open(), ENODATA, "No such file");
	write_model();
	expect_all_well();
}
END_TEST

START_TEST(a_resume_that_fails_can_be_repeated)
{
	const char *source = write_model();
	struct gpushm_buffer *b = NULL;

	ck_works(model_load(c, source, "~/m", 0, &b));
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/m"));
	ck_works(rename(source, model_file("other")));
	ck_refuses(gpushm_resume(b, 1000), ENODATA, "put it back");
	ck_assert_int_eq(gpushm_buffer_suspended(b), 1);
	ck_works(rename(model_file("other"), source));
	ck_assert_int_eq(gpushm_resume(b, 1000), GPUSHM_OTHER_PAGES);
	model_expect(b, "a", "a");
	client_close_and_unlink(b, "~/m");
}
END_TEST

/* As a program that is linked with libgpushm alone. */
/* Its attributes are those of the first one, with another file and digest. */
START_TEST(another_generation_comes_back_from_its_own_file)
{
	struct gpushm_buffer *b = NULL;
	const char *source, *last;

	load_to("host", "~/m", write_model());
	ck_works(gpushm_open(c, "~/m", GPUSHM_READ, 0, NULL, &b));
	last = (const char *)gpushm_buffer_host_ptr(b) + 9000000;
	ck_assert_int_ne(*last, 'x');
	ck_works(gpushm_suspend(b, 0));
	source = model_write("n.safetensors", "a", SHAPE);
	change_byte(source, -1, 'x');
	load_to("host", "~/next", source);
	ck_works(gpushm_rename(c, "~/next", "~/m", GPUSHM_REPLACE));
	ck_works(gpushm_evict(c, "~/m"));
	ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_GENERATION);
	ck_assert_int_eq(*last, 'x');
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/m"));
	ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
	ck_assert_int_eq(*last, 'x');
	client_close_and_unlink(b, "~/m");
}
END_TEST

START_TEST(a_program_without_the_loader_says_what_to_do)
{
	load_evicted(write_model());
	gpushm_private_set_loader(NULL);
	ck_refuses(try_open(), ENODATA, "gpushmctl promote ~/m");
	ck_works(gpushm_unlink(c, "~/m"));
	load_to("host", "~/m", write_model());
	gpushm_private_set_loader(NULL);
	ck_refuses(gpushm_evict(c, "~/m"), EBUSY, "no twin and no source");
	ck_works(gpushm_unlink(c, "~/m"));
}
END_TEST

/* ---- a server ---- */

/* Takes connections, and never says a word. */
static int silent_server(char *url, size_t size)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	snprintf(url, size, "http://127.0.0.1:%d/m.safetensors", ntohs(at.sin_port));
	return fd;
}

static void make_loaded_from(const char *url)
{
	const struct gpushm_attr attrs[] = { { sizeof(attrs[0]), "gpushm.path", url, strlen(url) },
					     { sizeof(attrs[0]), "gpushm.source", "0", 1 },
					     { sizeof(attrs[0]), "gpushm.content", "xxh3:0", 6 } };
	const struct gpushm_create_options o = { .struct_size = sizeof(o),
						 .attrs = attrs,
						 .n_attrs = array_size(attrs) };
	struct gpushm_buffer *b = client_create("~/m", 4096, &o);
	struct gpushm_stat *st = NULL;
	struct raw r;

	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	ck_works(gpushm_close(b));
	ck_works(gpushm_stat(c, "~/m", 0, 0, &st));
	raw_greet(&r, d.socket);
	ck_assert_int_eq(raw_call(&r, REQUEST(EVICT, Evict, evict, BYTES(name, "~/m"),
					      SET(source, st->id))),
			 0);
	raw_close(&r);
	gpushm_free(st);
}

START_TEST(an_open_waits_for_a_server_as_long_as_its_timeout)
{
	char url[64];
	_cleanup_(close_fd) int server = silent_server(url, sizeof(url));
	struct gpushm_buffer *b = NULL;
	uint64_t start;

	ck_assert_int_ge(server, 0);
	make_loaded_from(url);
	start = clock_monotonic_ms();
	ck_refuses(gpushm_open(c, "~/m", GPUSHM_READ, 700, NULL, &b), ETIMEDOUT,
		   "was not loaded before the timeout");
	ck_assert_uint_ge(clock_monotonic_ms() - start, 700);
	ck_assert_uint_lt(clock_monotonic_ms() - start, 20000);
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	ck_works(gpushm_unlink(c, "~/m"));
}
END_TEST

/* ---- a twin that is damaged ---- */

/* Publishes a buffer that has other bytes as the twin. */
static void give_damaged_twin(void)
{
	struct raw r;
	uint64_t lease, of;
	struct gpushm_stat *st = NULL;

	ck_works(gpushm_stat(c, "~/m", 0, 0, &st));
	raw_greet(&r, d.socket);
	of = raw_open(&r, "~/m");
	ck_assert_int_eq(raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, "~/t"),
					      BYTES(pool, "host"), SET(size_bytes, st->bytes))),
			 0);
	lease = r.reply->attach->lease;
	ck_assert_int_eq(raw_call(&r, REQUEST(PUBLISH, Publish, publish, SET(lease, lease),
					      SET(state, GPUSHM__PROTO__STATE__STATE_SEALED),
					      SET(twin_of, of))),
			 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, of))), 0);
	raw_close(&r);
	gpushm_free(st);
}

START_TEST(a_damaged_twin_is_never_published)
{
	const char *source = write_model();

	load_to("host", "~/m", source);
	give_damaged_twin();
	ck_works(gpushm_evict(c, "~/m"));
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_TWIN);
	ck_works(try_open()); /* of its source, though nobody has said that there is one */
	ck_assert_uint_eq(daemon_log_count(&d, "found that its twin is damaged"), 1);
	ck_works(gpushm_evict(c, "~/m"));
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	ck_works(rename(source, model_file("other")));
	ck_refuses(try_open(), ENODATA, "No such file");
	ck_assert_uint_eq(daemon_log_count(&d, "found that its twin is damaged"), 1);
	ck_works(rename(model_file("other"), source));
	expect_all_well();
}
END_TEST

START_TEST(a_damaged_twin_without_a_source_is_an_error)
{
	struct gpushm_buffer *b = client_create("~/m", 5 << 20, NULL);
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "a",
					  .dtype = { .code = 1, .bits = 8, .lanes = 1 },
					  .ndim = 1,
					  .shape = (const int64_t[]){ 5 << 20 } };
	_cleanup_(free_ptr) char *ones = malloc(5 << 20);

	memset(ones, 1, 5 << 20);
	ck_works(gpushm_describe(b, &spec, 1));
	ck_works(gpushm_write(b, 0, ones, 5 << 20));
	ck_works(gpushm_digest(b, NULL, NULL, NULL));
	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	ck_works(gpushm_close(b));
	give_damaged_twin();
	ck_works(gpushm_evict(c, "~/m"));
	ck_refuses(gpushm_open(c, "~/m", GPUSHM_READ, 0, NULL, &b), EBADMSG, "its twin is damaged");
	client_await(client_used_bytes() == 0); /* nobody reads it again */
	ck_refuses(gpushm_open(c, "~/m", GPUSHM_READ, 0, NULL, &b), ENODATA, "its bytes are lost");
	ck_works(gpushm_unlink(c, "~/m"));
}
END_TEST

/* ---- many ---- */

/* socket uid name: opens when it is told to, and prints what came of it. */
static int open_role(char **args)
{
	uid_t uid = (uid_t)atoi(args[1]);
	struct gpushm_buffer *b = NULL;
	struct gpushm *conn = NULL;
	char line[8];
	int r;

	if (uid != 0 && !user_become(uid, uid))
		return 1;
	if (gpushm_connect(args[0], &conn) < 0 || !fgets(line, sizeof(line), stdin))
		return 1;
	r = gpushm_open(conn, args[2], GPUSHM_READ, 20000, NULL, &b);
	if (r == 0)
		r = gpushm_verify(b, NULL, NULL, NULL);
	printf("%d %s\n", r, r < 0 ? gpushm_error() : "");
	fflush(stdout);
	gpushm_close(b);
	gpushm_disconnect(conn);
	return 0;
}

/* socket uid source: loads "m", and evicts it. */
static int load_role(char **args)
{
	uid_t uid = (uid_t)atoi(args[1]);
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };
	const char *source = args[2];
	struct gpushm *conn = NULL;

	if (!user_become(uid, uid) || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_load(conn, &source, 1, "m", &o, NULL, NULL) < 0 || gpushm_evict(conn, "m") < 0)
		return fprintf(stderr, "%s\n", gpushm_error()), 1;
	gpushm_disconnect(conn);
	return 0;
}

static void start_opener(struct role_process *p, uid_t uid, const char *name)
{
	char user[16];

	snprintf(user, sizeof(user), "%u", uid);
	role_start(p, "opener", (const char *const[]){ d.socket, user, name, NULL });
}

static void expect_opener(struct role_process *p, int error, const char *text)
{
	char line[512], number[16];

	role_read_line(p, line, sizeof(line));
	snprintf(number, sizeof(number), "%d ", -error);
	ck_assert_msg(strncmp(line, number, strlen(number)) == 0 && strstr(line, text), "%s", line);
	role_finish(p);
}

START_TEST(of_processes_that_open_it_at_once_one_loads)
{
	struct role_process workers[WORKERS];

	load_evicted(write_model());
	for (int i = 0; i < WORKERS; i++)
		start_opener(&workers[i], 0, "~/m");
	for (int i = 0; i < WORKERS; i++)
		role_write_line(&workers[i], "go");
	for (int i = 0; i < WORKERS; i++)
		expect_opener(&workers[i], 0, "");
	expect_all_well();
}
END_TEST

/* As a process does that loads. */
START_TEST(a_process_that_is_killed_while_it_loads_leaves_it_to_the_next)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct role_process next;
	struct gpushm_buffer *dying = NULL;
	struct gpushm *other = NULL;
	struct gpushm_stat *st = NULL;
	char name[64];

	load_evicted(write_model());
	ck_works(gpushm_stat(c, "~/m", 0, 0, &st));
	snprintf(name, sizeof(name), "~/.restore-%" PRIu64, st->id);
	ck_works(gpushm_connect(d.socket, &other));
	ck_works(gpushm_create(other, name, st->bytes, &o, &dying));
	gpushm_free(st);
	start_opener(&next, 0, "~/m");
	role_write_line(&next, "go");
	client_await(client_waiting() == 1);
	ck_works(gpushm_discard(dying));
	gpushm_disconnect(other);
	expect_opener(&next, 0, "");
	expect_all_well();
}
END_TEST

START_TEST(the_file_is_read_with_the_rights_of_the_opener)
{
	const char *source = write_model();
	struct role_process p;
	char user[16];

	if (!user_may_change())
		return;
	snprintf(user, sizeof(user), "%u", OWNER);
	role_start(&p, "loader", (const char *const[]){ d.socket, user, source, NULL });
	role_finish(&p);
	ck_refuses(gpushm_open(c, "m", GPUSHM_READ, 0, NULL, &(struct gpushm_buffer *){ NULL }),
		   ENODATA, "only its owner's processes");
	ck_works(chmod(source, 0));
	start_opener(&p, OWNER, "m");
	role_write_line(&p, "go");
	expect_opener(&p, ENODATA, "Permission denied");
	ck_works(chmod(source, 0644));
	start_opener(&p, OWNER, "m");
	role_write_line(&p, "go");
	expect_opener(&p, 0, "");
	/* An administrator may evict it, as far as its owner has offered that. */
	ck_works(gpushm_evict(c, "m"));
	ck_works(gpushm_unlink(c, "m"));
}
END_TEST

START_TEST(only_the_owner_says_that_there_is_a_source)
{
	struct raw r;
	struct gpushm_stat *st = NULL;

	load_to("host", "~/m", write_model());
	ck_works(gpushm_stat(c, "~/m", 0, 0, &st));
	raw_greet(&r, d.socket);
	ck_assert_int_eq(raw_call(&r, REQUEST(EVICT, Evict, evict, BYTES(name, "~/m"),
					      SET(source, st->id + 1))),
			 CODE_NOT_FOUND);
	ck_assert_int_eq(raw_call(&r, REQUEST(KEEP, Keep, keep, BYTES(name, "~/m"),
					      SET(source, st->id + 1))),
			 CODE_NOT_FOUND);
	ck_assert_int_eq(raw_call(&r, REQUEST(EVICT, Evict, evict, BYTES(name, "~/m"))),
			 CODE_NO_COPY);
	raw_close(&r);
	gpushm_free(st);
	expect_all_well();
}
END_TEST

/* ---- the daemon dies ---- */

START_TEST(the_next_daemon_knows_that_there_is_a_source)
{
	load_to("host", "~/m", write_model());
	ck_works(gpushm_set_keep(c, "~/m", 0, 0));
	kept_crash();
	ck_assert_int_eq(residence("~/m"), GPUSHM_RESIDENT);
	gpushm_private_set_loader(NULL);
	ck_works(gpushm_evict(c, "~/m")); /* without a look at the file */
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	kept_crash();
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	ck_refuses(try_open(), ENODATA, "promote");
	ck_works(gpushm_unlink(c, "~/m"));
}
END_TEST

START_TEST(a_buffer_comes_back_after_a_crash)
{
	load_evicted(write_model());
	kept_crash();
	ck_works(try_open());
	kept_crash();
	ck_works(gpushm_evict(c, "~/m"));
	expect_all_well();
}
END_TEST

/* As if systemd had lost the memory of the twin, the only one that it has. */
static void lose_twin(void)
{
	supervisor_end(&k, SIGKILL);
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 1);
	for (size_t i = 0; i < k.n_kept; i++)
		if (k.kept[i].name[0] == 'm') {
			close(k.kept[i].fd);
			k.kept[i] = k.kept[--k.n_kept];
			break;
		}
	supervisor_start(&k);
}

START_TEST(a_buffer_whose_twin_is_lost_is_loaded_again)
{
	if (supervisor_skips("a_buffer_whose_twin_is_lost_is_loaded_again"))
		return;
	load_to("host", "~/m", write_model());
	ck_works(gpushm_set_keep(c, "~/m", 0, 0));
	ck_works(gpushm_make_twin(c, "~/m", "host"));
	ck_works(gpushm_evict(c, "~/m"));
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_TWIN);
	lose_twin();
	ck_assert_int_eq(residence("~/m"), GPUSHM_IN_SOURCE);
	expect_all_well();
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "opener", open_role },
					     { "loader", load_role },
					     { "user", user_role } };
	TCase *t = tcase_create("source"), *small = tcase_create("room"),
	      *kept = tcase_create("restart");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_buffer_comes_back_from_its_file_on_each_pool);
	tcase_add_test(t, a_folder_of_shards_is_loaded_again);
	tcase_add_test(t, a_load_makes_the_twin_and_says_how_long_it_stays);
	tcase_add_test(t, a_buffer_whose_source_is_not_there_is_not_evicted);
	tcase_add_test(t, a_buffer_in_use_is_not_evicted);
	tcase_add_test(t, a_file_with_other_bytes_is_never_published);
	tcase_add_test(t, a_resume_that_fails_can_be_repeated);
	tcase_add_test(t, another_generation_comes_back_from_its_own_file);
	tcase_add_test(t, a_program_without_the_loader_says_what_to_do);
	tcase_add_test(t, an_open_waits_for_a_server_as_long_as_its_timeout);
	tcase_add_test(t, a_damaged_twin_is_never_published);
	tcase_add_test(t, a_damaged_twin_without_a_source_is_an_error);
	tcase_add_test(t, of_processes_that_open_it_at_once_one_loads);
	tcase_add_test(t, a_process_that_is_killed_while_it_loads_leaves_it_to_the_next);
	tcase_add_test(t, the_file_is_read_with_the_rights_of_the_opener);
	tcase_add_test(t, only_the_owner_says_that_there_is_a_source);
	tcase_add_checked_fixture(small, setup_small, teardown);
	tcase_add_test(small, memory_that_nobody_has_offered_stays);
	tcase_add_checked_fixture(kept, setup_kept, teardown_kept);
	tcase_set_timeout(kept, 120);
	tcase_add_test(kept, the_next_daemon_knows_that_there_is_a_source);
	tcase_add_test(kept, a_buffer_comes_back_after_a_crash);
	tcase_add_test(kept, a_buffer_whose_twin_is_lost_is_loaded_again);
	return suite_run("source", t, small, kept, NULL);
}
