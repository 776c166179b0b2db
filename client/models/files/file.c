/* SPDX-License-Identifier: MIT
 *
 * Opens, reads and checks source files. A regular file is compared with itself: size, inode and
 * time of modification are the same after reading as before, and its path still leads to it. What
 * is between two reads of one file, or between the files of one model, can't be seen in any other
 * way.
 */
#include "client/models/files/file.h"

#include "client/models/crew.h"
#include "client/models/fail.h"
#include "client/models/files/header.h"
#include "client/models/nixl/nixl_file.h"
#include "client/models/web/remote.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- opening ---- */

static struct load_file *add(struct load_files *files, const char *path)
{
	struct load_file *grown = grow(files->files, files->n, sizeof(*files->files));

	if (!grown)
		return NULL;
	files->files = grown;
	grown += files->n;
	*grown = (struct load_file){ .fd = -1, .stop = files->stop };
	if (path && !(grown->path = strdup(path)))
		return NULL;
	sha256_init(&grown->hash);
	files->n++;
	return grown;
}

/* Takes the fd. */
static int set_fd(struct load_file *f, int fd)
{
	f->fd = fd;
	if (fd < 0 || fstat(fd, &f->st) < 0)
		return load_fail(errno, "%s: %s", f->path, strerror(errno));
	if (S_ISDIR(f->st.st_mode))
		return load_fail(EISDIR, "%s is a folder", f->path);
	f->stream = !S_ISREG(f->st.st_mode);
	f->size = (uint64_t)f->st.st_size;
	return 0;
}

/* "model <file" is read as the file that it is, unless something has read the start of it. */
static int set_standard_input(struct load_file *f)
{
	int r = set_fd(f, fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));

	if (r == 0 && lseek(f->fd, 0, SEEK_CUR) > 0)
		f->stream = true;
	return r;
}

/* The open of a named pipe, too, would wait for a process that writes. */
static int open_path(struct load_file *f, const char *path)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY;
	int r = set_fd(f, open(path, flags | O_NONBLOCK));

	f->waits = r == 0 && S_ISFIFO(f->st.st_mode);
	if (r == 0 && !f->waits && fcntl(f->fd, F_SETFL, flags) < 0)
		return load_fail(errno, "%s: %s", path, strerror(errno));
	return r;
}

int load_files_add(struct load_files *files, const char *path)
{
	bool standard = strcmp(path, "-") == 0;
	struct load_file *f = add(files, standard ? "standard input" : path);

	if (!f)
		return load_no_memory();
	f->standard_input = standard;
	return standard ? set_standard_input(f) : open_path(f, path);
}

int load_files_add_memory(struct load_files *files, const char *name, const void *bytes, size_t n)
{
	struct load_file *f = add(files, name);
	int r;

	if (!f)
		return load_no_memory();
	f->in_memory = true;
	r = set_fd(f, memfd_create("gpushm-load", MFD_CLOEXEC));
	if (r < 0)
		return r;
	f->size = n;
	for (size_t done = 0; done < n;) {
		ssize_t written = write(f->fd, (const char *)bytes + done, n - done);

		if (written < 0)
			return load_fail(errno, "%s: %s", name, strerror(errno));
		done += (size_t)written;
	}
	return 0;
}

void load_files_done(struct load_files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		if (files->files[i].remote) {
			nixl_file_close(files->files[i].nixl);
			remote_close(files->files[i].remote);
		}
		close_fd(&files->files[i].fd);
		free(files->files[i].head);
		free(files->files[i].path);
	}
	free(files->files);
	*files = (struct load_files){ 0 };
}

/* ---- reading ---- */

/* A pipe may have no data for long. */
static int wait_for_data(const struct load_file *f)
{
	if (!f->stream || f->remote || (!f->stop.asked && !f->waits))
		return 0;
	return load_await(f->fd, POLLIN, f->stop)
		       ? 0
		       : load_fail(ECANCELED, "%s: reading was stopped", f->path);
}

