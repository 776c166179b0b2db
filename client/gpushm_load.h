/* SPDX-License-Identifier: MIT
 *
 * libgpushm-load: models into shared buffers, and back into files.
 *
 * gpushm_load() reads safetensors files into one sealed buffer: a tensor each is an array of the
 * same name. gpushm_save() writes a buffer to such a file. The work is done in the calling process:
 * a few threads read into a small ring of pinned memory, which the GPU copies from. Link with
 * -lgpushm-load -lgpushm (pkg-config gpushm-load). A process that only attaches to a model needs
 * neither: gpushm_open() of libgpushm does that.
 *
 *	const char *sources[] = { "/models/llama" };
 *	struct gpushm_load_options load = { .struct_size = sizeof(load),
 *					    .flags = GPUSHM_LOAD_IF_MISSING };
 *
 *	if (gpushm_load(c, sources, 1, "llama", NULL, &load, &b) < 0)
 *		errx(1, "%s", gpushm_error());
 *
 * Errors, ownership, threads and fork are as gpushm.h says; the text of an error is gpushm_error().
 *
 * The file format is that of https://github.com/huggingface/safetensors, read more strictly: see
 * gpushm_load(3).
 */
#ifndef GPUSHM_LOAD_H
#define GPUSHM_LOAD_H

#include <gpushm.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* How far a load, save or verification is. */
struct gpushm_load_progress {
	size_t struct_size; /* what the library has of it: GPUSHM_HAS() of gpushm_records.h */
	uint64_t done,
		total;	     /* bytes of tensors; total is 0 before the header of a pipe has come */
	uint64_t elapsed_ns; /* since the first byte was asked for */
	const char *file;    /* that is read or written; NULL for a verification, and while
				another process loads */
};

/* What a load, save or verification did. */
struct gpushm_load_report {
	size_t struct_size; /* sizeof(struct gpushm_load_report); the caller's */
	uint64_t bytes;	    /* of tensors */
	uint64_t tensors;   /* names; tied ones count once each */
	uint64_t
		elapsed_ns; /* from the first byte that was read to the last one that was written */
	char content[32];   /* the digest of the contents, "xxh3:0123456789abcdef" */
	int direct;	    /* 1: at least one file was read past the page cache */
};

/* Called from the calling thread, some ten times a second and once at the end; with nothing done
 * also during a wait: for another process that loads, for space, or for a pipe. Nonzero stops the
 * work: -ECANCELED, and nothing is left behind.
 */
typedef int gpushm_load_progress_fn(void *user, const struct gpushm_load_progress *progress);

#define GPUSHM_LOAD_IF_MISSING (1u << 16) /* attach to a buffer of the same files */
#define GPUSHM_LOAD_REPLACE (1u << 17)	  /* take the name over when the new buffer is whole */
#define GPUSHM_LOAD_VERIFY (1u << 18)	  /* read back what was copied, and compare */
#define GPUSHM_LOAD_DROP_CACHE (1u << 19) /* drop the files from the page cache afterwards */
#define GPUSHM_LOAD_CACHED (1u << 20)	  /* read through the page cache */
#define GPUSHM_LOAD_DIRECT (1u << 21)	  /* read past the page cache (O_DIRECT) */
#define GPUSHM_LOAD_NIXL (1u << 22)	  /* gpushm_pull(): by NIXL */
#define GPUSHM_LOAD_KEEP (1u << 23)	  /* keep_ms counts */
/* Without CACHED and DIRECT each file is asked: what is in the page cache is read from it, the rest
 * past it where the file system allows that. */

/* How web servers are asked, for sources that are URLs and for gpushm_pull(). NULL, or all zero but
 * struct_size, means the defaults. No member holds a secret: those are in files, which only their
 * owner should be able to read. */
struct gpushm_remote_options {
	size_t struct_size; /* sizeof(struct gpushm_remote_options) */
	/* A file whose first line is a bearer token. NULL: $GPUSHM_TOKEN_FILE, else $GPUSHM_TOKEN,
	 * for the hosts of the Hugging Face Hub $HF_TOKEN, else what ~/.netrc has for the host. It
	 * is sent to the URL's own host alone, and over TLS alone, unless that is this machine. */
	const char *token_file;
	/* PEM files. ca: who signs servers' certificates; NULL: $GPUSHM_TLS_CA, else the system's.
	 * cert, key: what this process shows; NULL: $GPUSHM_TLS_CERT and $GPUSHM_TLS_KEY, else
	 * nothing. */
	const char *ca, *cert, *key;
	unsigned patience_s; /* how long nothing may come before it is an error; 0: 60 */
};

