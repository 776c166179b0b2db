/* SPDX-License-Identifier: MIT
 *
 * The register of maps, over host memory: one mapping for each buffer and access, whatever the
 * number of acquisitions and threads; a forked child has none of its parent's maps.
 */
#include "client/lib/map/map.h"

#include "client/gpushm.h"
#include "client/lib/base/process.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES 8192u

static int fd = -1;
static struct map_pool pool;

static void setup(void)
{
	fds_mark();
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(fd, BYTES), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW), 0);
	pool = (struct map_pool){ .id = 1, .kind = GPUSHM_HOST, .numa_node = -1 };
}

static void teardown(void)
{
	close_fd(&fd);
	ck_assert_ptr_null(process()->maps);
	fds_check();
}

static struct map_request request_of(uint64_t buffer, bool write)
{
	return (struct map_request){ .pool = &pool,
				     .buffer = buffer,
				     .bytes = BYTES,
				     .allocated_bytes = BYTES,
				     .write = write,
				     .device = GPUSHM_OWN_DEVICE,
				     .fd = fd,
				     .server_uid = geteuid() };
}

static struct map *acquire(uint64_t buffer, bool write)
{
	struct map_request r = request_of(buffer, write);
	struct map *m = NULL;

	ck_assert_msg(map_acquire(&r, &m, &(int){ 0 }) == 0, "%s", gpushm_error());
	return m;
}

static bool is_mapped(const void *at)
{
	unsigned char pages[BYTES / 4096];

	return mincore((void *)at, BYTES, pages) == 0;
}

START_TEST(a_buffer_is_mapped_once_until_its_last_release)
{
	struct map *a = acquire(1, false), *b = acquire(1, false);
	void *at = a->host_ptr;

	ck_assert_ptr_eq(a, b);
	ck_assert_int_eq(map_release(a), 0);
	ck_assert(is_mapped(at));
	ck_assert_int_eq(map_release(b), 0);
	ck_assert(!is_mapped(at));
	ck_assert_int_eq(map_release(NULL), 0);
}
END_TEST

START_TEST(different_maps_are_kept_apart)
{
	struct map *maps[4];

	maps[0] = acquire(1, false);
	maps[1] = acquire(1, true);
	maps[2] = acquire(2, false);
	memset(pool.daemon, 1, sizeof(pool.daemon));
	maps[3] = acquire(1, false);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < i; k++)
			ck_assert_ptr_ne(maps[i]->host_ptr, maps[k]->host_ptr);
	ck_assert(maps[1]->writable && !maps[0]->writable);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(map_release(maps[i]), 0);
}
END_TEST

START_TEST(a_map_that_became_read_only_is_shared_with_readers)
{
	struct map *writer = acquire(1, true), *reader;

	*(char *)writer->host_ptr = 'x';
	ck_assert_int_eq(map_protect(writer), 0);
	ck_assert(!writer->writable);
	reader = acquire(1, false);
	ck_assert_ptr_eq(reader, writer);
	ck_assert_int_eq(map_protect(reader), 0);
	ck_assert_int_eq(map_synchronize(reader), 0);
	ck_assert_int_eq(map_release(writer), 0);
	ck_assert_int_eq(map_release(reader), 0);
}
END_TEST

START_TEST(a_map_that_failed_is_not_registered)
{
	struct map_request r = request_of(1, true);
	struct map *m = NULL;

	r.allocated_bytes = 2 * BYTES;
	ck_assert_int_eq(map_acquire(&r, &m, &(int){ 0 }), -EPROTO);
	ck_assert_ptr_null(m);
	ck_assert_ptr_null(process()->maps);
	ck_assert_int_eq(map_release(acquire(1, true)), 0);
}
END_TEST

START_TEST(a_pool_without_its_gpu_is_refused)
{
	struct map_request r = request_of(1, true);
	struct map *m = NULL;

	r.device = 0;
	ck_assert_int_eq(map_acquire(&r, &m, &(int){ 0 }), -ENODEV);
	r.device = GPUSHM_OWN_DEVICE;
	/* There is no driver, or no GPU of that UUID. */
	pool.kind = GPUSHM_VMM;
	pool.has_device = true;
	memset(pool.device_uuid, 0xee, sizeof(pool.device_uuid));
	ck_assert_int_eq(map_acquire(&r, &m, &(int){ 0 }), -ENODEV);
	ck_assert_str_ne(gpushm_error(), "");
	ck_assert_int_eq(map_device_ordinal(pool.device_uuid), -1);
	pool.kind = GPUSHM_MEMPOOL;
	ck_assert_int_eq(map_acquire(&r, &m, &(int){ 0 }), -ENODEV);
}
END_TEST

