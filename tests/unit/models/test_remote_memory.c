/* SPDX-License-Identifier: MIT
 *
 * Files of web servers, pulls, manifests and grants when memory runs out: the n-th allocation of
 * ours fails for n = 1, 2, ... until none is left to fail. Each time the error is -ENOMEM, unless
 * what was lost is of no use to the result, which is right then; and nothing leaks.
 */
#define MEMORY_SCOPE /* of the threads of a pull, too */
#include "client/gpushm_load.h"
#include "client/gpushm_load_private.h"
#include "client/gpushm_query.h"
#include "client/models/copy/blocks.h"
#include "client/models/nixl/grant.h"
#include "client/models/web/manifest.h"
#include "client/models/web/remote.h"
#include "proto/base/own.h"
#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/unit/memory_fixture.h"

#include <arpa/inet.h>
#include <check.h>
#include <jansson.h>
#include <nettle/sha2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* suites.mk has the linker send these here, too. */
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
int __wrap_asprintf(char **ret, const char *format, ...) __attribute__((format(printf, 2, 3)));

char *__wrap_strdup(const char *text)
{
	return memory_fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t n)
{
	return memory_fails() ? NULL : __real_strndup(text, n);
}

int __wrap_asprintf(char **ret, const char *format, ...)
{
	va_list ap;
	int n;

	*ret = (char *)1; /* it is undefined after an error */
	if (memory_fails())
		return -1;
	va_start(ap, format);
	n = vasprintf(ret, format, ap);
	va_end(ap);
	return n;
}

/* Runs it with one allocation after the other failing; it returns 0 or a negative errno. */
static void run_out_of_memory(int (*run)(void))
{
	unsigned failed = 0;

	for (unsigned long n = 1;; n++) {
		int r;

		memory_left = n;
		r = WITHOUT_MEMORY(run());
		ck_assert_int_eq(fds_leaked(), 0);
		if (memory_left > 0) {
			memory_left = 0;
			ck_assert_msg(r == 0, "%d: %s", r, gpushm_error());
			break;
		}
		ck_assert_msg(r == 0 || r == -ENOMEM, "allocation %lu: %d: %s", n, r,
			      gpushm_error());
		failed += r < 0;
	}
	ck_assert_uint_ge(failed, 3);
}

/* ---- a web server ---- */

#define FILE_BYTES 300000u

static const char manifest[] =
	"{\"version\":1,\"name\":\"a\",\"id\":1,\"etag\":\"\\\"1\\\"\",\"size\":200,"
	"\"header\":200,\"data\":0,\"block\":4194304,\"blocks\":\"\","
	"\"content\":\"xxh3:2d06800538d394c2\",\"attributes\":{\"key\":\"dmFsdWU=\"},"
	"\"mirrors\":[\"https://b/\"]}";
static char contents[FILE_BYTES];
static pid_t server;
static unsigned port;

static void send_all(int fd, const char *from, size_t n)
{
	for (ssize_t r; n > 0 && (r = send(fd, from, n, MSG_NOSIGNAL)) > 0; from += r)
		n -= (size_t)r;
}

/* A buffer of two blocks, as a relay has it. */
#define HEADER_BYTES 104u
#define DATA_BYTES (BLOCK_BYTES + 1000u)

static struct {
	char bytes[HEADER_BYTES + DATA_BYTES];
	char etag[48];
	char *manifest; /* owned */
} pulled;

static void send_part(int fd, const char *request, const char *from, unsigned n, const char *tag)
{
	const char *range = strcasestr(request, "\nrange: bytes=");
	unsigned first = 0, last = n - 1;
	char head[512];

	if (range)
		ck_assert_int_eq(sscanf(range, "%*[^=]=%u-%u", &first, &last), 2);
	last = last < n ? last : n - 1;
	snprintf(head, sizeof(head),
		 "HTTP/1.1 %s\r\nContent-Range: bytes %u-%u/%u\r\nContent-Length: %u\r\n"
		 "ETag: %s\r\nLink: <http://127.0.0.1:%u/b>; rel=duplicate\r\n\r\n",
		 range ? "206 x" : "200 x", first, last, n, last + 1 - first, tag, port);
	send_all(fd, head, strlen(head));
	send_all(fd, from + first, last + 1 - first);
}