/* Options of gpushm_load(). NULL, or all zero but struct_size, means the defaults. */
struct gpushm_load_options {
	size_t struct_size;	 /* sizeof(struct gpushm_load_options) */
	uint32_t flags;		 /* GPUSHM_LOAD_... */
	unsigned threads;	 /* that read; 0: 12, or one a processor if these are fewer; 12
				    for URLs; 16 if a disk must be read */
	const char *const *only; /* fnmatch(3) patterns of tensors' names; none: all tensors */
	size_t n_only;
	const char *strip;  /* a prefix that is taken off the names that have it */
	const char *sha256; /* a file of checksums as sha256sum(1) writes it, one for each source
			       file; they are compared while the files are read */
	uint64_t wait_ms;   /* GPUSHM_LOAD_IF_MISSING: how long to wait for another process that
			       loads; 0 is no limit */
	gpushm_load_progress_fn *progress;
	void *user;				    /* for progress */
	struct gpushm_load_report *report;	    /* filled in on success; NULL: not wanted */
	const struct gpushm_remote_options *remote; /* for sources that are URLs; NULL: defaults */
	const char *twin; /* make a twin in that pool: gpushm_make_twin(); NULL: none */
	uint64_t keep_ms; /* GPUSHM_LOAD_KEEP: as gpushm_set_keep(), priority 0 */
};

/* Loads files into one buffer of that name, publishes it sealed, and opens it: *ret has a lease for
 * reading. ret may be NULL. Each source is a safetensors file, an index ("*.index.json") with its
 * shards beside it, a folder that has an index or safetensors files, "-" for a file on standard
 * input, or the URL ("https://...") of a file, of an index, or, with '/' at its end, of a folder as
 * the Hugging Face Hub has them: model.safetensors.index.json or model.safetensors in it. `options`
 * are those of gpushm_create(): pool, mode, group, device, attributes, wait_ms. Blocks until all is
 * done.
 *
 * The headers are checked before memory is taken. While the tensors are copied nobody else can open
 * the buffer. A file that was changed while it was read is an error. After an error, or if this
 * process dies, there is no buffer and the name is free, or with GPUSHM_LOAD_REPLACE still the old
 * buffer's.
 *
 * The buffer gets attributes: "gpushm.source", the headers and sizes of the files as a hash;
 * "gpushm.files", the same with their inodes and times of modification; "gpushm.content", a digest
 * of the arrays' bytes (gpushm_verify()); "gpushm.path", the first source as an absolute path, or
 * as a URL without its query; "gpushm.types", the types of the tensors, how many there are of each,
 * and their bytes; and "gpushm.metadata", the file's __metadata__ as JSON. Metadata too large for
 * an attribute is an array of bytes named "__metadata__".
 *
 * With GPUSHM_LOAD_IF_MISSING the name may exist, or be loaded by another process, which is waited
 * for; if that one dies, this one loads. Returns GPUSHM_LOAD_ATTACHED, which is not an error, if
 * the buffer has the contents of these files and an owner that is trusted: the caller's user, root,
 * or one of $GPUSHM_TRUST (names and uids, separated by commas). Otherwise -EEXIST, or with
 * GPUSHM_LOAD_REPLACE it is loaded and replaced.
 *
 * With `twin` and GPUSHM_LOAD_KEEP the buffer's memory may go when it is needed
 * (gpushm_memory.h). That is said when the buffer is published; if it fails, the call does, too,
 * and the buffer stays.
 *
 * Errors: those of gpushm_create() and gpushm_rename(); those of open(2) and read(2) for a source;
 * -EBADMSG (a file breaks the format: gpushm_error() names file, tensor and the numbers that
 * disagree; or a checksum, or with GPUSHM_LOAD_VERIFY what was read back, differs); -ESTALE (a file
 * changed while it was read); -ENODATA (no tensor is left by `only`); -EEXIST (two tensors of one
 * name); -ECANCELED (progress). */
int gpushm_load(struct gpushm *c, const char *const *sources, size_t n, const char *name,
		const struct gpushm_create_options *options, const struct gpushm_load_options *load,
		struct gpushm_buffer **ret);
#define GPUSHM_LOAD_ATTACHED 1

/* The key of those sources, as gpushm_load() puts it into the attribute "gpushm.files": 64
 * hexadecimal digits and a NUL. It reads the headers only. Errors as for gpushm_load(). */
int gpushm_load_key(const char *const *sources, size_t n, const struct gpushm_load_options *load,
		    char ret_key[65]);

