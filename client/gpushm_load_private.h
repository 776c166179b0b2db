/* SPDX-License-Identifier: MIT
 *
 * What libgpushm-load exports for gpushm-relay and gpushmctl alone, under a version node of exactly
 * this version. It is not installed, and may change with every version.
 *
 * Unless it says otherwise, a function returns 0, or a negative errno with gpushm_error() set, and
 * any thread may call it.
 */
#pragma once

#include "client/gpushm_array.h"
#include "client/gpushm_load.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#pragma GCC visibility push(default)

#define BLOCK_BYTES (4u << 20) /* the blocks of a digest */
#define DIGEST_TEXT 32	       /* bytes of its text, with the NUL */

/* ---- manifests ---- */

/* What a relay says of a buffer that it offers. Relays write it, and gpushm_pull() reads it.
 *
 *	{ "version": 1, "name": "llama", "id": 42, "etag": "\"...\"",
 *	  "size": 1000, "header": 200, "data": 800,
 *	  "block": 4194304, "blocks": "base64", "content": "xxh3:0123456789abcdef",
 *	  "attributes": { "key": "base64" }, "complete": true,
 *	  "mirrors": [ "https://b:19401/v1/buffers/llama" ] }
 *
 * Unknown members are ignored. */
struct manifest_attr {
	char *key;   /* owned */
	void *value; /* owned */
	size_t size;
};

struct manifest {
	char *name;  /* owned */
	uint64_t id; /* of the buffer, on its machine: another generation has another one */
	char *etag;  /* owned: strong, with its quotes; the same on all machines that have this file
		      */
	uint64_t size;	 /* bytes of the safetensors file */
	uint64_t header; /* those before its data: the length, and the JSON text */
	uint64_t data;	 /* the others */

	/* XXH3-64 of each block of BLOCK_BYTES of the data, little end first; the last one may be
	 * shorter. content: their digest, as gpushm_verify() defines it for a buffer that the file
	 * was loaded into. A machine that loads the buffer itself has these from where it loads. */
	uint64_t *blocks; /* owned */
	uint64_t n_blocks;
	char content[DIGEST_TEXT];

	struct manifest_attr
		*attrs; /* owned: those that belong to the contents, not to the machine */
	size_t n_attrs;
	bool complete;	/* false: that machine is loading it; ranges come as it gets them */
	char **mirrors; /* owned: where the same file is */
	size_t n_mirrors;
};

/* The text, which free() releases. 0 or -ENOMEM. */
int gpushm_private_manifest_format(const struct manifest *m, char **ret_text, size_t *ret_n);

/* May be called on a zeroed manifest and twice. */
void gpushm_private_manifest_clear(struct manifest *m);

/* ---- pulls ---- */

/* In a request for a file: where the machine that pulls it offers it to others. */
#define RELAY_HEADER "Gpushm-Relay"

#define PULL_VIA_MAX 1024u /* bytes of a value of Via, with the NUL */

/* What a program may see of a pull while it runs. All functions may be called from any of the
 * pull's threads; NULL ones are left out. */
struct pull_observer {
	/* The buffer exists, is mapped for writing, and has its table; nothing is in it yet.
	 * header: the file's first manifest->header bytes. Everything lives until ended(). */
	void (*begun)(void *user, const struct manifest *m, const char *header,
		      struct gpushm_buffer *b);
	/* This block of the file's data is in the buffer, compared with its digest: also for a GPU
	 * that copies from it. */
	void (*block)(void *user, uint64_t block);
	/* The buffer is published, or about to be discarded: nobody may touch it on return. A pull
	 * may begin again after that, with another manifest. */
	void (*ended)(void *user, int result);
	/* What the source says in Via, when it has said that it has a buffer or that it has none:
	 * the relays that it comes through; "": none. */
	void (*via)(void *user, const char *via);
	void *user;
	/* Where this machine offers the buffer, for the machines that ask the same source: the
	 * value of the header Gpushm-Relay of each request for the manifest and the file. NULL: it
	 * does not. */
	const char *relay;
};

