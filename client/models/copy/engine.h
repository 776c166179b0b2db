/* SPDX-License-Identifier: MIT
 *
 * The engine: threads that read blocks of 4 MiB, hash them while they are in the processor's cache,
 * and copy them to the buffer.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/files/plan.h"

/* What the engine has before there is a plan, begun while headers are read: the driver. */
struct engine;

struct engine_result {
	char content[32]; /* "xxh3:0123456789abcdef", as gpushm_load.h defines it */
	bool direct;	  /* at least one file was read past the page cache */
	uint64_t elapsed_ns;
};

/* What a pull knows of its file, which is the plan's first one and fills the plan's first bytes in
 * their order; what follows it is of our own making. */
struct engine_check {
	const uint64_t
		*blocks; /* lent: XXH3-64 of each block of the file's data, as struct digest */
	uint64_t n;
	uint64_t bytes; /* of the file's data */
	/* A block of the file is in the buffer, also in a GPU's, and has its digest. Called from
	 * any thread; NULL: nobody wants to know. */
	void (*block)(void *user, uint64_t block);
	void *user;
};

/* Starts what takes long and needs no plan. Never fails for want of a GPU or a pool: engine_load()
 * says what is wrong then. `options` are those of the buffer that will be created, NULL for
 * engine_digest() alone; `load` may be NULL. 0 or a negative errno with gpushm_error() set. */
int engine_new(struct gpushm *c, const struct gpushm_create_options *options,
	       const struct gpushm_load_options *load, struct engine **ret);

/* A plan of so many bytes will be loaded: what the driver needs for that is pinned meanwhile. For
 * those who will not wait for anybody first. */
void engine_expect(struct engine *e, uint64_t bytes);

/* Ends its threads and frees all it has. NULL is allowed. Returns NULL. Keeps gpushm_error(). */
struct engine *engine_free(struct engine *e);

/* From now on blocks are compared with these digests while they are loaded; one that differs is
 * read again, elsewhere if there is another source. engine_load() returns -EBADMSG if it never has
 * its digest. The check must live as long as the engine. */
void engine_set_check(struct engine *e, const struct engine_check *check);

/* Copies the plan's runs into a buffer that is mapped for writing, and calls load->progress from
 * this thread. All is in the buffer on return, and nothing of ours touches it any more, also after
 * an error. Errors with gpushm_error() set: -ESTALE (a file is shorter than its header says),
 * -EBADMSG (GPUSHM_LOAD_VERIFY: read back, it differs), -ECANCELED (progress), those of read(2). */
int engine_load(struct engine *e, struct load_files *files, const struct plan *plan,
		struct gpushm_buffer *b, struct engine_result *ret);

/* The digest that engine_load() would give, without a buffer: it reads and hashes only. */
int engine_digest(struct engine *e, struct load_files *files, const struct plan *plan,
		  struct engine_result *ret);
