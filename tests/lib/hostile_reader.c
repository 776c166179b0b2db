/* SPDX-License-Identifier: MIT */
#include "tests/lib/hostile_reader.h"

#include "tests/lib/raw_stream.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

void hostile_reader_stays_away(const char *why)
{
	if (why)
		unsetenv("HOSTILE_READER");
}

static uint64_t any(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void scribble_numbers(struct stream_reader_page *p)
{
	p->taken = any();
	p->skipped = any();
	p->oldest = any();
	p->oldest_ns = any();
	p->held = (uint32_t)any();
}

/* `released` is never below what a claim waits for. */
static void scribble(struct stream_reader_page *p, uint32_t slots)
{
	struct stream_claim *c = &p->claims[any() % slots];

	switch (any() % 8) {
	case 0:
		p->magic = p->version = p->slots = (uint32_t)any();
		break;
	case 1:
		p->asleep = any() % 3;
		break;
	case 2:
		p->released_count = (uint32_t)any();
		break;
	case 3:
		p->cursor = any();
		break;
	case 4:
		scribble_numbers(p);
		break;
	case 5:
		c->claim = any() & ~3ull;
		break;
	case 6:
		c->released = STREAM_RELEASED_ALL + any() % STREAM_RELEASED_ALL;
		break;
	default:
		c->claim = stream_claim_word(1 + any() % STREAM_TICKETS, STREAM_RELEASING);
	}
}

static void wipe(struct stream_reader_page *p, uint32_t slots)
{
	memset(p, 0, stream_reader_bytes(slots));
	for (uint32_t i = 0; i < slots; i++)
		p->claims[i].released = STREAM_RELEASED_ALL;
}

/* Check's asserts work in the process of the test alone, and this may also be in a role. */
static void *map(struct raw *r, uint64_t lease, uint32_t page)
{
	int protection = page == STREAM_PAGE_HEAD ? PROT_READ : PROT_READ | PROT_WRITE;
	void *map = raw_page(r, lease, page) == 0 ? mmap(NULL, r->reply->page->bytes, protection,
							 MAP_SHARED, r->frame.fds[0], 0)
						  : MAP_FAILED;

	if (map == MAP_FAILED)
		_exit(1);
	return map;
}

static void read_badly(const char *socket, const char *name, int joined)
{
	struct stream_reader_page *page;
	struct stream_head *head;
	struct pollfd p = { .events = POLLIN };
	struct raw raw;
	uint64_t lease;
	uint32_t seat;

	raw_greet(&raw, socket);
	lease = raw_open(&raw, name);
	if (raw_join_as(&raw, lease, STREAM_LATEST, 1) != 0)
		return;
	seat = raw.reply->joined->reader;
	head = map(&raw, lease, STREAM_PAGE_HEAD);
	page = map(&raw, lease, STREAM_PAGE_READER + seat);
	wipe(page, head->slots);
	if (write(joined, "", 1) != 1)
		return;
	close(joined);
	p.fd = raw.socket;
	while (head->state != STREAM_ENDED && poll(&p, 1, 1) == 0)
		for (int i = 0; i < 16; i++)
			scribble(page, head->slots);
}

void hostile_reader_join(const char *socket, const char *name)
{
	int joined[2];
	char byte;

	if (!getenv("HOSTILE_READER") || pipe(joined) < 0)
		return;
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(joined[1], STDIN_FILENO);
		close_range(STDERR_FILENO + 1, ~0u, 0);
		read_badly(socket, name, STDIN_FILENO);
		_exit(0);
	}
	close(joined[1]);
	if (read(joined[0], &byte, 1) != 1) {
		fprintf(stderr, "no hostile reader joins \"%s\"\n", name);
		abort();
	}
	close(joined[0]);
}
