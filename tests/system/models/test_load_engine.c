/* SPDX-License-Identifier: MIT
 *
 * How gpushm_load() reads and copies: sizes around a block and around the arrays' alignment, every
 * way to read a file, any number of threads, drivers that fail, and what is left after an error.
 */
#include "client/gpushm_load.h"
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/client.h"
#include "tests/lib/digest.h"
#include "tests/lib/fake.h"
#include "tests/lib/fds.h"
#include "tests/lib/forked.h"
#include "tests/lib/safetensors.h"
#include "tests/lib/suite.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MIB (1u << 20)

static char folder[512], path[600];
static struct gpushm_pool **pools;
static size_t n_pools;

/* In the build folder, which is on a disk more often than /tmp. */
static void setup(void)
{
	snprintf(folder, sizeof(folder), "%s", build_path("load-XXXXXX"));
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	client_setup();
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
}

static void teardown(void)
{
	pools = gpushm_free(pools);
	unlink(path);
	ck_assert_int_eq(rmdir(folder), 0);
	client_teardown();
}

static void expect_nothing(void)
{
	struct gpushm_stat **stats = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_list(c, NULL, 0, &stats, &n), 0);
	ck_assert_msg(n == 0, "%zu buffers are left: %s", n, n ? stats[0]->name : "");
	gpushm_free(stats);
}

/* ---- loading ---- */

static struct gpushm_load_report report = { .struct_size = sizeof(report) };

static int try_load(const char *pool, uint32_t flags, unsigned threads, struct gpushm_buffer **ret)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_load_options load = {
		.struct_size = sizeof(load), .flags = flags, .threads = threads, .report = &report
	};
	const char *source = path;

	return gpushm_load(c, &source, 1, "m", &o, &load, ret);
}

static struct gpushm_buffer *load(const char *pool, uint32_t flags, unsigned threads)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(try_load(pool, flags, threads, &b) == 0, "%s: %s", pool, gpushm_error());
	return b;
}

static void drop(struct gpushm_buffer *b)
{
	client_close_and_unlink(b, "m");
	expect_nothing();
}

static void expect_tensor(struct gpushm_buffer *b, const struct safetensors_tensor *t)
{
	uint64_t n = safetensors_bytes(t);
	_cleanup_(free_ptr) char *expected = malloc(n + 1);
	_cleanup_(free_ptr) char *found = malloc(n + 1);
	struct gpushm_array *a;

	ck_assert_int_eq(gpushm_array_get(b, t->name, &a), 0);
	ck_assert_uint_eq(gpushm_array_nbytes(a), n);
	ck_assert_int_eq(gpushm_copy_to_host(a, found, NULL), 0);
	safetensors_fill(t->name, expected, n);
	ck_assert_msg(memcmp(found, expected, n) == 0, "tensor %s differs", t->name);
	gpushm_array_free(a);
}

/* The digest of tensors in the order of the file. */
static void expect_digest(const struct safetensors_tensor *t, size_t n)
{
	char digest[NAIVE_DIGEST_TEXT], *bytes, *to;
	uint64_t size = 0;

	for (size_t i = 0; i < n; i++)
		size += safetensors_bytes(&t[i]);
	bytes = to = malloc(size + 1);
	for (size_t i = 0; i < n; i++) {
		safetensors_fill(t[i].name, to, safetensors_bytes(&t[i]));
		to += safetensors_bytes(&t[i]);
	}
	naive_digest(bytes, size, digest);
	free(bytes);
	ck_assert_str_eq(report.content, digest);
	ck_assert_uint_eq(report.bytes, size);
}

static const struct safetensors_tensor sizes[] = {
	{ "t4194304", "U8", "4194304" }, { "t1", "U8", "1" },	    { "t0", "U8", "0" },
	{ "t255", "U8", "255" },	 { "t256", "U8", "256" },   { "t257", "U8", "257" },
	{ "t4194303", "U8", "4194303" }, { "t512", "U8", "512" },   { "t4194305", "U8", "4194305" },
	{ "t0b", "F32", "0,7" },	 { "t9", "U8", "9437184" }, { "last", "U8", "3" },
};