/* What was kept of the file's start, then the rest by its own connection. A stream that has ranges
 * is one long range, so that a connection that breaks can be replaced. */
static int read_remote(struct load_file *f, char *to, size_t n, uint64_t offset, size_t *ret_got)
{
	size_t kept = offset < f->n_head ? f->n_head - (size_t)offset : 0;
	size_t got = 0;
	int r = 0;

	kept = kept < n ? kept : n;
	if (kept > 0)
		memcpy(to, f->head + offset, kept);
	if (f->stream && remote_has_ranges(f->remote))
		remote_expect(NULL, f->remote, offset + kept, remote_size(f->remote));
	if (kept < n)
		r = remote_read_up_to(NULL, f->remote, to + kept, n - kept, offset + kept, &got,
				      f->stop);
	*ret_got = kept + got;
	return r;
}

/* Reads up to n bytes; *ret_got is less only at the file's end. offset: -1 is where it stands. */
static int read_up_to(struct load_file *f, void *to, size_t n, off_t offset, size_t *ret_got)
{
	size_t got = 0;

	if (f->remote)
		return read_remote(f, to, n, offset < 0 ? f->position : (uint64_t)offset, ret_got);
	while (got < n) {
		char *at = (char *)to + got;
		ssize_t r = wait_for_data(f);

		if (r < 0)
			return (int)r;
		r = offset < 0 ? read(f->fd, at, n - got)
			       : pread(f->fd, at, n - got, offset + (off_t)got);

		if (r < 0 && (errno == EINTR || (errno == EAGAIN && f->waits)))
			continue;
		if (r < 0)
			return load_fail(errno, "%s: %s", f->path, strerror(errno));
		if (r == 0)
			break;
		got += (size_t)r;
	}
	*ret_got = got;
	return 0;
}

static int read_stream(struct load_file *f, void *to, size_t n)
{
	size_t got = 0;
	int r = read_up_to(f, to, n, -1, &got);

	if (r < 0)
		return r;
	if (f->has_sha256)
		sha256_update(&f->hash, got, to);
	f->position += got;
	if (got < n)
		return load_fail(EBADMSG, "%s ends after %" PRIu64 " bytes, in the middle of %s",
				 f->path, f->position, f->data ? "a tensor" : "the header");
	return 0;
}

static int skip_to(struct load_file *f, uint64_t offset)
{
	char dropped[16384];
	int r = 0;

	while (r == 0 && f->position < offset) {
		uint64_t left = offset - f->position;

		r = read_stream(f, dropped, left < sizeof(dropped) ? left : sizeof(dropped));
	}
	return r;
}

int load_file_read(struct load_file *f, void *ret, size_t n, uint64_t offset)
{
	size_t got = 0;
	int r;

	if (f->stream) {
		r = skip_to(f, offset);
		return r < 0 ? r : read_stream(f, ret, n);
	}
	r = read_up_to(f, ret, n, (off_t)offset, &got);
	if (r == 0 && got < n)
		r = load_fail(ESTALE,
			      "%s was truncated while it was read: it ends at byte %" PRIu64
			      ", and had %" PRIu64 " bytes",
			      f->path, offset + got, f->size);
	return r;
}

/* ---- the header ---- */

static uint64_t little_endian(const unsigned char bytes[8])
{
	uint64_t n;

	memcpy(&n, bytes, sizeof(n));
	return le64toh(n);
}

static bool knows_size(const struct load_file *f)
{
	return !f->stream || (f->remote && remote_size(f->remote) != REMOTE_NO_SIZE);
}

/* By what other files of models begin with; a safetensors file is known by its name before. */
static int check_format(const struct load_file *f, const unsigned char start[8])
{
	const char *end = strrchr(f->path, '.'), *what = NULL;

	if (end && strcmp(end, ".safetensors") == 0)
		return 0;
	if (memcmp(start, "GGUF", 4) == 0)
		what = "a GGUF file: load the safetensors files that it was made of";
	else if (memcmp(start, "PK\3\4", 4) == 0 || memcmp(start, "\x80\2", 2) == 0)
		what = "a PyTorch file: safetensors.torch.save_file(torch.load(FILE, "
		       "weights_only=True), NEW) writes one";
	return what ? load_fail(EBADMSG, "%s is not a safetensors file, but %s", f->path, what) : 0;
}

