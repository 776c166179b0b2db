/* SPDX-License-Identifier: MIT
 *
 * The kernel keeps how much of each GPU is used; a counter of ours would be wrong after a SIGKILL.
 * Each memfd with device memory holds an open-file-description lock far beyond its end. The lock's
 * start encodes the state, a number and the GPU; its length is the number of bytes. fcntl(2): such
 * a lock belongs to the open file, so it exists while any fd, any datagram in flight or any mapping
 * (a vma holds its file) refers to the file, and ends with the last of them. /proc/locks shows the
 * locks of all processes, with their ranges.
 *
 * Reading all locks for each allocation would be slow, so the state file has an upper bound, which
 * is corrected before it would refuse an allocation. The file is opened and flock()ed for each
 * access: no fd stays open, and a killed process can't leave it locked.
 */
#include "tests/fakecuda/fake_state.h"

#include "proto/base/own.h"
#include "tests/fakecuda/fake_device.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#define LOCK_MARK (1ull << 62)
#define LOCK_TAG(tag) (((uint64_t)(tag)&0x1fffffff) << 32)
#define LOCK_NUMBER(number) (((uint64_t)(number)&0xfffffff) << 4)
#define LOCK_GPU(start) ((unsigned int)((start)&0xf))

/* /proc/locks is read in pieces. Of what stands behind a lock that goes meanwhile, some can be
 * missed, and what stands before a new one comes twice. Several readings miss none together. */
#define READINGS 3

/* What the readings have seen. */
struct seen {
	struct seen_lock {
		unsigned long long start, end;
	} * locks;
	size_t n, room;
};

struct state {
	uint32_t tag; /* random; 0: the file is new */
	uint32_t next_number;
	uint64_t used[GPUS_MAX]; /* an upper bound of what is used */
};

static struct state private_state; /* without FAKECUDA_STATE */

bool state_path(char *path, size_t size)
{
	const char *name = getenv("FAKECUDA_STATE");

	if (!name || !*name)
		return false;
	snprintf(path, size, "%s%s", strchr(name, '/') ? "" : "/dev/shm/", name);
	return true;
}

static int open_state(const char *path)
{
	int fd;

	/* fs.protected_regular forbids O_CREAT on another user's file in a sticky folder. */
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		if (fd >= 0)
			fchmod(fd, 0666);
	}
	return fd;
}

/* Locks and reads the state. The fd for state_leave(), -1 for the private one, or -errno. */
static int state_enter(struct state *ret)
{
	_cleanup_(close_fd) int fd = -1;
	char path[PATH_MAX];

	*ret = private_state;
	if (state_path(path, sizeof(path))) {
		*ret = (struct state){ 0 };
		fd = open_state(path);
		if (fd < 0 || flock(fd, LOCK_EX) < 0 || pread(fd, ret, sizeof(*ret), 0) < 0)
			return -errno - 1;
	}
	while (!LOCK_TAG(ret->tag))
		if (getrandom(&ret->tag, sizeof(ret->tag), 0) < 0)
			return -errno - 1;
	return take_fd(&fd);
}

static void state_leave(int fd, const struct state *state)
{
	if (fd < 0)
		private_state = *state;
	else if (pwrite(fd, state, sizeof(*state), 0) != sizeof(*state))
		abort();
	close_fd(&fd);
}

static void see(struct seen *seen, const struct seen_lock *lock)
{
	if (seen->n == seen->room) {
		seen->room = seen->room ? 2 * seen->room : 64;
		seen->locks = reallocarray(seen->locks, seen->room, sizeof(seen->locks[0]));
		if (!seen->locks)
			abort();
	}
	seen->locks[seen->n++] = *lock;
}

static void read_locks(uint32_t tag, struct seen *ret)
{
	FILE *locks = fopen("/proc/locks", "re");
	struct seen_lock one;
	char line[256];

	if (!locks) {
		dprintf(STDERR_FILENO, "fakecuda: abort: can't read /proc/locks: %m\n");
		abort();
	}
	while (fgets(line, sizeof(line), locks)) {
		if (sscanf(line, "%*d: OFDLCK %*s %*s %*d %*s %llu %llu", &one.start, &one.end) !=
		    2)
			continue;
		if ((one.start & ~0xffffffffull) == (LOCK_MARK | LOCK_TAG(tag)) &&
		    LOCK_GPU(one.start) < GPUS_MAX)
			see(ret, &one);
	}
	fclose(locks);
}

/* By start, and the longer of two first: a claim may shrink between two readings. */
static int in_order(const void *a, const void *b)
{
	const struct seen_lock *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->end > y->end ? -1 : x->end < y->end;
}

/* No claim grows meanwhile: the state is locked. */
static void state_correct(struct state *state)
{
	struct seen seen = { 0 };

	if (is_broken("freed"))
		return;
	for (int i = 0; i < READINGS; i++)
		read_locks(state->tag, &seen);
	if (seen.n)
		qsort(seen.locks, seen.n, sizeof(seen.locks[0]), in_order);
	memset(state->used, 0, sizeof(state->used));
	for (size_t i = 0; i < seen.n; i++)
		if (!i || seen.locks[i].start != seen.locks[i - 1].start)
			state->used[LOCK_GPU(seen.locks[i].start)] +=
				seen.locks[i].end - seen.locks[i].start + 1;
	free(seen.locks);
}

static CUresult lock_range(int fd, short type, uint64_t start, uint64_t bytes)
{
	struct flock range = { .l_type = type, .l_start = start, .l_len = bytes };

	return fcntl(fd, F_OFD_SETLK, &range) < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static CUresult claim_more(int fd, struct state *state, struct claim *claim, uint64_t more)
{
	if (state->used[claim->gpu] + more > device_bytes())
		state_correct(state);
	if (state->used[claim->gpu] + more > device_bytes())
		return CUDA_ERROR_OUT_OF_MEMORY;

	if (!claim->start)
		claim->start = LOCK_MARK | LOCK_TAG(state->tag) |
			       LOCK_NUMBER(state->next_number++) | claim->gpu;
	state->used[claim->gpu] += more;
	return lock_range(fd, F_WRLCK, claim->start + claim->bytes, more);
}

CUresult state_claim(int fd, struct claim *claim, uint64_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	struct state state;
	int state_fd = state_enter(&state);

	if (state_fd < -1)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (bytes > claim->bytes)
		result = claim_more(fd, &state, claim, bytes - claim->bytes);
	else if (bytes < claim->bytes)
		result = lock_range(fd, F_UNLCK, claim->start + bytes, claim->bytes - bytes);
	state_leave(state_fd, &state);

	if (result == CUDA_SUCCESS)
		claim->bytes = bytes;
	return result;
}

uint64_t state_used(unsigned int gpu)
{
	struct state state;
	int state_fd = state_enter(&state);

	if (state_fd < -1)
		return 0;
	state_correct(&state);
	state_leave(state_fd, &state);
	return state.used[gpu];
}