static void load_tensors(const char *pool, uint32_t flags, unsigned threads,
			 const struct safetensors_tensor *t, size_t n)
{
	struct gpushm_buffer *b = load(pool, flags, threads);

	for (size_t i = 0; i < n; i++)
		expect_tensor(b, &t[i]);
	expect_digest(t, n);
	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), 0);
	drop(b);
}

static void on_each_pool(uint32_t flags, unsigned threads, const struct safetensors_tensor *t,
			 size_t n)
{
	for (size_t i = 0; i < n_pools; i++)
		if (!pools[i]->failed)
			load_tensors(pools[i]->name, flags, threads, t, n);
}

static void on_every_pool(uint32_t flags, unsigned threads)
{
	on_each_pool(flags, threads, sizes, array_size(sizes));
}

START_TEST(all_bytes_at_the_edge_of_a_block_are_loaded)
{
	safetensors_write(path, sizes, array_size(sizes), NULL);
	on_every_pool(0, 0);
}
END_TEST

START_TEST(any_number_of_threads_loads_all_bytes)
{
	static const unsigned threads[] = { 1, 2, 3, 16, 63, 1000 };

	safetensors_write(path, sizes, array_size(sizes), NULL);
	for (size_t i = 0; i < array_size(threads); i++)
		on_every_pool(0, threads[i]);
}
END_TEST

/* Slots of four blocks, the last one of which is not full. */
START_TEST(threads_that_share_a_slot_load_all_bytes)
{
	static const struct safetensors_tensor large[] = { { "a", "U8", "30000001" },
							   { "b", "U8", "77" },
							   { "c", "U8", "30000001" } };
	static const unsigned threads[] = { 12, 16 };

	safetensors_write(path, large, array_size(large), NULL);
	for (size_t i = 0; i < array_size(threads); i++)
		on_each_pool(GPUSHM_LOAD_CACHED, threads[i], large, array_size(large));
}
END_TEST

/* Tensors with gaps between them in the buffer, none where a direct read could begin. */
START_TEST(each_way_to_read_gives_the_same_bytes)
{
	static const uint32_t ways[] = { GPUSHM_LOAD_CACHED, GPUSHM_LOAD_DIRECT, GPUSHM_LOAD_VERIFY,
					 GPUSHM_LOAD_VERIFY | GPUSHM_LOAD_DIRECT,
					 GPUSHM_LOAD_DROP_CACHE };

	safetensors_write(path, sizes, array_size(sizes), NULL);
	for (size_t i = 0; i < array_size(ways); i++)
		on_every_pool(ways[i], 0);
}
END_TEST

/* Whether the file system of the file has direct reads. */
static bool has_direct(void)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	char *page = aligned_alloc(4096, 4096);
	bool has = fd >= 0 && pread(fd, page, 4096, 0) == 4096;

	free(page);
	if (fd >= 0)
		close(fd);
	if (!has)
		puts("skipped: this file system has no direct reads");
	return has;
}

static void drop_from_cache(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
}

/* Memory that is short takes pages from the cache; not those that are locked. NULL: this user may
 * lock less than the file. */
static void *lock_in_cache(size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	close(fd);
	if (mlock(at, bytes) == 0)
		return at;
	munmap(at, bytes);
	puts("skipped: a file of 3 MiB can't be locked in memory");
	return NULL;
}

static bool reads_directly(uint32_t flags)
{
	static const struct safetensors_tensor one = { "a", "U8", "3145729" };
	struct gpushm_buffer *b;

	if (access(path, F_OK) < 0)
		safetensors_write(path, &one, 1, NULL);
	b = load("host", flags, 0);
	expect_tensor(b, &one);
	drop(b);
	return report.direct;
}

START_TEST(a_file_is_read_directly_unless_it_is_cached)
{
	const size_t bytes = 3 * MIB;
	void *locked;

	ck_assert(!reads_directly(GPUSHM_LOAD_CACHED));
	if (!has_direct())
		return;
	locked = lock_in_cache(bytes);
	if (!locked)
		return;
	ck_assert(!reads_directly(0));
	ck_assert(reads_directly(GPUSHM_LOAD_DIRECT));
	ck_assert(!reads_directly(0));
	munmap(locked, bytes);
	drop_from_cache(); /* what was written is not dropped before it is on disk */
	ck_assert(reads_directly(0));
	ck_assert(!reads_directly(GPUSHM_LOAD_CACHED));
	ck_assert(!reads_directly(GPUSHM_LOAD_CACHED | GPUSHM_LOAD_DROP_CACHE));
	ck_assert(reads_directly(0));
}
END_TEST