static void send_text(int fd, const char *text)
{
	char head[512];

	snprintf(head, sizeof(head), "HTTP/1.1 200 x\r\nContent-Length: %zu\r\n\r\n", strlen(text));
	send_all(fd, head, strlen(head));
	send_all(fd, text, strlen(text));
}

static bool is_for(const char *request, const char *path)
{
	return strncmp(request + strlen("GET "), path, strlen(path)) == 0;
}

/* Moves /moved, has manifests of buffers, and sends parts of the file for all else. */
static void reply(int fd, const char *request)
{
	static const char moved[] =
		"HTTP/1.1 302 x\r\nLocation: /file\r\nContent-Length: 0\r\n\r\n";

	if (is_for(request, "/moved "))
		send_all(fd, moved, strlen(moved));
	else if (is_for(request, "/v1/manifests/pulled "))
		send_text(fd, pulled.manifest);
	else if (is_for(request, "/v1/buffers/pulled "))
		send_part(fd, request, pulled.bytes, sizeof(pulled.bytes), pulled.etag);
	else if (is_for(request, "/v1/manifests/"))
		send_text(fd, manifest);
	else
		send_part(fd, request, contents, FILE_BYTES, "\"1\"");
}

static void serve(int fd)
{
	char request[4096];
	size_t got = 0;

	for (ssize_t r; (r = read(fd, request + got, sizeof(request) - 1 - got)) > 0;) {
		got += (size_t)r;
		request[got] = '\0';
		if (!strstr(request, "\r\n\r\n"))
			continue;
		reply(fd, request);
		got = 0;
	}
	_exit(0);
}

/* A process for each connection. */
static void accept_all(int listening)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	for (int fd; (fd = accept(listening, NULL, NULL)) >= 0; close(fd))
		if (fork() == 0)
			serve(fd);
	_exit(0);
}

static void start_server(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(a);

	for (size_t i = 0; i < sizeof(contents); i++)
		contents[i] = (char)(i * 7 + i / 251);
	ck_assert_int_eq(bind(listening, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(listening, 64), 0);
	ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&a, &n), 0);
	port = ntohs(a.sin_port);
	server = fork();
	if (server == 0)
		accept_all(listening);
	close(listening);
}

static void end_server(void)
{
	kill(server, SIGKILL);
	ck_assert_int_eq(waitpid(server, NULL, 0), server);
}

static const char *url_of(const char *path)
{
	static char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", port, path);
	return url;
}

static const struct gpushm_remote_options options = { .struct_size = sizeof(options),
						      .patience_s = 20 };
static const struct load_stop never;

/* False: this build has no libcurl. What it keeps open is open from then on. */
static bool has_remote(void)
{
	struct remote *r = NULL;
	int error = remote_open(NULL, url_of("/file"), &options, never, &r);

	if (error == -ENOSYS)
		puts("skipped: needs libcurl");
	else
		ck_assert_msg(error == 0, "%s", gpushm_error());
	remote_close(r);
	fds_mark();
	return error == 0;
}

static int read_at(struct remote_reader *rr, struct remote *r, size_t n, uint64_t offset)
{
	static char to[FILE_BYTES];
	int error;

	memset(to, 0, n);
	error = remote_read(rr, r, to, n, offset, never);
	return error == 0 && memcmp(to, contents + offset, n) != 0 ? -EBADMSG : error;
}

