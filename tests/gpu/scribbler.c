/* SPDX-License-Identifier: MIT
 *
 * Both sides of a scribbler. It makes its context and loads its kernel before it gets its order, so
 * that a test can have some ready while it kills another one.
 */
#include "tests/gpu/scribbler.h"

#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/gpu/fixture.h"
#include "tests/gpu/kernels.h"

#include <check.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* ---- the process ---- */

static int complain(const char *what)
{
	fprintf(stderr, "scribbler: %s: %s\n", what, gpushm_error());
	return 1;
}

/* Writes as the kernel does, and checks only now and then whether it must stop. */
static void scribble_by_hand(const struct driver *gpu, int socket, CUdeviceptr words, uint64_t n,
			     unsigned value)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	char word[8];

	for (;;) {
		gpu->memset_d32(words, value, n);
		if (poll(&in, 1, 0) == 0)
			continue;
		if (read(STDIN_FILENO, word, sizeof(word)) <= 0)
			return;
		shutdown(socket, SHUT_RDWR);
	}
}

static int scribble(const struct driver *gpu, struct gpushm *conn, const char *order)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o) };
	struct gpushm_buffer *b = NULL;
	char name[64], pool[64], word[8];
	uint64_t bytes;
	unsigned value;
	bool kernels = driver_has_kernels(gpu);

	if (sscanf(order, "%63s %63s %" SCNu64 " %x", name, pool, &bytes, &value) != 4)
		return complain("order");
	o.pool = pool;
	if (gpushm_create(conn, name, bytes, &o, &b) < 0 || gpushm_publish(b, GPUSHM_SHARED) < 0)
		return complain("create");
	if (kernels && kernel_scribble(gpu, gpu_ptr(b), bytes / 4, value) != CUDA_SUCCESS)
		return complain("launch");
	puts("writing");
	if (kernels)
		_exit(fgets(word, sizeof(word), stdin) != NULL);
	scribble_by_hand(gpu, gpushm_fd(conn), gpu_ptr(b), bytes / 4, value);
	_exit(0);
}

int scribbler_role(char **args)
{
	struct driver gpu;
	struct gpushm *conn = NULL;
	char order[256];

	if (!driver_open(&gpu, 0) || gpushm_connect(args[0], &conn) < 0)
		return complain("connect");
	if (!kernels_load(&gpu))
		return complain("kernel");
	/* One character at a time: poll() must see what comes after the order. */
	setvbuf(stdin, NULL, _IONBF, 0);
	if (!fgets(order, sizeof(order), stdin))
		return 0;
	return scribble(&gpu, conn, order);
}

/* ---- the test ---- */

void scribbler_start(struct scribbler *s, const char *socket)
{
	*s = (struct scribbler){ .pidfd = -1 };
	role_start(&s->process, "scribbler", (const char *[]){ socket, NULL });
	s->pidfd = (int)syscall(SYS_pidfd_open, s->process.pid, 0);
	ck_assert_int_ge(s->pidfd, 0);
}

void scribbler_write(struct scribbler *s, const char *name, const char *pool, uint64_t bytes,
		     unsigned value)
{
	char line[256];

	snprintf(line, sizeof(line), "%s %s %" PRIu64 " %x", name, pool, bytes, value);
	role_write_line(&s->process, line);
	role_read_line(&s->process, line, sizeof(line));
	ck_assert_str_eq(line, "writing");
}

void scribbler_kill(struct scribbler *s, bool fake)
{
	s->killed = now_us();
	if (fake)
		role_write_line(&s->process, "die");
	else
		ck_assert_int_eq(kill(s->process.pid, SIGKILL), 0);
}

bool scribbler_has_gone(const struct scribbler *s)
{
	struct pollfd p = { .fd = s->pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

void scribbler_bury(struct scribbler *s)
{
	close_fd(&s->process.to);
}

void scribbler_end(struct scribbler *s)
{
	role_wait(&s->process);
	close_fd(&s->pidfd);
}
