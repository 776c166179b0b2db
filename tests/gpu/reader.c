/* SPDX-License-Identifier: MIT
 *
 * A reader's process. If it reads anything but what was written, it prints a line to stderr and
 * ends, and its test fails.
 */
#include "tests/gpu/reader.h"

#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/gpu/driver.h"
#include "tests/gpu/fixture.h"

#include <check.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define CHUNK ((uint64_t)32 << 20)
#define NAME_BYTES 64

struct reader {
	struct driver gpu;
	struct gpushm *c;
	unsigned id, n;
	struct gpushm_buffer **buffers; /* owned; as many as n */
	unsigned char *chunk;		/* owned; CHUNK bytes */
};

unsigned reader_word(unsigned id, unsigned number)
{
	return 0x5eed0000 ^ (id << 24) ^ number;
}

static void give_up(const char *what, unsigned number)
{
	fprintf(stderr, "reader: %s of buffer %u: %s\n", what, number, gpushm_error());
	exit(1);
}

/* Buffers are numbered: vmm, pinned, mempools. */
static void name_of(unsigned id, unsigned number, char *name)
{
	if (number < 2)
		snprintf(name, NAME_BYTES, "%u/%s", id, number ? "pinned" : "vmm");
	else
		snprintf(name, NAME_BYTES, "%u/mempool/%u", id, number - 2);
}

static void make(struct reader *r, unsigned number, const char *pool, uint64_t bytes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = NULL;
	char name[NAME_BYTES];

	name_of(r->id, number, name);
	if (gpushm_create(r->c, name, bytes, &o, &b) < 0)
		give_up("create", number);
	if (r->gpu.memset_d32(gpu_ptr(b), reader_word(r->id, number), bytes / 4) != CUDA_SUCCESS)
		give_up("memset", number);
	if (gpushm_publish(b, GPUSHM_SHARED) < 0)
		give_up("publish", number);
	r->buffers[number] = b;
}

static void compare(struct reader *r, struct gpushm_buffer *b, uint64_t from, uint64_t bytes,
		    unsigned word)
{
	if (gpushm_read(b, from, r->chunk, bytes) < 0)
		give_up("read", word);
	for (uint64_t i = 0; i < bytes / 4; i++) {
		if (((const unsigned *)r->chunk)[i] == word)
			continue;
		fprintf(stderr, "reader: %x at byte %" PRIu64 " of %s, which was %x\n",
			((const unsigned *)r->chunk)[i], from + 4 * i, gpushm_buffer_name(b), word);
		exit(1);
	}
}

static void compare_all(struct reader *r, struct gpushm_buffer *b, unsigned word)
{
	uint64_t bytes = gpushm_buffer_bytes(b);

	for (uint64_t at = 0; at < bytes; at += CHUNK)
		compare(r, b, at, bytes - at < CHUNK ? bytes - at : CHUNK, word);
}

/* The contents first: they need no daemon. */
static void check(struct reader *r)
{
	char name[NAME_BYTES];

	for (unsigned i = 0; i < r->n; i++) {
		compare_all(r, r->buffers[i], reader_word(r->id, i));
		name_of(r->id, i, name);
		if (gpushm_wait(r->c, name, 0) < 0 || gpushm_buffer_lost(r->buffers[i]))
			give_up("lease", i);
	}
}

static void check_neighbour(struct reader *r, unsigned id)
{
	for (unsigned i = 0; i < r->n; i++) {
		struct gpushm_buffer *b = NULL;
		char name[NAME_BYTES];

		name_of(id, i, name);
		if (gpushm_open(r->c, name, GPUSHM_READ, 0, NULL, &b) < 0)
			give_up("open", i);
		compare_all(r, b, reader_word(id, i));
		if (gpushm_close(b) < 0)
			give_up("close", i);
	}
}

static void drop(struct reader *r)
{
	char name[NAME_BYTES];

	for (unsigned i = 0; i < r->n; i++) {
		name_of(r->id, i, name);
		if (gpushm_close(r->buffers[i]) < 0 || gpushm_unlink(r->c, name) < 0)
			give_up("close", i);
	}
	r->n = 0;
}

/* Reads like a consumer, which needs no daemon for that. */
static void read_on(struct reader *r, unsigned turn)
{
	unsigned number = r->n ? turn % r->n : 0;
	uint64_t bytes;

	if (!r->n)
		return;
	bytes = gpushm_buffer_bytes(r->buffers[number]);
	compare(r, r->buffers[number], 0, bytes < CHUNK ? bytes : CHUNK,
		reader_word(r->id, number));
}

static void serve(struct reader *r)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	char line[64];

	for (unsigned turn = 0;; turn++) {
		if (poll(&in, 1, r->n ? 0 : -1) == 0) {
			read_on(r, turn);
			continue;
		}
		if (!fgets(line, sizeof(line), stdin))
			return;
		if (strcmp(line, "check\n") == 0)
			check(r);
		else if (strcmp(line, "drop\n") == 0)
			drop(r);
		else
			check_neighbour(r, (unsigned)atoi(line + strlen("neighbour ")));
		puts("ok");
	}
}

int reader_role(char **args)
{
	struct reader r = { .id = (unsigned)atoi(args[1]), .n = 2 + (unsigned)atoi(args[8]) };

	r.chunk = malloc(CHUNK);
	r.buffers = calloc(r.n, sizeof(struct gpushm_buffer *));
	if (!r.chunk || !r.buffers || !driver_open(&r.gpu, 0) || gpushm_connect(args[0], &r.c) < 0)
		give_up("connect", 0);
	make(&r, 0, args[2], strtoull(args[5], NULL, 10));
	make(&r, 1, args[3], strtoull(args[6], NULL, 10));
	for (unsigned i = 2; i < r.n; i++)
		make(&r, i, args[4], strtoull(args[7], NULL, 10));
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ok");
	serve(&r);
	gpushm_disconnect(r.c);
	driver_close(&r.gpu, 0);
	free(r.buffers);
	free(r.chunk);
	return 0;
}

void reader_start(struct role_process *p, const char *socket, unsigned id, const char *const *pools,
		  const struct reader_load *load)
{
	char text[5][32];

	snprintf(text[0], sizeof(text[0]), "%u", id);
	snprintf(text[1], sizeof(text[1]), "%" PRIu64, load->vmm_bytes);
	snprintf(text[2], sizeof(text[2]), "%" PRIu64, load->pinned_bytes);
	snprintf(text[3], sizeof(text[3]), "%" PRIu64, load->mempool_bytes);
	snprintf(text[4], sizeof(text[4]), "%u", load->mempools);
	role_start(p, "reader",
		   (const char *[]){ socket, text[0], pools[0], pools[1], pools[2], text[1],
				     text[2], text[3], text[4], NULL });
}

void reader_ask(struct role_process *p, const char *line)
{
	char answer[16];

	if (line)
		role_write_line(p, line);
	role_read_line(p, answer, sizeof(answer));
	ck_assert_str_eq(answer, "ok");
}
