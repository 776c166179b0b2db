/* SPDX-License-Identifier: MIT
 *
 * Files of checksums, and the threads that compare them.
 */
#include "client/models/checksum.h"

#include "client/gpushm_private.h"
#include "client/models/crew.h"
#include "client/models/fail.h"
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

#define READ_BYTES (1u << 20)
#define PROGRESS_NS 100000000u

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
	pthread_t thread; /* runs the crew */
	bool joined;
	atomic_bool stop;
	int result;
	struct gpushm_private_error why;
};

static int hash_file(struct crew *crew, struct load_file *f, char *room)
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	struct sha256_ctx hash;
	int r = 0;

	sha256_init(&hash);
	for (uint64_t done = 0; done < f->size && r == 0; done += READ_BYTES) {
		size_t n = f->size - done < READ_BYTES ? f->size - done : READ_BYTES;

		if (crew_stopped(crew))
			return 0;
		r = load_file_read(f, room, n, done);
		if (r == 0)
			sha256_update(&hash, n, (const uint8_t *)room);
	}
	sha256_digest(&hash, sizeof(digest), digest);
	if (r == 0 && memcmp(digest, f->sha256, sizeof(digest)) != 0)
		r = load_fail(EBADMSG, "%s: its SHA-256 is not that of the checksum file", f->path);
	return r;
}

static int hash_files(struct crew *crew, unsigned thread, void *user)
{
	_cleanup_(free_ptr) char *room = malloc(READ_BYTES);
	const struct checksums *s = user;
	int r = room ? 0 : load_no_memory();
	uint64_t i;

	while (r == 0 && crew_next(crew, &i)) {
		struct load_file *f = &s->files->files[i];

		if (f->has_sha256 && !f->stream)
			r = hash_file(crew, f, room);
	}
	return r;
}

static int is_stopped(void *user, const struct gpushm_load_progress *p)
{
	return ((const struct checksums *)user)->stop;
}

static void *run(void *user)
{
	struct checksums *s = user;
	const size_t n = s->files->n, most = crew_threads();
	const struct crew_work work = { .threads = (unsigned)(n < most ? n : most),
					.blocks = n,
					.run = hash_files,
					.user = s,
					.progress = is_stopped,
					.progress_user = s };
	uint64_t elapsed_ns;

	s->result = crew_run(&work, &elapsed_ns);
	gpushm_private_keep(&s->why);
	return NULL;
}

int checksums_begin(struct load_files *files, struct checksums **ret)
{
	struct checksums *s;
	size_t n = 0;

	*ret = NULL;
	for (size_t i = 0; i < files->n; i++)
		n += files->files[i].has_sha256 && !files->files[i].stream;
	if (n == 0)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return load_no_memory();
	s->files = files;
	if (thread_start(&s->thread, run, s) < 0) {
		free(s);
		return load_fail(EAGAIN, "no thread could be started for the checksums");
	}
	*ret = s;
	return 0;
}

int checksums_wait(struct checksums *s, const struct gpushm_load_options *load,
		   const struct gpushm_load_progress *all)
{
	struct timespec until;

	if (!s)
		return 0;
	do {
		if (load->progress && load->progress(load->user, all) != 0)
			return gpushm_private_fail(ECANCELED, "the load was stopped");
		until = clock_timespec(clock_realtime_ns() + PROGRESS_NS);
	} while (pthread_timedjoin_np(s->thread, NULL, &until) != 0);
	s->joined = true;
	if (s->result < 0)
		gpushm_private_put_back(&s->why);
	return s->result;
}

struct checksums *checksums_free(struct checksums *s)
{
	if (!s)
		return NULL;
	s->stop = true;
	if (!s->joined)
		pthread_join(s->thread, NULL);
	free(s);
	return NULL;
}
