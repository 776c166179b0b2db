/* SPDX-License-Identifier: MIT
 *
 * What the engine is made of: blocks of a plan, the digest, direct reads, and the crew of threads.
 * Each is compared with the simplest code that does the same.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_private.h"
#include "client/models/copy/blocks.h"
#include "client/models/copy/source.h"
#include "client/models/crew.h"
#include "client/models/files/file.h"
#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MIB (1u << 20)

/* ---- blocks ---- */

/* Two files whose runs follow one another in the buffer with gaps. */
static struct run runs[] = {
	{ 0, 1000, 0, 5 * MIB + 3 },
	{ 0, 1000 + 5 * MIB + 3, 5 * MIB + 256, 1 },
	{ 0, 1000 + 5 * MIB + 4, 5 * MIB + 512, 3 * MIB },
	{ 1, 77, 8 * MIB + 512, 4 * MIB },
	{ 1, 77 + 4 * MIB, 12 * MIB + 512, 256 },
	{ 1, 77 + 5 * MIB, 12 * MIB + 768, 256 },
};

static struct plan make_plan(void)
{
	struct plan plan = { .runs = runs, .n = sizeof(runs) / sizeof(runs[0]) };

	for (size_t i = 0; i < plan.n; i++)
		plan.bytes += runs[i].bytes;
	return plan;
}

START_TEST(blocks_cover_each_byte_once)
{
	struct plan plan = make_plan();
	size_t at = 0;
	uint64_t skip = 0, total = 0;
	struct blocks b;

	ck_assert_int_eq(blocks_init(&b, &plan), 0);
	ck_assert_uint_eq(b.n, plan.bytes / BLOCK_BYTES + 1);
	for (uint64_t i = 0; i < b.n; i++) {
		struct cursor c = blocks_cursor(&b, i);
		uint64_t in_block = 0;
		struct run part;

		while (cursor_next(&c, &part)) {
			ck_assert_uint_eq(part.file, runs[at].file);
			ck_assert_uint_eq(part.file_offset, runs[at].file_offset + skip);
			ck_assert_uint_eq(part.buffer_offset, runs[at].buffer_offset + skip);
			skip += part.bytes;
			in_block += part.bytes;
			ck_assert_uint_le(skip, runs[at].bytes);
			if (skip == runs[at].bytes) {
				at++;
				skip = 0;
			}
		}
		ck_assert(i + 1 == b.n || in_block == BLOCK_BYTES);
		total += in_block;
	}
	ck_assert_uint_eq(total, plan.bytes);
	ck_assert_uint_eq(at, plan.n);
	blocks_clear(&b);
}
END_TEST

START_TEST(parts_are_joined_up_to_a_gap)
{
	struct plan plan = make_plan();
	struct cursor c = { .run = runs, .left = plan.bytes };
	struct run part;

	ck_assert(cursor_next_in_file(&c, &part));
	ck_assert_uint_eq(part.bytes, 8 * MIB + 4);
	ck_assert(cursor_next_in_file(&c, &part));
	ck_assert_uint_eq(part.file, 1);
	ck_assert_uint_eq(part.bytes, 4 * MIB + 256);
	ck_assert(cursor_next_in_file(&c, &part));
	ck_assert_uint_eq(part.file_offset, 77 + 5 * MIB);
	ck_assert(!cursor_next_in_file(&c, &part));

	c = (struct cursor){ .run = runs, .left = plan.bytes };
	ck_assert(cursor_next_in_buffer(&c, &part));
	ck_assert_uint_eq(part.bytes, 5 * MIB + 3);
	ck_assert(cursor_next_in_buffer(&c, &part));
	ck_assert_uint_eq(part.bytes, 1);
	ck_assert(cursor_next_in_buffer(&c, &part));
	ck_assert_uint_eq(part.bytes, 7 * MIB + 512);
	ck_assert(!cursor_next_in_buffer(&c, &part));
}
END_TEST