static int check_length(const struct load_file *f, uint64_t length)
{
	/* '<' is the first byte of HTML. */
	if (f->remote && length > HEADER_BYTES_MAX && (length & 0xff) == '<')
		return load_fail(EBADMSG,
				 "%s is a web page, and not a safetensors file; a page of the "
				 "Hugging Face Hub (.../blob/main/...) has its file at "
				 ".../resolve/main/...",
				 f->path);
	if (length > HEADER_BYTES_MAX)
		return load_fail(EBADMSG,
				 "%s is not a safetensors file: its header would have %" PRIu64
				 " bytes; %u are allowed",
				 f->path, length, HEADER_BYTES_MAX);
	if (knows_size(f) && length > f->size - 8)
		return load_fail(EBADMSG,
				 "%s: its header has %" PRIu64 " bytes, and the file ends %" PRIu64
				 " bytes after its start: the file is truncated",
				 f->path, length, f->size - 8);
	return 0;
}

int load_file_header(struct load_file *f, char **ret_text, size_t *ret_length,
		     uint64_t *ret_data_bytes)
{
	_cleanup_(free_ptr) char *text = NULL;
	unsigned char start[8];
	struct sha256_ctx hash;
	uint64_t length;
	int r;

	if (knows_size(f) && f->size < sizeof(start))
		return load_fail(EBADMSG,
				 "%s is not a safetensors file: it has %" PRIu64
				 " bytes, and its header's length alone takes 8",
				 f->path, f->size);
	r = load_file_read(f, start, sizeof(start), 0);
	if (r < 0)
		return r;
	length = little_endian(start);
	r = check_format(f, start);
	if (r == 0)
		r = check_length(f, length);
	if (r < 0)
		return r;
	text = malloc(length + 1);
	if (!text)
		return load_no_memory();
	r = load_file_read(f, text, length, sizeof(start));
	if (r < 0)
		return r;
	sha256_init(&hash);
	sha256_update(&hash, sizeof(start), start);
	sha256_update(&hash, length, (const uint8_t *)text);
	sha256_digest(&hash, sizeof(f->header_sha256), f->header_sha256);
	f->data = sizeof(start) + length;
	free_ptr(&f->head);
	f->n_head = 0;
	*ret_text = take_ptr(text);
	*ret_length = length;
	*ret_data_bytes = knows_size(f) ? f->size - f->data : HEADER_NO_SIZE;
	return 0;
}

/* ---- files of web servers ---- */

#define OPENERS 8u /* threads that wait for servers */

struct opening {
	struct load_files *files;
	char *const *urls;
	size_t first; /* of the files */
};

/* Keeps the header's bytes. What is wrong with its length is said where the header is read. */
static int keep_header(struct load_file *f, struct remote_reader *rr, struct load_stop stop)
{
	unsigned char start[8];
	uint64_t length;
	int r;

	if (f->size < sizeof(start))
		return 0;
	r = remote_read(rr, f->remote, start, sizeof(start), 0, stop);
	if (r < 0)
		return r;
	length = little_endian(start);
	if (length > HEADER_BYTES_MAX || length > f->size - sizeof(start))
		length = 0;
	f->head = malloc(sizeof(start) + length);
	if (!f->head)
		return load_no_memory();
	memcpy(f->head, start, sizeof(start));
	f->n_head = sizeof(start) + length;
	remote_expect(rr, f->remote, sizeof(start), length);
	return remote_read(rr, f->remote, f->head + sizeof(start), length, sizeof(start), stop);
}