/* ulimit -f is about files of a disk, and memory is none. */
START_TEST(a_file_size_limit_applies_to_files_only)
{
	struct rlimit before, small;

	safetensors_write(path, sizes, array_size(sizes), NULL);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){ .rlim_cur = 5 * MIB + 77, .rlim_max = before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	load_tensors("host", 0, 0, sizes, array_size(sizes));
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
}
END_TEST

#define SHARDS 100u

/* Each file may have a second descriptor, and the driver needs some of its own. */
START_TEST(direct_reads_leave_descriptors_for_the_driver)
{
	struct gpushm_load_options o = { .struct_size = sizeof(o), .threads = 2 };
	char shards[SHARDS][sizeof(path) + 16], name[SHARDS][16];
	const char *sources[SHARDS];
	struct rlimit before, small;
	int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);

	for (unsigned i = 0; i < SHARDS; i++) {
		const struct safetensors_tensor t = { name[i], "U8", "1048576" };

		snprintf(name[i], sizeof(name[i]), "%u", i);
		snprintf(shards[i], sizeof(shards[i]), "%s.%u", path, i);
		safetensors_write(sources[i] = shards[i], &t, 1, NULL);
	}
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	small = (struct rlimit){ (rlim_t)lowest + 2 * SHARDS, before.rlim_max };
	close(lowest);
	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_create_options pool = { .struct_size = sizeof(pool),
						      .pool = pools[i]->name };
		int r;

		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
		r = gpushm_load(c, sources, SHARDS, "m", &pool, &o, NULL);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
		ck_assert_msg(r == 0, "%s: %s", pools[i]->name, gpushm_error());
		ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	}
	for (unsigned i = 0; i < SHARDS; i++)
		unlink(shards[i]);
}
END_TEST

/* ---- progress ---- */

struct seen {
	unsigned calls;
	bool cancel;
	bool truncate;
	unsigned threads;
	uint32_t flags;
	struct gpushm_load_progress last;
	pthread_t thread;
};

static int on_progress(void *user, const struct gpushm_load_progress *p)
{
	struct seen *seen = user;

	ck_assert(pthread_equal(seen->thread, pthread_self()));
	ck_assert_uint_ge(p->done, seen->last.done);
	ck_assert_uint_le(p->done, p->total);
	seen->last = *p;
	if (seen->truncate && seen->calls == 0)
		ck_assert_int_eq(truncate(path, 20 * MIB), 0);
	seen->calls++;
	return seen->cancel;
}

/* A large file that takes no space. */
static void write_holes(void)
{
	static const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[805306368],"
				     "\"data_offsets\":[0,805306368]}}    ";

	safetensors_write_raw(path, header, (sizeof(header) - 1) & ~7ul, "", 0);
	ck_assert_int_eq(truncate(path, 8 + ((sizeof(header) - 1) & ~7) + 805306368), 0);
}

static int load_seen(struct seen *seen, const char *pool, struct gpushm_buffer **ret)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_load_options how = { .struct_size = sizeof(how),
					   .flags = seen->flags,
					   .threads = seen->threads,
					   .progress = on_progress,
					   .user = seen };
	const char *source = path;

	seen->thread = pthread_self();
	return gpushm_load(c, &source, 1, "m", &o, &how, ret);
}

START_TEST(progress_is_told_the_end)
{
	struct gpushm_buffer *b = NULL;
	struct seen seen = { 0 };

	safetensors_write(path, sizes, array_size(sizes), NULL);
	ck_assert_int_eq(load_seen(&seen, NULL, &b), 0);
	ck_assert_uint_ge(seen.calls, 1);
	ck_assert_uint_gt(seen.last.total, 9 * MIB);
	ck_assert_uint_eq(seen.last.done, seen.last.total);
	drop(b);
}
END_TEST

/* Past the page cache, and through slots that threads share. */
static const struct seen ways[] = { { .cancel = false },
				    { .threads = 12, .flags = GPUSHM_LOAD_CACHED } };