/* gpushm_pull(). observer: NULL is allowed. */
int gpushm_private_pull(struct gpushm *c, const char *source, const char *name,
			const struct gpushm_create_options *options,
			const struct gpushm_load_options *load,
			const struct pull_observer *observer, struct gpushm_buffer **ret);

/* gpushm_pull_wait(); of the observer only via() is called. */
int gpushm_private_pull_wait(const char *source, const char *content,
			     const struct gpushm_remote_options *remote, uint64_t timeout_ms,
			     gpushm_load_progress_fn *progress, void *user,
			     const struct pull_observer *observer);

/* Says to the source where this machine offers the file of that ETag, which it has or is getting:
 * the value of Gpushm-Relay. */
int gpushm_private_pull_announce(const char *source, const char *etag, const char *relay,
				 const struct gpushm_remote_options *remote);

/* 0; or -EINVAL if this can't be a source, or -ENOMEM. */
int gpushm_private_pull_check(const char *source);

/* ---- a buffer as a file ---- */

/* A part of the file's data. */
struct piece {
	uint64_t begin, bytes; /* in the file */
	uint64_t buffer_offset;
	const struct gpushm_array *strided; /* NULL: the bytes lie side by side */
};

/* A buffer that this process has open, as the safetensors file that it is for others: where in the
 * buffer each of the file's bytes lies. */
struct mapping {
	struct gpushm_buffer *buffer; /* owned, unless it is lent */
	bool lent;
	struct arrays *arrays; /* owned */
	size_t n_arrays;
	int device;	  /* CUDA ordinal; -1: host memory */
	const char *host; /* NULL: a GPU's memory */
	char *header;	  /* owned: the file's first bytes */
	uint64_t n_header, size;
	struct piece *pieces; /* owned; in the order of the file, without empty ones */
	size_t n;
	bool plain; /* no piece has strides */
};

/* Opens the buffer of that name. -ENOTSUP: it has a type that the format does not have; errors of
 * gpushm_open(). */
int gpushm_private_mapping_open(struct gpushm *c, const char *name, struct mapping *ret);

/* The same without its memory, which can't be read or hashed then. Where the file's header is in a
 * part of the memory, it is mapped all the same. */
int gpushm_private_mapping_look(struct gpushm *c, const char *name, struct mapping *ret);

/* The same for a buffer that is being filled from a file with that header. It stays the caller's.
 */
int gpushm_private_mapping_lend(struct gpushm_buffer *b, const char *header, uint64_t n_header,
				struct mapping *ret);

/* A zeroed mapping is allowed. */
void gpushm_private_mapping_close(struct mapping *m);

/* Copies bytes of the file, also from a GPU, with at most three times as many bytes of memory. */
int gpushm_private_mapping_read(const struct mapping *m, uint64_t offset, void *to, size_t n);

/* The parts of memory that are those bytes of the file, at most `max`. Returns how many; -E2BIG:
 * they are more; -ENOTSUP: they are not in host memory. Sets no gpushm_error(). */
int gpushm_private_mapping_iov(const struct mapping *m, uint64_t offset, uint64_t n,
			       struct iovec *ret, int max);

/* What reads of GPUs may pin together; before the first. */
void gpushm_private_mapping_limit(uint64_t pinned_bytes);

/* What a load or a pull has left as the digest of the contents, if that is the file's, too: of all
 * arrays in the order of the buffer. False: it has left none. */
bool gpushm_private_mapping_content(const struct mapping *m, char ret[DIGEST_TEXT]);

/* Hashes the blocks of the file's data: as struct manifest has them, which free() releases, and
 * their digest. */
int gpushm_private_mapping_hash(const struct mapping *m, uint64_t **ret_blocks, uint64_t *ret_n,
				char ret_content[DIGEST_TEXT]);

/* The first half of the SHA-256 of the file's header, as the ETag has it. */
void gpushm_private_mapping_hash_header(const struct mapping *m, char ret[17]);

/* ---- NIXL ---- */

