/* SPDX-License-Identifier: MIT
 *
 * The shared memory of the comparison.
 */
#include "tests/bench/streams/board.h"

#include <err.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct board *board_map(int fd)
{
	struct board *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

	if (b == MAP_FAILED)
		err(1, "the shared board");
	return b;
}

struct board *board_new(int *ret_fd)
{
	*ret_fd = memfd_create("streams-board", MFD_CLOEXEC);
	if (*ret_fd < 0 || ftruncate(*ret_fd, sizeof(struct board)) < 0)
		err(1, "the shared board");
	return board_map(*ret_fd);
}

void board_reset(struct board *b, const struct job *job)
{
	b->job = *job;
	b->n_samples = 0;
	b->error[0] = '\0';
	atomic_store(&b->arrived, 0);
	atomic_store(&b->turn, 0);
	atomic_store(&b->failed, 0);
	atomic_store(&b->done, 0);
	atomic_store(&b->stop, 0);
	atomic_store(&b->longest_ns, 0);
	atomic_store(&b->longest_end_ns, 0);
	memset(b->words, 0, sizeof(b->words));
}

void board_meet(struct board *b)
{
	unsigned turn = atomic_load(&b->turn);

	if (atomic_fetch_add(&b->arrived, 1) + 1 == b->job.sides) {
		atomic_store(&b->arrived, 0);
		atomic_store(&b->turn, turn + 1);
		return;
	}
	while (atomic_load(&b->turn) == turn)
		usleep(20);
}

void board_await(struct board *b, uint64_t frame)
{
	while (atomic_load(&b->done) < frame)
		usleep(20);
}

void board_add(struct board *b, double sample)
{
	if (b->n_samples < FRAMES_MAX)
		b->samples[b->n_samples++] = sample;
}