START_TEST(a_canceled_load_leaves_nothing)
{
	write_holes();
	for (size_t i = 0; i < n_pools * array_size(ways); i++) {
		const struct gpushm_pool *pool = pools[i / array_size(ways)];
		struct seen seen = ways[i % array_size(ways)];

		seen.cancel = true;
		if (pool->failed)
			continue;
		ck_assert_int_eq(load_seen(&seen, pool->name, NULL), -ECANCELED);
		ck_assert_uint_eq(seen.calls, 1);
		expect_nothing();
	}
}
END_TEST

/* Where the first call is the last one, the file has changed after it was read. */
START_TEST(a_file_that_is_truncated_meanwhile_is_refused)
{
	for (size_t i = 0; i < n_pools * array_size(ways); i++) {
		const struct gpushm_pool *pool = pools[i / array_size(ways)];
		struct seen seen = ways[i % array_size(ways)];

		seen.truncate = true;
		write_holes();
		if (pool->failed)
			continue;
		ck_assert_int_eq(load_seen(&seen, pool->name, NULL), -ESTALE);
		ck_assert_ptr_nonnull(strstr(gpushm_error(), path));
		expect_nothing();
	}
}
END_TEST

/* ---- the driver ---- */

static void *driver_symbol(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	return driver ? dlsym(driver, name) : NULL;
}

static bool has_fake(void)
{
	bool has = driver_symbol("fakecuda_calls") != NULL;

	if (!has)
		puts("skipped: needs the fake driver");
	return has;
}

static const struct safetensors_tensor two[] = { { "a", "U8", "5242881" }, { "b", "U8", "300" } };

/* A daemon without a pinned pool, for the rest of a test. */
static struct daemon other;
static struct gpushm *first;

static void use_other(const char *config)
{
	first = c;
	daemon_start(&other, config, NULL);
	ck_assert_int_eq(gpushm_connect(other.socket, &c), 0);
}

static void end_other(void)
{
	client_await(client_used_bytes() == 0);
	c = gpushm_disconnect(c);
	daemon_stop(&other);
	c = first;
}

/* The n-th call fails, and whatever thread makes it: nothing is left, or all is right. A ring of a
 * pinned pool would stay until the end of this process where the driver can't unmap it. */
static void fail_each_call(const struct safetensors_tensor *tensors, size_t n_tensors,
			   uint32_t flags, unsigned threads)
{
	fakecuda_reset_fail_fn *reset_fail = driver_symbol("fakecuda_reset_fail");
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	fakecuda_handed_out_fn *handed_out = driver_symbol("fakecuda_handed_out");
	unsigned long alive, before, failed = 0;
	unsigned step = suite_has_tsan() ? 7 : 1; /* a load takes half a second there */

	safetensors_write(path, tensors, n_tensors, NULL);
	use_other("[pool gpu0]\nkind=vmm\n");
	drop(load("gpu0", 0, threads));
	alive = handed_out();
	for (unsigned n = 1;; n += step) {
		struct gpushm_buffer *b = NULL;
		int r;

		before = calls(NULL);
		reset_fail(n);
		r = try_load("gpu0", flags, threads, &b);
		reset_fail(0);
		failed += r < 0;
		if (r == 0) {
			for (size_t i = 0; i < n_tensors; i++)
				expect_tensor(b, &tensors[i]);
			drop(b);
		} else {
			expect_nothing();
		}
		ck_assert_uint_eq(handed_out(), alive);
		if (calls(NULL) - before < n)
			break;
	}
	ck_assert_uint_ge(failed, 20 / step);
	end_other();
}

START_TEST(a_driver_that_fails_leaves_nothing)
{
	if (has_fake())
		fail_each_call(two, 2, GPUSHM_LOAD_VERIFY, 2);
}
END_TEST

START_TEST(a_driver_that_fails_leaves_nothing_of_shared_slots)
{
	if (has_fake())
		fail_each_call(sizes, array_size(sizes), GPUSHM_LOAD_CACHED, 6);
}
END_TEST

/* The n-th call fails: the name means a whole buffer all the same, which is the old one after an
 * error. */
