/* SPDX-License-Identifier: MIT
 *
 * PyTorch writes to read-only memory without a question, and Python has no exception for the
 * SIGSEGV that follows. The handler here says on stderr which buffer and which array it was, and
 * then lets the signal do what it would have done.
 *
 * In the handler the GIL may be anybody's. So it reads a table of its own, whose entries are
 * written before their start is; it takes no lock and no memory, and calls writev() and sigaction()
 * alone. Once the address is in a buffer, the process ends in any case.
 */
#include "client/python/core/write_fault.h"

#include "client/gpushm_memory.h"
#include "client/gpushm_private.h"
#include "proto/base/own.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define WATCHED_MAX 256 /* buffers; writes to more are not explained */

struct watched {
	_Atomic uintptr_t start; /* 0: the entry is free */
	uint64_t bytes;
	const struct gpushm_buffer *buffer; /* borrowed */
};

static struct watched watched[WATCHED_MAX]; /* written with the GIL */
static struct sigaction before;

/* ---- the handler ---- */

static struct iovec text(const char *s)
{
	return (struct iovec){ (char *)s, strlen(s) };
}

static void explain(const struct gpushm_buffer *b, uint64_t offset)
{
	const char *array = "";
	size_t n = gpushm_private_array_with(b, offset, &array);
	bool away = gpushm_buffer_suspended(b) == 1;
	const struct iovec said[] = {
		text(away ? "gpushm: a use of " : "gpushm: a write to "),
		text(n ? "array \"" : ""),
		{ (char *)array, n },
		text(n ? "\" of buffer \"" : "buffer \""),
		text(gpushm_buffer_name(b)),
		text(away ? "\", which this process has suspended, ends it: resume() comes first.\n"
			  : "\", whose memory is read-only here and shared with other processes, "
			    "ends this one. Write to a copy: tensor.clone(), or "
			    "gpushm.torch.attach(writable=...); a module that writes in training "
			    "mode, as BatchNorm does, needs eval().\n"),
	};

	if (writev(STDERR_FILENO, said, array_size(said)) < 0)
		return; /* there is nobody to tell */
}

/* A handler of the program's stays the next one. Without one the signal has its own effect: the
 * write is tried again when this handler returns, and a signal that was sent is sent again. */
static void pass_on(int number, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(number);
	} else {
		sigaction(number, &before, NULL);
		if (info->si_code <= 0)
			raise(number);
	}
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;

	for (size_t i = 0; info->si_code == SEGV_ACCERR && i < WATCHED_MAX; i++) {
		uintptr_t start = watched[i].start;

		if (start && at - start < watched[i].bytes)
			explain(watched[i].buffer, at - start);
	}
	pass_on(number, info, context);
}

/* ---- what is watched ---- */

static void install(void)
{
	static bool done;
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	const char *wanted = getenv("GPUSHM_SIGSEGV");

	if (!done && (!wanted || strcmp(wanted, "0") != 0))
		sigaction(SIGSEGV, &action, &before);
	done = true;
}

void write_fault_watch(const struct gpushm_buffer *b)
{
	uintptr_t start = (uintptr_t)gpushm_buffer_host_ptr(b);
	size_t i = 0;

	while (i < WATCHED_MAX && watched[i].start)
		i++;
	if (!start || i == WATCHED_MAX)
		return;
	install();
	watched[i].bytes = gpushm_buffer_bytes(b);
	watched[i].buffer = b;
	watched[i].start = start;
}

void write_fault_forget(const struct gpushm_buffer *b)
{
	for (size_t i = 0; i < WATCHED_MAX; i++)
		if (watched[i].start && watched[i].buffer == b)
			watched[i].start = 0;
}