START_TEST(a_plan_without_bytes_has_no_blocks)
{
	struct plan plan = { 0 };
	struct blocks b;

	ck_assert_int_eq(blocks_init(&b, &plan), 0);
	ck_assert_uint_eq(b.n, 0);
	blocks_clear(&b);
}
END_TEST

/* ---- the digest ---- */

static uint64_t hash_with(const struct block_hash_code *code, const char *bytes, size_t n,
			  size_t piece)
{
	struct block_hash *h = code->new ();
	uint64_t hash;

	ck_assert_ptr_nonnull(h);
	code->begin(h);
	for (size_t i = 0; i < n; i += piece)
		code->add(h, bytes + i, n - i < piece ? n - i : piece);
	hash = code->end(h);
	code->free(h);
	return hash;
}

START_TEST(all_sets_of_instructions_hash_alike)
{
	static const size_t sizes[] = { 0, 1, 8, 240, 241, 4096, BLOCK_BYTES };
	static const size_t pieces[] = { 1000, 65537, BLOCK_BYTES };
	char *bytes = malloc(BLOCK_BYTES);

	for (size_t i = 0; i < BLOCK_BYTES; i++)
		bytes[i] = (char)(i * 2654435761u >> 13);
	for (size_t i = 0; i < 7; i++) {
		for (size_t j = 0; j < 3; j++) {
			uint64_t expected = XXH3_64bits(bytes, sizes[i]);

			ck_assert_uint_eq(hash_with(digest_code(), bytes, sizes[i], pieces[j]),
					  expected);
			ck_assert_uint_eq(hash_with(&block_hash_plain, bytes, sizes[i], pieces[j]),
					  expected);
		}
	}
	free(bytes);
}
END_TEST

START_TEST(the_digest_is_the_same_whichever_hash_comes_first)
{
	uint64_t hashes[3] = { 7, 8, 9 };
	char text[DIGEST_TEXT], expected[DIGEST_TEXT];
	struct digest d;
	uint64_t differs;
	struct digest other;

	ck_assert_int_eq(digest_init(&d, 3), 0);
	for (int i = 2; i >= 0; i--)
		digest_set(&d, (uint64_t)i, hashes[i]);
	digest_format(&d, text);
	snprintf(expected, sizeof(expected), "xxh3:%016llx",
		 (unsigned long long)XXH3_64bits(hashes, sizeof(hashes)));
	ck_assert_str_eq(text, expected);

	ck_assert_int_eq(digest_init(&other, 3), 0);
	memcpy(other.hashes, d.hashes, sizeof(hashes));
	ck_assert(!digest_differs(&d, &other, &differs));
	digest_set(&other, 1, 10);
	ck_assert(digest_differs(&d, &other, &differs));
	ck_assert_uint_eq(differs, 1);
	digest_clear(&other);
	digest_clear(&d);
}
END_TEST

/* ---- direct reads ---- */

static char path[PATH_MAX];
static char *contents;
#define FILE_BYTES (3 * MIB + 777)