static int read_file(void)
{
	struct remote_reader *rr = NULL;
	struct remote *r = NULL;
	int error = remote_open(NULL, url_of("/moved"), &options, never, &r);

	if (error == 0)
		error = remote_set_relay(r, "1; name=\"a\"");
	if (error == 0)
		error = remote_add_mirror(r, url_of("/other"));
	if (error == 0)
		error = remote_reader_new(&rr);
	if (error == 0) {
		remote_expect(rr, r, 1000, 200000);
		error = read_at(rr, r, 100000, 1000);
	}
	if (error == 0)
		error = read_at(rr, r, 100000, 101000);
	if (error == 0)
		error = read_at(NULL, r, 5000, 250000);
	remote_reader_free(rr);
	remote_close(r);
	return error;
}

START_TEST(reading_a_file_without_memory_fails_and_leaks_nothing)
{
	start_server();
	if (has_remote())
		run_out_of_memory(read_file);
	end_server();
}
END_TEST

static int request(void)
{
	const struct remote_request q = { .url = url_of("/moved"),
					  .if_none_match = "\"0\"",
					  .wait_s = 1,
					  .max_bytes = FILE_BYTES,
					  .relay = "1",
					  .options = &options };
	struct remote_reply r;
	int error = remote_request(&q, &r);

	if (error == 0 && (r.n_body != FILE_BYTES || memcmp(r.body, contents, FILE_BYTES) != 0))
		error = -EBADMSG;
	remote_reply_clear(&r);
	return error;
}

START_TEST(a_request_without_memory_fails_and_leaks_nothing)
{
	start_server();
	if (has_remote())
		run_out_of_memory(request);
	end_server();
}
END_TEST

static int wait_for_buffer(void)
{
	return gpushm_pull_wait(url_of("/v1/buffers/a"), NULL, &options, 60000, NULL, NULL);
}

START_TEST(a_wait_without_memory_fails_and_leaks_nothing)
{
	start_server();
	if (has_remote())
		run_out_of_memory(wait_for_buffer);
	end_server();
}
END_TEST

/* ---- a pull ---- */

static uint64_t hash_of(const void *from, size_t n)
{
	struct block_hash *h = digest_code()->new ();
	uint64_t hash;

	digest_code()->begin(h);
	digest_code()->add(h, from, n);
	hash = digest_code()->end(h);
	digest_code()->free(h);
	return hash;
}

static void make_etag(const char *content)
{
	uint8_t hash[SHA256_DIGEST_SIZE];
	struct sha256_ctx sha256;

	sha256_init(&sha256);
	sha256_update(&sha256, HEADER_BYTES, (const uint8_t *)pulled.bytes);
	sha256_digest(&sha256, sizeof(hash), hash);
	snprintf(pulled.etag, sizeof(pulled.etag), "\"xxh3-%s-%02x%02x%02x%02x%02x%02x%02x%02x\"",
		 content, hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]);
}

static void make_pulled(void)
{
	char *data = pulled.bytes + HEADER_BYTES;
	static char key[] = "key", value[] = "value", called[] = "pulled";
	struct manifest_attr attr = { key, value, 5 };
	uint64_t blocks[2];
	struct digest d = { blocks, 2 };
	struct manifest m = { .name = called,
			      .etag = pulled.etag,
			      .size = sizeof(pulled.bytes),
			      .header = HEADER_BYTES,
			      .data = DATA_BYTES,
			      .blocks = blocks,
			      .n_blocks = 2,
			      .attrs = &attr,
			      .n_attrs = 1,
			      .complete = true };
	size_t n;

	pulled.bytes[0] = HEADER_BYTES - 8;
	snprintf(pulled.bytes + 8, HEADER_BYTES - 8,
		 "{\"a\":{\"dtype\":\"U8\",\"shape\":[%u],\"data_offsets\":[0,%u]}}", DATA_BYTES,
		 DATA_BYTES);
	n = strlen(pulled.bytes + 8);
	memset(pulled.bytes + 8 + n, ' ', HEADER_BYTES - 8 - n);
	for (size_t i = 0; i < DATA_BYTES; i++)
		data[i] = (char)(i * 5 + i / 253);
	digest_set(&d, 0, hash_of(data, BLOCK_BYTES));
	digest_set(&d, 1, hash_of(data + BLOCK_BYTES, DATA_BYTES - BLOCK_BYTES));
	digest_format(&d, m.content);
	make_etag(strchr(m.content, ':') + 1);
	ck_assert_int_eq(gpushm_private_manifest_format(&m, &pulled.manifest, &n), 0);
}