static int open_url(struct opening *o, size_t i, struct remote_reader *rr, struct load_stop stop)
{
	struct load_file *f = &o->files->files[o->first + i];
	int r = remote_open(rr, o->urls[i], o->files->options, stop, &f->remote);

	if (r < 0)
		return r;
	f->path = strdup(remote_name(f->remote));
	if (!f->path)
		return load_no_memory();
	f->size = remote_size(f->remote);
	f->stream = !remote_has_ranges(f->remote);
	return f->stream ? 0 : keep_header(f, rr, stop);
}

static int open_urls(struct crew *crew, unsigned thread, void *user)
{
	struct remote_reader *rr = NULL;
	int r = remote_reader_new(&rr);
	uint64_t i;

	while (r == 0 && crew_next(crew, &i))
		r = open_url(user, i, rr, crew_stop(crew));
	remote_reader_free(rr);
	return r;
}

static int ask_stop(void *user, const struct gpushm_load_progress *p)
{
	return load_stopped(*(const struct load_stop *)user);
}

int load_files_add_urls(struct load_files *files, char *const *urls, size_t n)
{
	struct opening o = { .files = files, .urls = urls, .first = files->n };
	struct crew_work work = { .threads = n < OPENERS ? (unsigned)n : OPENERS,
				  .blocks = n,
				  .run = open_urls,
				  .user = &o,
				  .progress = ask_stop,
				  .progress_user = &files->stop };
	uint64_t elapsed_ns;

	for (size_t i = 0; i < n; i++)
		if (!add(files, NULL))
			return load_no_memory();
	return crew_run(&work, &elapsed_ns);
}

void load_files_set_stop(struct load_files *files, struct load_stop stop)
{
	for (size_t i = 0; i < files->n; i++)
		files->files[i].stop = stop;
}

/* ---- afterwards ---- */

static int check_same(const struct load_file *f, const struct stat *now, const char *what)
{
	const struct stat *was = &f->st;

	if (now->st_dev != was->st_dev || now->st_ino != was->st_ino)
		return load_fail(ESTALE, "%s %s while it was read: load it again", f->path, what);
	if (now->st_size != was->st_size)
		return load_fail(ESTALE,
				 "%s changed while it was read: it had %lld bytes and has %lld; "
				 "load it again",
				 f->path, (long long)was->st_size, (long long)now->st_size);
	if (now->st_mtim.tv_sec != was->st_mtim.tv_sec ||
	    now->st_mtim.tv_nsec != was->st_mtim.tv_nsec)
		return load_fail(ESTALE, "%s was written to while it was read: load it again",
				 f->path);
	return 0;
}

static int finish_regular(const struct load_file *f)
{
	struct stat now;
	int r;

	if (fstat(f->fd, &now) < 0)
		return load_fail(errno, "%s: %s", f->path, strerror(errno));
	r = check_same(f, &now, "changed");
	if (r < 0 || f->standard_input)
		return r;
	if (stat(f->path, &now) < 0)
		return load_fail(ESTALE, "%s was removed while it was read: %s", f->path,
				 strerror(errno));
	return check_same(f, &now, "was replaced by another file");
}

static int finish_stream(struct load_file *f)
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	char more;
	size_t got = 0;
	int r = skip_to(f, f->size);

	if (r == 0)
		r = read_up_to(f, &more, 1, -1, &got);
	if (r < 0)
		return r;
	if (got > 0)
		return load_fail(EBADMSG,
				 "%s goes on after byte %" PRIu64 ", where its last tensor ends",
				 f->path, f->size);
	sha256_digest(&f->hash, sizeof(digest), digest);
	if (f->has_sha256 && memcmp(digest, f->sha256, sizeof(digest)) != 0)
		return load_fail(EBADMSG, "%s: its SHA-256 is not that of the checksum file",
				 f->path);
	return 0;
}

int load_file_finish(struct load_file *f)
{
	if (f->in_memory)
		return 0;
	if (f->stream)
		return finish_stream(f);
	/* Each reply of a server has said which version it is of. */
	return f->remote ? 0 : finish_regular(f);
}