/* Loads a buffer from another machine's gpushm-relay(8): "HOST[:PORT]/NAME", which is asked by
 * HTTPS at port 19401, or a whole URL "https://HOST:PORT/v1/buffers/NAME". name: NULL is the same
 * name here. All is as for gpushm_load() of that URL, and in addition: each block of 4 MiB is
 * compared with its digest while it comes, and asked for again, elsewhere if another relay has it,
 * if it differs; the buffer gets the attributes that it has there, and "gpushm.etag", which names
 * the contents; and what the source is busy with is asked from other machines that have it, or are
 * loading it. Arrays that have strides there are in C order here. The relay's certificate is
 * checked, and this process shows load->remote's.
 *
 * Of load->flags GPUSHM_LOAD_IF_MISSING, _REPLACE, _VERIFY and _NIXL count; `only`, `strip` and
 * `sha256` are -EINVAL.
 *
 * With GPUSHM_LOAD_NIXL the bytes come by NVIDIA's NIXL (RDMA where there is some), if both sides
 * have it: -ENOSYS says what is missing, and where.
 *
 * Errors: those of gpushm_load() for a URL; -EBADMSG (a block differs from its digest wherever it
 * is asked for; what the relay says about the file disagrees with itself); -ENOTSUP (the relay
 * can't offer this buffer: gpushm_error() names the array and its type). */
int gpushm_pull(struct gpushm *c, const char *source, const char *name,
		const struct gpushm_create_options *options, const struct gpushm_load_options *load,
		struct gpushm_buffer **ret);

/* Waits until that relay's NAME is another file than `content`, at most so long. content: the
 * attribute "gpushm.etag" of the buffer that was pulled; a digest "xxh3:..." of what its arrays
 * have; NULL: until the name exists. 0; -ETIMEDOUT; errors as for gpushm_pull(), but neither that
 * the name does not exist, nor that the relay is away: both are waited for. -ENOENT is a file of
 * `remote` that is missing from the beginning; one that vanishes later is waited for. timeout_ms:
 * GPUSHM_WAIT_FOREVER is no limit.
 *
 * progress: NULL is allowed; nonzero ends the wait with -ECANCELED. Its `file` is the source while
 * the relay replies, and NULL while it does not, when gpushm_error() says why. */
int gpushm_pull_wait(const char *source, const char *content,
		     const struct gpushm_remote_options *remote, uint64_t timeout_ms,
		     gpushm_load_progress_fn *progress, void *user);

struct gpushm_save_options {
	size_t struct_size;   /* sizeof(struct gpushm_save_options) */
	unsigned threads;     /* that write; 0: as for a load */
	const char *metadata; /* a JSON object of strings, for __metadata__; NULL: what the buffer
				 has */
	gpushm_load_progress_fn *progress;
	void *user;
	struct gpushm_load_report *report;
	uint64_t shard_bytes; /* if not 0: several files of that many bytes of tensors each */
};

/* Writes the arrays of an open buffer to a safetensors file, which appears whole under its name or
 * not at all; "-" is standard output. Arrays that lie in the same bytes are written once, and named
 * in __metadata__ as safetensors.torch.save_model() does it. Strided arrays are written in C order.
 * Blocks until all is written, and on disk. The buffer should be sealed: what others write
 * meanwhile is in the file or not.
 *
 * With shard_bytes the path ends with ".safetensors", and a buffer that has more bytes is written
 * to "x-00001-of-00003.safetensors" and so on, and to an index "x.safetensors.index.json", as the
 * Hugging Face Hub has them. A shard has more bytes only if it has a single tensor. All files get
 * their names when all are written, the index last. -EEXIST: the other one of FILE and its index
 * exists, which programs might read instead.
 *
 * Errors: those of open(2), write(2) and rename(2); -ENOTSUP (an array's type does not exist in
 * safetensors files: gpushm_error() names it); -ECANCELED. */
int gpushm_save(struct gpushm_buffer *b, const char *path,
		const struct gpushm_save_options *options);

/* Reads a buffer's arrays back and compares them with the digest that gpushm_load() left: the bytes
 * that the arrays cover, in the order of their offsets and without what lies between them, are cut
 * into blocks of 4 MiB; the digest is XXH3-64 of the blocks' XXH3-64 hashes. Blocks until done.
 *
 * Errors: -ENODATA (it has no digest), -EBADMSG (the contents differ), -ECANCELED. */
int gpushm_verify(struct gpushm_buffer *b, gpushm_load_progress_fn *progress, void *user,
		  struct gpushm_load_report *ret);

/* Reads the arrays of a buffer that this process fills, and sets the attribute "gpushm.content" to
 * their digest, as gpushm_load() does, for gpushm_verify() and for relays. Call it when all is
 * written, before gpushm_publish(). Errors: those of gpushm_set_attrs(); -ECANCELED. */
int gpushm_digest(struct gpushm_buffer *b, gpushm_load_progress_fn *progress, void *user,
		  struct gpushm_load_report *ret);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