static struct daemon daemon_here;

/* What a failed pull leaves is memory that nobody else gets, or a name that is taken. */
static int check_pulled(struct gpushm *c, struct gpushm_buffer *b, int r)
{
	uint64_t used;
	const void *at;
	size_t n;

	if (r == 0 &&
	    (gpushm_buffer_attr(b, "key", &at, &n) < 0 || n != 5 ||
	     memcmp(gpushm_buffer_host_ptr(b), pulled.bytes + HEADER_BYTES, DATA_BYTES) != 0))
		r = -EBADMSG;
	gpushm_close(b);
	if (r == 0)
		r = gpushm_unlink(c, "pulled");
	/* The daemon frees it soon, or never. */
	do {
		struct gpushm_pool **pool = NULL;

		ck_assert_int_eq(gpushm_pools(c, &pool, &n), 0);
		used = pool[0]->used_bytes;
		gpushm_free(pool);
	} while (used > 0);
	return r;
}

static void ignore_begun(void *user, const struct manifest *m, const char *header,
			 struct gpushm_buffer *b)
{
}

static void ignore_block(void *user, uint64_t block)
{
}

static void ignore_ended(void *user, int result)
{
}

/* As a program, or as a relay does. */
static int pull_by(const struct pull_observer *observer)
{
	const struct gpushm_load_options load = { .struct_size = sizeof(load),
						  .flags = GPUSHM_LOAD_REPLACE,
						  .remote = &options };
	struct gpushm_buffer *b = NULL;
	struct gpushm *c = NULL;
	int r;

	memory_armed = false;
	ck_assert_int_eq(gpushm_connect(daemon_here.socket, &c), 0);
	memory_armed = true;
	r = gpushm_private_pull(c, url_of("/v1/buffers/pulled"), NULL, NULL, &load, observer, &b);
	memory_armed = false;
	r = check_pulled(c, b, r);
	gpushm_disconnect(c);
	return r;
}

static int pull(void)
{
	return pull_by(NULL);
}

static int pull_for_others(void)
{
	const struct pull_observer observer = { .begun = ignore_begun,
						.block = ignore_block,
						.ended = ignore_ended,
						.relay = "https://b/v1/buffers/pulled; since=1" };

	return pull_by(&observer);
}

START_TEST(a_pull_without_memory_leaves_nothing)
{
	static int (*const ways[])(void) = { pull, pull_for_others };

	make_pulled();
	start_server();
	daemon_start(&daemon_here, "[pool host]\nkind=host\nsize=64M\n", NULL);
	if (has_remote())
		run_out_of_memory(ways[_i]);
	daemon_stop(&daemon_here);
	end_server();
	free(take_ptr(pulled.manifest));
}
END_TEST

/* ---- manifests and grants ---- */

static char *right;

static void *allocate(size_t n)
{
	return __wrap_malloc(n);
}

/* jansson 2.14 drops a string that it has no memory for, and what is left is no JSON. */
static bool is_json(const char *text)
{
	json_t *json = json_loads(text, 0, NULL);

	json_decref(json);
	return json != NULL;
}

/* What is written is all of it, or nothing. */
static int compare(int r, char *text)
{
	if (r < 0)
		return r;
	if (!right)
		right = text;
	else if (strcmp(text, right) != 0)
		r = is_json(text) ? -EBADMSG : -ENOMEM;
	if (text != right)
		free(text);
	return r;
}

