/* SPDX-License-Identifier: MIT
 *
 * What all lanes have: their ends, and messages between them.
 */
#include "tests/bench/streams/lane.h"

#include "proto/base/own.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const struct lane_ops *const kinds[] = {
	[LANE_STREAM] = &lane_stream, [LANE_WORDS] = &lane_words, [LANE_FUTEX] = &lane_futex,
	[LANE_EVENTS] = &lane_events, [LANE_PIPES] = &lane_pipes, [LANE_NAME] = &lane_name,
	[LANE_SOCKET] = &lane_socket,
};

static const struct {
	unsigned producer, reader;
} ends[LANES] = { { 0, 1 }, { 1, 2 }, { 1, 0 } };

static bool has_end(unsigned used, unsigned i, bool producer)
{
	return used >> i & 1 && (producer ? ends[i].producer : ends[i].reader) == side.index;
}

static void prepare(struct lane *l, unsigned i)
{
	unsigned char *words = side.board->words[i];

	*l = (struct lane){ .ops = kinds[side.board->job.lane], .index = i };
	l->producer = ends[i].producer == side.index;
	l->socket = LANE_FD + 2 * (int)i + !l->producer;
	l->posted = (_Atomic uint64_t *)words;
	l->returned = (_Atomic uint64_t *)(words + 4096);
	l->gpu_posted = gpu.board + i * WORDS_BYTES;
	l->gpu_returned = l->gpu_posted + 4096;
}

void lanes_open(struct lane *lanes, unsigned used)
{
	for (int producer = 1; producer >= 0; producer--) {
		for (unsigned i = 0; i < LANES; i++) {
			if (!has_end(used, i, producer))
				continue;
			prepare(&lanes[i], i);
			lanes[i].ops->open(&lanes[i]);
		}
		board_meet(side.board);
	}
	for (unsigned i = 0; i < LANES; i++)
		if (has_end(used, i, true) && lanes[i].ops->ready)
			lanes[i].ops->ready(&lanes[i]);
	board_meet(side.board);
}

/* The readers are the first, as in most programs. */
void lanes_close(struct lane *lanes, unsigned used)
{
	work_wait();
	board_meet(side.board);
	for (int producer = 0; producer <= 1; producer++) {
		for (unsigned i = 0; i < LANES; i++)
			if (has_end(used, i, producer))
				lanes[i].ops->close(&lanes[i]);
		board_meet(side.board);
	}
}

const char *lane_label(const struct lane *l)
{
	static char label[48];

	snprintf(label, sizeof(label), "bench/%u.%u", side.board->job.serial, l->index);
	return label;
}

const char *lane_pool(void)
{
	return side.board->job.gpu ? "gpu" : "host";
}

uintptr_t lane_address(const struct gpushm_buffer *b)
{
	return (uintptr_t)(side.board->job.gpu ? gpushm_buffer_device_ptr(b)
					       : gpushm_buffer_host_ptr(b));
}

void lane_send(const struct lane *l, const void *data, size_t n, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec io = { (void *)(uintptr_t)data, n };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *h = (struct cmsghdr *)control;

		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	}
	if (sendmsg(l->socket, &m, MSG_NOSIGNAL) != (ssize_t)n)
		side_fail("a message to the other end: %s", strerror(errno));
}

void lane_receive(const struct lane *l, void *data, size_t n, int *ret_fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec io = { data, n };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int flags = MSG_CMSG_CLOEXEC | (side.board->job.spin ? MSG_DONTWAIT : 0);
	struct cmsghdr *h;
	ssize_t r;

	do
		r = recvmsg(l->socket, &m, flags);
	while (r < 0 && errno == EAGAIN);
	if (r != (ssize_t)n)
		side_fail("a message from the other end: %s", r < 0 ? strerror(errno) : "it ended");
	h = CMSG_FIRSTHDR(&m);
	if (ret_fd && h)
		memcpy(ret_fd, CMSG_DATA(h), sizeof(*ret_fd));
}