START_TEST(a_failed_replace_leaves_the_old_buffer_under_its_name)
{
	fakecuda_reset_fail_fn *reset_fail = driver_symbol("fakecuda_reset_fail");
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	unsigned long before, failed = 0;
	struct gpushm_buffer *b = NULL;
	bool again = true;

	if (!has_fake())
		return;
	safetensors_write(path, two, 2, NULL);
	use_other("[pool gpu0]\nkind=vmm\n");
	ck_assert_int_eq(gpushm_close(load("gpu0", 0, 2)), 0);
	for (unsigned n = 1; again; n++) {
		struct gpushm_stat *st = NULL;
		uint64_t old;
		int r;

		ck_assert_int_eq(gpushm_stat(c, "m", 0, 0, &st), 0);
		old = st->id;
		gpushm_free(st);
		before = calls(NULL);
		reset_fail(n);
		r = try_load("gpu0", GPUSHM_LOAD_REPLACE, 2, &b);
		reset_fail(0);
		failed += r < 0;
		again = calls(NULL) - before >= n;
		if (r == 0)
			ck_assert_int_eq(gpushm_close(b), 0);
		ck_assert_msg(gpushm_stat(c, "m", 0, 0, &st) == 0, "call %u, %d: %s", n, r,
			      gpushm_error());
		ck_assert_msg((st->id == old) == (r < 0), "call %u: %d", n, r);
		gpushm_free(st);
	}
	ck_assert_uint_gt(failed, 10);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	end_other();
}
END_TEST

/* How often a load of the file into GPU 0 calls that function of the driver. */
static unsigned long count_calls(const char *function, unsigned threads)
{
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	unsigned long before = calls(function);

	drop(load("gpu0", 0, threads));
	return calls(function) - before;
}

START_TEST(slots_come_from_a_pinned_pool)
{
	if (!has_fake())
		return;
	safetensors_write(path, two, 2, NULL);
	ck_assert_uint_eq(count_calls("cuMemHostRegister", 0), 0);
}
END_TEST

/* A thread that has no block needs no slots: two threads have two each. */
START_TEST(a_small_model_takes_slots_only_for_busy_threads)
{
	static const struct safetensors_tensor few[] = { { "t", "U8", "4194305" } };

	if (!has_fake())
		return;
	safetensors_write(path, few, 1, NULL);
	ck_assert_uint_eq(count_calls("cuEventCreate", 8), 4);
}
END_TEST

START_TEST(a_load_without_a_pinned_pool_pins_its_own_memory)
{
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	unsigned long before;

	if (!has_fake())
		return;
	safetensors_write(path, two, 2, NULL);
	use_other("[pool gpu]\nkind=vmm\n[pool tiny]\nkind=pinned\nsize=2M\n");
	before = calls("cuMemHostRegister");
	drop(load("gpu", 0, 3));
	ck_assert_uint_gt(calls("cuMemHostRegister"), before);
	end_other();
}
END_TEST

/* Mappings that a child of fork() would not have, as the slots are. */
static unsigned count_slots(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	char line[512];
	unsigned n = 0;

	ck_assert_ptr_nonnull(smaps);
	while (fgets(line, sizeof(line), smaps))
		n += strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dc") &&
		     !strstr(line, " sh");
	fclose(smaps);
	return n;
}

/* CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, at the first unpinning: before the first driver call. */
static void setup_reset(void)
{
	setenv("FAKECUDA_FAIL", "1:cuMemHostUnregister", 1);
	setenv("FAKECUDA_FAIL_WITH", "713", 1);
	setup();
}

START_TEST(slots_that_a_reset_has_unpinned_are_unmapped)
{
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	unsigned before = count_slots();

	if (!has_fake())
		return;
	safetensors_write(path, two, 2, NULL);
	use_other("[pool gpu]\nkind=vmm\n");
	drop(load("gpu", 0, 2));
	ck_assert_uint_eq(calls("cuMemHostUnregister"), 1);
	ck_assert_uint_eq(count_slots(), before);
	end_other();
}
END_TEST

