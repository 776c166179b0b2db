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
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#define LOCK_MARK (1ull << 62)
#define LOCK_TAG(tag) (((uint64_t)(tag)&0x1fffffff) << 32)
#define LOCK_NUMBER(number) (((uint64_t)(number)&0xfffffff) << 4)
#define LOCK_GPU(start) ((unsigned int)((start)&0xf))

/* Entries that stand behind one that is removed while /proc/locks is read in pieces can be missed;
 * the largest of several readings misses none. */
#define READINGS 3

struct state {
	uint32_t tag; /* random; 0: the file is new */
	uint32_t next_number;
	uint64_t used[GPUS_MAX]; /* an upper bound of what is used */
};

static struct state private_state; /* without FAKECUDA_STATE */

static int open_state(const char *name)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s%s", strchr(name, '/') ? "" : "/dev/shm/", name);
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
	const char *name = getenv("FAKECUDA_STATE");
	_cleanup_(close_fd) int fd = -1;

	*ret = private_state;
	if (name && *name) {
		*ret = (struct state){ 0 };
		fd = open_state(name);
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

static void read_locks(uint32_t tag, uint64_t used[GPUS_MAX])
{
	FILE *locks = fopen("/proc/locks", "re");
	unsigned long long start, end;
	char line[256];

	if (!locks) {
		dprintf(STDERR_FILENO, "fakecuda: abort: can't read /proc/locks: %m\n");
		abort();
	}
	memset(used, 0, GPUS_MAX * sizeof(used[0]));
	while (fgets(line, sizeof(line), locks)) {
		if (sscanf(line, "%*d: OFDLCK %*s %*s %*d %*s %llu %llu", &start, &end) != 2)
			continue;
		if ((start & ~0xffffffffull) == (LOCK_MARK | LOCK_TAG(tag)) &&
		    LOCK_GPU(start) < GPUS_MAX)
			used[LOCK_GPU(start)] += end - start + 1;
	}
	fclose(locks);
}

static void state_correct(struct state *state)
{
	uint64_t used[GPUS_MAX];

	memset(state->used, 0, sizeof(state->used));
	for (int i = 0; i < READINGS; i++) {
		read_locks(state->tag, used);
		for (int gpu = 0; gpu < GPUS_MAX; gpu++)
			if (used[gpu] > state->used[gpu])
				state->used[gpu] = used[gpu];
	}
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