/* An agent of NVIDIA's NIXL with UCX behind it: memory that others may read, and reads of theirs.
 *
 * UCX has no authentication: where it works over TCP, a machine that reaches its ports can read and
 * write the memory of this process, also what is not registered. Use it on networks alone where all
 * machines are trusted. A thread of UCX does the transfers. */
struct nixl_agent;

/* Memory that NIXL knows, of this process or of a peer. */
struct nixl_memory {
	bool gpu; /* else of the processor */
	int device;
	uint64_t address, bytes;
};

/* Finds the library, and starts an agent with a name that no other one has, anywhere. Takes some
 * 0.5 s. -ENOSYS (no library), -EIO (NIXL), -ENOMEM. */
int gpushm_private_nixl_new(struct nixl_agent **ret);

/* Ends its connections; nothing is written into memory after that, also not by a read that was
 * given up. All memory that it knows must live until now. NULL is allowed. Returns NULL. */
struct nixl_agent *gpushm_private_nixl_free(struct nixl_agent *a);

/* Lets peers read this memory, and reads write into it. Once for an agent. nixl_free() ends it.
 * -EIO. */
int gpushm_private_nixl_register(struct nixl_agent *a, const struct nixl_memory *m);

/* What a peer needs to know, after all is registered; free() releases it. -EIO. */
int gpushm_private_nixl_metadata(struct nixl_agent *a, void **ret, size_t *ret_n);

struct nixl_found {
	const char *path;    /* of the library; static, as all texts here */
	const char *version; /* "": it is not known */
	bool rdma;	     /* this machine has a network card that reads memory by itself */
	bool missing; /* after an error: no place has the library, and $GPUSHM_NIXL names none */
};

/* Finds and opens the library, once in a process. -ENOSYS; *ret is written in any case. */
int gpushm_private_nixl_find(struct nixl_found *ret);

#define GRANT_VERSION 1
#define GRANT_SESSION 32 /* hexadecimal digits */
#define GRANT_SLOTS_MAX 256u

struct grant_piece {
	uint64_t begin, bytes; /* in the file */
	uint64_t offset;       /* in the memory */
};

/* What a relay lets a machine read by NIXL, for how long, and how the file lies in it.
 * gpushm-relay(8) describes its text:
 *
 *	{ "version": 1, "session": "0123...", "expires": 60, "nixl": "1.5.1",
 *	  "etag": "\"...\"", "size": 1000, "header": 200, "metadata": "base64",
 *	  "memory": { "gpu": false, "device": 0, "address": 139637976727552, "bytes": 4096 },
 *	  "pieces": [ [ 200, 800, 0 ] ] }
 *
 * Either there are "pieces" of the file's data: where in the file, bytes, where in the memory. Or
 * the memory is a ring of "slots", which the puller has filled before it reads them:
 * POST { "session": "0123...", "fill": { "slot": 0, "offset": 200, "bytes": 800 } }. A session ends
 * when no request has named it for as many seconds as "expires" says, or by
 * POST { "session": "0123...", "end": true }. */
struct grant {
	char session[GRANT_SESSION + 1];
	unsigned expires_s;
	char nixl[32]; /* the relay's version; "": not known */
	char *etag;    /* owned */
	uint64_t size, header;
	void *metadata; /* owned */
	size_t n_metadata;
	struct nixl_memory memory;
	struct grant_piece *pieces; /* owned; in the order of the file, without gaps */
	size_t n_pieces;
	unsigned slots; /* not 0: there are no pieces */
	uint64_t slot_bytes;
};

/* The text, which free() releases. 0 or -ENOMEM. */
int gpushm_private_grant_format(const struct grant *g, char **ret);

#pragma GCC visibility pop

/* For _cleanup_() on what a function of gpushm_query.h returned. */
static inline void free_result(void *p)
{
	*(void **)p = gpushm_free(*(void **)p);
}

/* The same for a buffer, where the caller does not need the result of gpushm_close(). */
static inline void close_buffer(struct gpushm_buffer **b)
{
	gpushm_close(*b);
}

/* The same for an array. */
static inline void free_array(struct gpushm_array **a)
{
	*a = gpushm_array_free(*a);
}