/* The slots are taken while the buffer is created: either may be the first. */
START_TEST(slots_leave_the_model_what_a_user_has_left)
{
	if (!has_fake())
		return;
	safetensors_write(path, two, 2, NULL);
	use_other("[pool gpu]\nkind=vmm\n[pool pinned]\nkind=pinned\nsize=64M\n"
		  "[limits]\nmax-buffers=1\n");
	for (unsigned i = 0; i < 200; i++) {
		drop(load("gpu", i % 2 ? GPUSHM_LOAD_IF_MISSING : 0, 2));
		client_await(client_used_bytes() == 0);
	}
	end_other();
}
END_TEST

START_TEST(the_context_of_the_caller_is_kept)
{
	int (*get)(void **) = driver_symbol("cuCtxGetCurrent");
	void *before = (void *)1, *after = (void *)2;

	if (!has_fake())
		return;
	safetensors_write(path, two, 2, NULL);
	drop(load("gpu0", 0, 0));
	ck_assert_int_eq(get(&before), 0);
	drop(load("gpu0", GPUSHM_LOAD_VERIFY, 0));
	ck_assert_int_eq(get(&after), 0);
	ck_assert_ptr_eq(before, after);
}
END_TEST

/* The device is named: a load would find no GPU otherwise, and not ask the driver. */
static int load_for_gpu_0(const char *name)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = "gpu0",
					   .flags = GPUSHM_SET_DEVICE };
	const char *source = path;

	return gpushm_load(c, &source, 1, name, &o, NULL, NULL);
}

static void *load_meanwhile(void *arg)
{
	ck_assert_msg(load_for_gpu_0("m") == 0, "%s", gpushm_error());
	return NULL;
}

static int load_in_child(void *arg)
{
	return gpushm_connect(d.socket, &c) < 0 ? 1 : load_for_gpu_0("child");
}

START_TEST(a_load_in_a_forked_child_fails_at_once)
{
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	pthread_t loader;

	if (!has_fake())
		return;
	safetensors_write(path, two, 2, NULL);
	fake_hang(1, "cuDevicePrimaryCtxRetain");
	setenv("FAKECUDA_HANG", "*:cuDevicePrimaryCtxRetain", 1);
	ck_assert_int_eq(pthread_create(&loader, NULL, load_meanwhile, NULL), 0);
	client_await(calls("cuDeviceGet") > 0);
	poll(NULL, 0, 100); /* the next call hangs */
	ck_assert_int_eq(forked(load_in_child, NULL), -ENODEV);
	fake_let_go();
	ck_assert_int_eq(pthread_join(loader, NULL), 0);
	fake_forget();
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("load_engine"), *reset = tcase_create("reset");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, all_bytes_at_the_edge_of_a_block_are_loaded);
	tcase_add_test(t, any_number_of_threads_loads_all_bytes);
	tcase_add_test(t, threads_that_share_a_slot_load_all_bytes);
	tcase_add_test(t, each_way_to_read_gives_the_same_bytes);
	tcase_add_test(t, a_file_is_read_directly_unless_it_is_cached);
	tcase_add_test(t, a_file_size_limit_applies_to_files_only);
	tcase_add_test(t, direct_reads_leave_descriptors_for_the_driver);
	tcase_add_test(t, progress_is_told_the_end);
	tcase_add_test(t, a_canceled_load_leaves_nothing);
	tcase_add_test(t, a_file_that_is_truncated_meanwhile_is_refused);
	tcase_add_test(t, a_driver_that_fails_leaves_nothing);
	tcase_add_test(t, a_driver_that_fails_leaves_nothing_of_shared_slots);
	tcase_add_test(t, a_failed_replace_leaves_the_old_buffer_under_its_name);
	tcase_add_test(t, slots_come_from_a_pinned_pool);
	tcase_add_test(t, a_small_model_takes_slots_only_for_busy_threads);
	tcase_add_test(t, a_load_without_a_pinned_pool_pins_its_own_memory);
	tcase_add_test(t, slots_leave_the_model_what_a_user_has_left);
	tcase_add_test(t, the_context_of_the_caller_is_kept);
	tcase_add_test(t, a_load_in_a_forked_child_fails_at_once);
	tcase_set_timeout(reset, 120);
	tcase_add_checked_fixture(reset, setup_reset, teardown);
	tcase_add_test(reset, slots_that_a_reset_has_unpinned_are_unmapped);
	return suite_run("load_engine", t, reset, NULL);
}