START_TEST(a_pointer_that_would_kill_its_importer_is_refused)
{
	struct map_request r = request_of(1, true);
	struct map *m = NULL;

	pool.kind = GPUSHM_MEMPOOL;
	r.allocated_bytes = (4ull << 30) + 1;
	if (map_acquire(&r, &m, &(int){ 0 }) == -ENODEV &&
	    strstr(gpushm_error(), "built without CUDA")) {
		printf("skipped: needs a build with CUDA\n");
		return;
	}
	ck_assert_int_eq(map_acquire(&r, &m, &(int){ 0 }), -EPROTO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "4 GiB"));
	ck_assert_ptr_null(m);
}
END_TEST

#define THREADS 8
#define ROUNDS 2000

static void *come_and_go(void *arg)
{
	const struct map_request r = request_of(1, true);

	for (int i = 0; i < ROUNDS; i++) {
		struct map *m = NULL;

		if (map_acquire(&r, &m, &(int){ 0 }) < 0)
			return (void *)"not mapped";
		/* Each thread writes a byte of its own; if the memory is unmapped, it gets a
		 * SIGSEGV. */
		((volatile char *)m->host_ptr)[(intptr_t)arg]++;
		if (map_release(m) < 0)
			return (void *)"not released";
	}
	return NULL;
}

START_TEST(threads_keep_each_others_memory_mapped)
{
	pthread_t threads[THREADS];
	struct map *m;
	void *wrong;

	for (intptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &wrong);
		ck_assert_msg(!wrong, "%s", (char *)wrong);
	}
	m = acquire(1, false);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(((unsigned char *)m->host_ptr)[i], ROUNDS % 256);
	ck_assert_int_eq(map_release(m), 0);
}
END_TEST

static int in_the_child(void *arg)
{
	const struct map *parents = arg;
	struct map_request r = request_of(1, true);
	struct map *m = NULL;

	if (process()->maps)
		return 1;
	if (map_acquire(&r, &m, &(int){ 0 }) < 0 || m->host_ptr == parents->host_ptr)
		return 2;
	return map_release(m) < 0 || !is_mapped(parents->host_ptr) ? 3 : 0;
}

START_TEST(a_forked_child_has_an_empty_and_unlocked_register)
{
	struct map *m = acquire(1, true);

	/* A child that inherited a locked lock would wait until it is killed. */
	pthread_mutex_lock(&process()->map_lock);
	ck_assert_int_eq(forked(in_the_child, m), 0);
	pthread_mutex_unlock(&process()->map_lock);
	ck_assert_int_eq(map_release(m), 0);
}
END_TEST

static int another_generation(void *arg)
{
	uint64_t generation = *(uint64_t *)arg, mine = process_generation();

	return mine == 0 || mine == generation || mine != process_generation();
}

START_TEST(a_forked_child_has_a_generation_of_its_own)
{
	uint64_t generation = process_generation();

	ck_assert_uint_ne(generation, 0);
	ck_assert_int_eq(forked(another_generation, &generation), 0);
	ck_assert_uint_eq(process_generation(), generation);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("map");

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_buffer_is_mapped_once_until_its_last_release);
	tcase_add_test(tc, different_maps_are_kept_apart);
	tcase_add_test(tc, a_map_that_became_read_only_is_shared_with_readers);
	tcase_add_test(tc, a_map_that_failed_is_not_registered);
	tcase_add_test(tc, a_pool_without_its_gpu_is_refused);
	tcase_add_test(tc, a_pointer_that_would_kill_its_importer_is_refused);
	tcase_add_test(tc, threads_keep_each_others_memory_mapped);
	tcase_add_test(tc, a_forked_child_has_an_empty_and_unlocked_register);
	tcase_add_test(tc, a_forked_child_has_a_generation_of_its_own);
	return suite_run("map", tc, NULL);
}