static void make_file(struct load_files *files)
{
	int fd;

	/* Not in /tmp, which may be a tmpfs. */
	snprintf(path, sizeof(path), "%s", build_path("direct-read-XXXXXX"));
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	contents = malloc(FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		contents[i] = (char)(i * 2654435761u >> 11);
	ck_assert_int_eq(write(fd, contents, FILE_BYTES), FILE_BYTES);
	ck_assert_int_eq(fsync(fd), 0);
	close(fd);
	*files = (struct load_files){ 0 };
	ck_assert_int_eq(load_files_add(files, path), 0);
}

static void remove_file(struct load_files *files)
{
	load_files_done(files);
	free(contents);
	ck_assert_int_eq(unlink(path), 0);
}

static void read_at(struct source *s, uint64_t offset, size_t n)
{
	char *room = malloc(n + SOURCE_SLACK), *at;

	ck_assert_int_eq(source_read_direct(s, room, n, offset, &at), 0);
	ck_assert_mem_eq(at, contents + offset, n);
	free(room);
}

START_TEST(a_direct_read_that_is_not_aligned_gives_the_right_bytes)
{
	struct load_files files;
	struct source s;

	make_file(&files);
	source_open(&s, &files.files[0], GPUSHM_LOAD_DIRECT);
	if (s.direct < 0) {
		printf("skipped: this file system has no direct reads\n");
	} else {
		read_at(&s, 0, MIB);
		read_at(&s, 1, MIB);
		read_at(&s, 4095, 2 * MIB);
		read_at(&s, 8192, 4096);
		read_at(&s, FILE_BYTES - MIB - 5, MIB);
		read_at(&s, FILE_BYTES - MIB, MIB); /* to its end */
		read_at(&s, FILE_BYTES - 3, 3);
		ck_assert(s.was_direct);
	}
	source_close(&s);
	remove_file(&files);
}
END_TEST

START_TEST(a_direct_read_beyond_the_end_fails)
{
	struct load_files files;
	struct source s;
	char *room = malloc(2 * MIB), *at;

	make_file(&files);
	source_open(&s, &files.files[0], GPUSHM_LOAD_DIRECT);
	if (s.direct >= 0) {
		ck_assert_int_eq(truncate(path, MIB), 0);
		ck_assert_int_eq(source_read_direct(&s, room, MIB, 4096, &at), -ESTALE);
		ck_assert_ptr_nonnull(strstr(gpushm_error(), "truncated while it was read"));
	}
	source_close(&s);
	remove_file(&files);
	free(room);
}
END_TEST

START_TEST(a_cached_file_is_read_through_the_cache)
{
	struct load_files files;
	struct source s;

	make_file(&files); /* written just now */
	source_open(&s, &files.files[0], 0);
	ck_assert(!source_is_cold(&s));
	ck_assert(!source_wants_direct(&s, 0, MIB));
	source_close(&s);

	source_open(&s, &files.files[0], GPUSHM_LOAD_CACHED);
	ck_assert_int_lt(s.direct, 0);
	source_close(&s);
	remove_file(&files);
}
END_TEST

/* Whether no page of the file is in the page cache, and preadv2() says so of its last one. */
static bool is_known_to_be_cold(int fd)
{
	unsigned char pages[FILE_BYTES / 4096 + 1], in_cache = 0;
	char byte;
	struct iovec to = { .iov_base = &byte, .iov_len = 1 };
	void *at = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(mincore(at, FILE_BYTES, pages), 0);
	munmap(at, FILE_BYTES);
	for (size_t i = 0; i < sizeof(pages); i++)
		in_cache |= pages[i] & 1;
	return !in_cache && preadv2(fd, &to, 1, FILE_BYTES - 1, RWF_NOWAIT) < 0 && errno == EAGAIN;
}

START_TEST(a_cold_file_is_read_directly)
{
	struct load_files files;
	struct source s;

	make_file(&files);
	ck_assert_int_eq(posix_fadvise(files.files[0].fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	if (!is_known_to_be_cold(files.files[0].fd)) {
		printf("skipped: the kernel does not drop this file from its cache, or can't "
		       "tell\n");
		remove_file(&files);
		return;
	}
	source_open(&s, &files.files[0], 0);
	if (s.direct < 0) {
		printf("skipped: this file system has no direct reads\n");
	} else {
		ck_assert(source_is_cold(&s));
		usleep(100000); /* the pages that were probed are read meanwhile */
		ck_assert(source_is_cold(&s));
		ck_assert(source_wants_direct(&s, MIB, MIB));
		ck_assert(!source_wants_direct(&s, MIB, 4096)); /* too short */
	}
	source_close(&s);
	remove_file(&files);
}
END_TEST

/* ---- the crew ---- */

#define BLOCKS 1000

static _Atomic unsigned taken[BLOCKS], threads_seen, wrong;

static int take_all(struct crew *crew, unsigned thread, void *user)
{
	uint64_t block;
	sigset_t blocked;

	threads_seen++;
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	wrong += !sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGCHLD);
	while (crew_next(crew, &block)) {
		taken[block]++;
		crew_done(crew, 10, "file");
	}
	return 0;
}

START_TEST(each_block_is_taken_once)
{
	struct crew_work work = { .threads = 7, .blocks = BLOCKS, .run = take_all };
	uint64_t ns;

	ck_assert_int_eq(crew_run(&work, &ns), 0);
	for (int i = 0; i < BLOCKS; i++)
		ck_assert_uint_eq(taken[i], 1);
	ck_assert_uint_eq(threads_seen, 7);
	ck_assert_uint_eq(wrong, 0);
}
END_TEST

static int fail_at_ten(struct crew *crew, unsigned thread, void *user)
{
	uint64_t block;

	while (crew_next(crew, &block))
		if (block >= 10)
			return gpushm_private_fail(EIO, "block %d", (int)block);
	return 0;
}

START_TEST(an_error_of_a_thread_stops_the_others)
{
	struct crew_work work = { .threads = 4, .blocks = UINT64_MAX, .run = fail_at_ten };
	uint64_t ns;

	ck_assert_int_eq(crew_run(&work, &ns), -EIO);
	ck_assert_int_eq(strncmp(gpushm_error(), "block 1", 7), 0);
}
END_TEST

static int until_stopped(struct crew *crew, unsigned thread, void *user)
{
	uint64_t block;

	crew_done(crew, 5, "name");
	while (crew_next(crew, &block))
		sched_yield();
	return 0;
}

static int cancel(void *user, const struct gpushm_load_progress *p)
{
	unsigned *calls = user;

	ck_assert_uint_eq(p->done, 10);
	ck_assert_uint_eq(p->total, 100);
	ck_assert_str_eq(p->file, "name");
	return ++*calls == 3;
}

START_TEST(progress_can_cancel)
{
	unsigned calls = 0;
	struct crew_work work = { .threads = 2,
				  .blocks = UINT64_MAX,
				  .bytes = 100,
				  .run = until_stopped,
				  .progress = cancel,
				  .progress_user = &calls };
	uint64_t ns;

	ck_assert_int_eq(crew_run(&work, &ns), -ECANCELED);
	ck_assert_str_eq(gpushm_error(), "canceled after 10 of 100 bytes");
	ck_assert_uint_eq(calls, 3);
}
END_TEST

static int note(void *user, const struct gpushm_load_progress *p)
{
	*(struct gpushm_load_progress *)user = *p;
	return 0;
}

START_TEST(the_last_progress_is_the_whole)
{
	struct gpushm_load_progress last = { 0 };
	struct crew_work work = { .threads = 3,
				  .blocks = BLOCKS,
				  .bytes = 10 * BLOCKS,
				  .run = take_all,
				  .progress = note,
				  .progress_user = &last };
	uint64_t ns;

	ck_assert_int_eq(crew_run(&work, &ns), 0);
	ck_assert_uint_eq(last.done, 10 * BLOCKS);
	ck_assert_uint_eq(last.total, 10 * BLOCKS);
	ck_assert_uint_gt(last.elapsed_ns, 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("load_blocks");

	tcase_add_checked_fixture(t, fds_mark, fds_check);
	tcase_add_test(t, blocks_cover_each_byte_once);
	tcase_add_test(t, parts_are_joined_up_to_a_gap);
	tcase_add_test(t, a_plan_without_bytes_has_no_blocks);
	tcase_add_test(t, all_sets_of_instructions_hash_alike);
	tcase_add_test(t, the_digest_is_the_same_whichever_hash_comes_first);
	tcase_add_test(t, a_direct_read_that_is_not_aligned_gives_the_right_bytes);
	tcase_add_test(t, a_direct_read_beyond_the_end_fails);
	tcase_add_test(t, a_cached_file_is_read_through_the_cache);
	tcase_add_test(t, a_cold_file_is_read_directly);
	tcase_add_test(t, each_block_is_taken_once);
	tcase_add_test(t, an_error_of_a_thread_stops_the_others);
	tcase_add_test(t, progress_can_cancel);
	tcase_add_test(t, the_last_progress_is_the_whole);
	return suite_run("load_blocks", t, NULL);
}