static char name[] = "a", key[] = "key", value[] = "value", etag[] = "\"1\"";
static char mirror[] = "https://b/v1/buffers/a";

static int write_manifest(void)
{
	struct manifest_attr attr = { key, value, 5 };
	char *mirrors[] = { mirror };
	uint64_t block = 7;
	const struct manifest m = { .name = name,
				    .etag = etag,
				    .size = 300,
				    .header = 200,
				    .data = 100,
				    .blocks = &block,
				    .n_blocks = 1,
				    .content = "xxh3:0000000000000000",
				    .attrs = &attr,
				    .n_attrs = 1,
				    .mirrors = mirrors,
				    .n_mirrors = 1,
				    .complete = true };
	char *text = NULL;
	size_t n;
	int r = gpushm_private_manifest_format(&m, &text, &n);

	return compare(r, text);
}

/* slots: of a ring; 0: there are pieces */
static int write_grant(unsigned slots)
{
	struct grant_piece pieces[] = { { 200, 100, 0 }, { 300, 50, 128 } };
	const struct grant g = { .session = "0123",
				 .expires_s = 60,
				 .etag = etag,
				 .size = 350,
				 .header = 200,
				 .metadata = value,
				 .n_metadata = 5,
				 .memory = { .address = 4096, .bytes = 4096 },
				 .pieces = pieces,
				 .n_pieces = slots ? 0 : 2,
				 .slots = slots,
				 .slot_bytes = slots ? 2048 : 0 };
	char *text = NULL;
	int r = gpushm_private_grant_format(&g, &text);

	return compare(r, text);
}

static int write_pieces(void)
{
	return write_grant(0);
}

static int write_ring(void)
{
	return write_grant(2);
}

START_TEST(a_text_written_without_memory_is_whole_or_fails)
{
	int (*const write[])(void) = { write_manifest, write_pieces, write_ring };

	json_set_alloc_funcs(allocate, free);
	fds_mark();
	ck_assert_int_eq(write[_i](), 0);
	run_out_of_memory(write[_i]);
	free(take_ptr(right));
}
END_TEST

static int parse_manifest(void)
{
	struct manifest m;
	int r = manifest_parse("test", right, strlen(right), &m);

	gpushm_private_manifest_clear(&m);
	return r;
}

static int parse_grant(void)
{
	struct grant g;
	int r = grant_parse("test", right, strlen(right), &g);

	grant_clear(&g);
	return r;
}

START_TEST(reading_a_text_without_memory_reports_out_of_memory)
{
	fds_mark();
	right = strdup(manifest);
	run_out_of_memory(parse_manifest);
	free(right);
	right = strdup("{\"version\":1,\"session\":\"0123456789abcdef0123456789abcdef\","
		       "\"expires\":60,\"etag\":\"\\\"1\\\"\",\"size\":300,\"header\":200,"
		       "\"metadata\":\"bWV0YQ==\",\"memory\":{\"gpu\":false,\"device\":0,"
		       "\"address\":4096,\"bytes\":4096},\"pieces\":[[200,100,0]]}");
	run_out_of_memory(parse_grant);
	free(take_ptr(right));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("remote_memory");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, reading_a_file_without_memory_fails_and_leaks_nothing);
	tcase_add_test(tc, a_request_without_memory_fails_and_leaks_nothing);
	tcase_add_test(tc, a_wait_without_memory_fails_and_leaks_nothing);
	tcase_add_loop_test(tc, a_pull_without_memory_leaves_nothing, 0, 2);
	tcase_add_loop_test(tc, a_text_written_without_memory_is_whole_or_fails, 0, 3);
	tcase_add_test(tc, reading_a_text_without_memory_reports_out_of_memory);
	return suite_run("remote_memory", tc, NULL);
}
