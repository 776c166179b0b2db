/* SPDX-License-Identifier: MIT
 *
 * Protection on a real GPU: a write through a read-only mapping harms only the writer; a size that
 * an importer would not survive; and what one user's memory shows to the next.
 */
#include "proto/base/own.h"
#include "tests/gpu/fixture.h"
#include "tests/gpu/kernels.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static int complain(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, gpushm_error());
	return 1;
}

/* socket name how: opens for reading and still writes, by the driver or by a kernel. Exits with 0
 * if the write was refused, 1 if it succeeded. */
static int violate_role(char **args)
{
	struct driver gpu;
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (!driver_open(&gpu, 0) || !kernels_load(&gpu) || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_READ, 0, NULL, &b) < 0)
		return complain("open") + 1;
	if (strcmp(args[2], "memset") == 0)
		return gpu.memset_d8(gpu_ptr(b), 1, 4096) == CUDA_SUCCESS;
	if (strcmp(args[2], "kernel") == 0)
		return kernel_store(&gpu, gpu_ptr(b), 1) == CUDA_SUCCESS;
	*(volatile unsigned *)gpushm_buffer_host_ptr(b) = 1;
	return 1;
}

static const struct role roles[] = { { "violate", violate_role } };

/* A write through a read-only mapping is refused or kills its process; the data and all others are
 * unharmed. */
static void violate(enum gpushm_kind kind, const char *how)
{
	struct gpushm_buffer *b = gpu_create(kind, "sealed", 2 * MIB);
	const char *args[] = { d.socket, "sealed", how, NULL };
	const unsigned word = 0x600dda7a;
	struct role_process offender;
	unsigned got = 0;
	int status;

	ck_assert_int_eq(gpushm_write(b, 0, &word, 4), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	role_start(&offender, "violate", args);
	status = role_wait(&offender);
	printf("figure: %s through a read-only mapping: %s %d\n", how,
	       WIFSIGNALED(status) ? "died of signal" : "refused, exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	if (strcmp(how, "cpu") == 0)
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	else
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(gpushm_read(b, 0, &got, 4), 0);
	ck_assert_uint_eq(got, word);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "sealed"), 0);
}

START_TEST(a_write_through_a_read_only_mapping_fails)
{
	violate(GPUSHM_VMM, "memset");
	violate(GPUSHM_VMM, "kernel");
	violate(GPUSHM_PINNED, "memset");
	violate(GPUSHM_PINNED, "kernel");
	violate(GPUSHM_PINNED, "cpu");
	violate(GPUSHM_HOST, "cpu");
}
END_TEST

START_TEST(a_mempool_refuses_buffers_of_more_than_4_gib)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o) };
	struct gpushm_buffer *b = NULL;

	o.pool = gpu_pool(GPUSHM_MEMPOOL);
	ck_assert_int_eq(gpushm_create(c, "~/huge", 4 * GIB + 1, &o, &b), -EFBIG);
	printf("figure: %s\n", gpushm_error());
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "vmm"));
	b = gpu_create(GPUSHM_MEMPOOL, "~/large", 4 * GIB);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

/* The next user must not see what the last user of a mempool block wrote. */
START_TEST(a_reused_mempool_block_is_zeroed)
{
	const size_t n = 64 * MIB;
	_cleanup_(free_ptr) unsigned char *got = malloc(n), *zero = calloc(n, 1);

	for (int round = 0; round < 6; round++) {
		struct gpushm_buffer *b = gpu_create(GPUSHM_MEMPOOL, "~/tenant", n);

		ck_assert_int_eq(gpushm_read(b, 0, got, n), 0);
		ck_assert_msg(memcmp(got, zero, n) == 0, "round %d", round);
		memset(got, 0xee, n);
		ck_assert_int_eq(gpushm_write(b, 0, got, n), 0);
		ck_assert_int_eq(gpushm_discard(b), 0);
	}
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = { a_write_through_a_read_only_mapping_fails,
				       a_mempool_refuses_buffers_of_more_than_4_gib,
				       a_reused_mempool_block_is_zeroed };

	return gpu_main(argc, argv, "gpu_walls", roles, array_size(roles), tests,
			array_size(tests));
}
