/* SPDX-License-Identifier: MIT
 *
 * Files of checksums, and the threads that compare them.
 */
#include "client/models/checksum.h"

#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "client/models/locks.h"
#include "client/models/web/url.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"
#include "proto/base/uri.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#define READ_BYTES (1u << 20)
#define THREADS_MAX 8u
#define PROGRESS_MS 100u

/* ---- a file of checksums ---- */

struct line {
	uint8_t sha256[SHA256_DIGEST_SIZE];
	char *name; /* in the text of the line */
};

static bool parse_hex(const char *text, uint8_t ret[SHA256_DIGEST_SIZE])
{
	for (size_t i = 0; i < SHA256_DIGEST_SIZE; i++) {
		int high = uri_hex_digit(text[2 * i]);
		int low = high < 0 ? -1 : uri_hex_digit(text[2 * i + 1]);

		if (low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* sha256sum writes a '\' first if the name has a '\' or a line feed, which are escaped then. */
static void unescape(char *name)
{
	char *to = name;

	for (; *name; name++) {
		bool escaped = name[0] == '\\' && name[1];

		name += escaped;
		*to++ = escaped && *name == 'n' ? '\n' : *name;
	}
	*to = '\0';
}

/* "HEX  name", "HEX *name". */
static bool parse_line(char *text, struct line *ret)
{
	bool escaped = text[0] == '\\';
	char *name;

	text += escaped;
	if (!parse_hex(text, ret->sha256))
		return false;
	name = text + 2 * sizeof(ret->sha256);
	if (name[0] != ' ' || (name[1] != ' ' && name[1] != '*') || name[2] == '\0')
		return false;
	ret->name = name + 2;
	if (escaped)
		unescape(ret->name);
	return true;
}

static bool same_file(const struct load_file *f, int folder, const char *name)
{
	struct stat st;

	return fstatat(folder, name, &st, 0) == 0 && st.st_dev == f->st.st_dev &&
	       st.st_ino == f->st.st_ino;
}

enum match { NO_MATCH, NAME_MATCHES, PATH_MATCHES };

static enum match match(const struct load_file *f, int folder, const char *name)
{
	if (f->standard_input)
		return strcmp(name, "-") == 0 ? PATH_MATCHES : NO_MATCH;
	if (strcmp(url_last(name), url_last(f->path)) != 0)
		return NO_MATCH;
	return same_file(f, folder, name) || same_file(f, AT_FDCWD, name) ? PATH_MATCHES
									  : NAME_MATCHES;
}

/* How well the best line for each file fits. */
struct found {
	enum match best;
	unsigned times;
};

static void assign(struct load_files *files, struct found *found, int folder,
		   const struct line *line)
{
	for (size_t i = 0; i < files->n; i++) {
		struct load_file *f = &files->files[i];
		enum match m = match(f, folder, line->name);

		if (m == NO_MATCH || m < found[i].best)
			continue;
		if (m == found[i].best && memcmp(f->sha256, line->sha256, sizeof(f->sha256)) == 0)
			continue;
		found[i].times = m > found[i].best ? 1 : found[i].times + 1;
		found[i].best = m;
		f->has_sha256 = true;
		memcpy(f->sha256, line->sha256, sizeof(f->sha256));
	}
}

static int check_found(const char *path, const struct load_files *files, const struct found *found)
{
	for (size_t i = 0; i < files->n; i++)
		if (found[i].times != 1)
			return load_fail(EINVAL, "%s has %s for %s", path,
					 found[i].times ? "more than one checksum" : "no checksum",
					 files->files[i].path);
	return 0;
}

static int read_lines(const char *path, FILE *in, int folder, struct load_files *files,
		      struct found *found)
{
	_cleanup_(free_ptr) char *text = NULL;
	size_t size = 0;
	struct line line;
	unsigned number = 1;

	for (ssize_t n; (n = getline(&text, &size, in)) >= 0; number++) {
		while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
			text[--n] = '\0';
		if (n == 0 || text[0] == '#')
			continue;
		if (!parse_line(text, &line))
			return load_fail(EINVAL,
					 "%s: line %u is not a checksum as sha256sum(1) writes it",
					 path, number);
		assign(files, found, folder, &line);
	}
	return ferror(in) ? load_fail(EIO, "%s: it can't be read", path) : 0;
}

static int open_folder(const char *path)
{
	_cleanup_(free_ptr) char *folder = strdup(path);

	if (!folder)
		return -1;
	folder[url_last(path) - path] = '\0';
	return open(folder[0] ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int checksum_read(const char *path, struct load_files *files)
{
	_cleanup_(free_ptr) struct found *found = calloc(files->n + 1, sizeof(*found));
	_cleanup_(close_fd) int folder = open_folder(path);
	FILE *in = fopen(path, "re");
	int r;

	if (!in)
		return load_fail(errno, "%s: %s", path, strerror(errno));
	r = found ? read_lines(path, in, folder, files, found) : load_no_memory();
	fclose(in);
	return r < 0 ? r : check_found(path, files, found);
}

/* ---- threads ---- */

struct checksums {
	struct load_files *files;
	atomic_size_t next; /* file that no thread has taken yet */
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned running; /* under lock, as what follows */
	int error;	  /* the first one; 0: none */
	struct gpushm_private_error text;
	pthread_t threads[THREADS_MAX];
	unsigned n_threads;
};

static int hash_file(struct checksums *s, struct load_file *f, char *room)
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	struct sha256_ctx hash;
	int r = 0;

	sha256_init(&hash);
	for (uint64_t done = 0; done < f->size && r == 0 && !s->stop;) {
		size_t n = f->size - done < READ_BYTES ? f->size - done : READ_BYTES;

		r = load_file_read(f, room, n, done);
		if (r == 0)
			sha256_update(&hash, n, (const uint8_t *)room);
		done += n;
	}
	sha256_digest(&hash, sizeof(digest), digest);
	if (r == 0 && !s->stop && memcmp(digest, f->sha256, sizeof(digest)) != 0)
		r = load_fail(EBADMSG, "%s: its SHA-256 is not that of the checksum file", f->path);
	return r;
}

static int hash_files(struct checksums *s)
{
	_cleanup_(free_ptr) char *room = malloc(READ_BYTES);
	int r = room ? 0 : load_no_memory();
	size_t i;

	while (r == 0 && !s->stop && (i = s->next++) < s->files->n) {
		struct load_file *f = &s->files->files[i];

		if (f->has_sha256 && !f->stream)
			r = hash_file(s, f, room);
	}
	return r;
}

static void *run(void *user)
{
	struct checksums *s = user;
	int r = hash_files(s);

	lock_guard(&s->lock, LOCK_CHECKSUMS);
	if (r < 0 && s->error == 0) {
		s->error = r;
		gpushm_private_keep(&s->text);
		s->stop = true;
	}
	s->running--;
	pthread_cond_signal(&s->ended);
	return NULL;
}

static void start_threads(struct checksums *s, size_t n)
{
	lock_guard(&s->lock, LOCK_CHECKSUMS);
	for (; s->n_threads < n; s->n_threads++)
		if (thread_start(&s->threads[s->n_threads], run, s) < 0)
			break;
	s->running = s->n_threads;
}

int checksums_begin(struct load_files *files, struct checksums **ret)
{
	size_t n = 0,
	       most = (size_t)get_nprocs() < THREADS_MAX ? (size_t)get_nprocs() : THREADS_MAX;
	struct checksums *s;

	*ret = NULL;
	for (size_t i = 0; i < files->n; i++)
		n += files->files[i].has_sha256 && !files->files[i].stream;
	if (n == 0)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return load_no_memory();
	s->files = files;
	pthread_mutex_init(&s->lock, NULL);
	thread_cond_init(&s->ended);
	start_threads(s, n < most ? n : most);
	if (s->n_threads == 0) {
		checksums_free(s);
		return load_fail(EAGAIN, "no thread could be started for the checksums");
	}
	*ret = s;
	return 0;
}

int checksums_wait(struct checksums *s, const struct gpushm_load_options *load,
		   const struct gpushm_load_progress *all)
{
	bool canceled = false;
	int r;

	if (!s)
		return 0;
	lock_take(&s->lock, LOCK_CHECKSUMS);
	while (s->running > 0 && !canceled) {
		thread_cond_wait(&s->ended, &s->lock, clock_deadline(PROGRESS_MS));
		lock_drop(&s->lock);
		canceled = load && load->progress && load->progress(load->user, all) != 0;
		lock_take(&s->lock, LOCK_CHECKSUMS);
	}
	r = s->error;
	lock_drop(&s->lock);
	if (canceled)
		return gpushm_private_fail(ECANCELED, "the load was stopped");
	if (r < 0)
		gpushm_private_put_back(&s->text);
	return r;
}

struct checksums *checksums_free(struct checksums *s)
{
	if (!s)
		return NULL;
	s->stop = true;
	for (unsigned i = 0; i < s->n_threads; i++)
		pthread_join(s->threads[i], NULL);
	pthread_cond_destroy(&s->ended);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}
