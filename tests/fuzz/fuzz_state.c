/* SPDX-License-Identifier: MIT
 *
 * What one daemon leaves to the next: any bytes as its list of descriptors ('l' first), as its
 * journal ('j'), and as the records of one ('r'), which have their checksums then: each is a byte
 * of its type, two of its length (little endian), and its body.
 */
#include "daemon/state/fd_list.h"
#include "daemon/state/journal.h"
#include "daemon/state/replay.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/limits.h"
#include "tests/fuzz/mutate.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	log_open(LOG_EMERG);
	unsetenv("NOTIFY_SOCKET");
	return 0;
}

/* A memfd with these bytes. */
static int file_of(const void *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	return fd;
}

/* ---- the list of descriptors ---- */

/* What is accepted is what the list says, line by line. */
static void check_list(const struct fd_list *l, const char *text, size_t size, int list)
{
	const char *end = text + size;

	for (size_t i = 0; i < l->n; i++) {
		const struct named_fd *it = &l->items[i];
		char line[64];
		int n = snprintf(line, sizeof(line), "%s ", it->name);

		assert(it->fd > 2 && (it->fd == list || fcntl(it->fd, F_GETFD) == FD_CLOEXEC));
		assert(it->name[0] && strlen(it->name) <= FD_NAME_MAX);
		text = memchr(text, '\n', (size_t)(end - text));
		assert(text && ++text < end && strncmp(text, line, (size_t)n) == 0);
	}
}

static void fuzz_list(const unsigned char *data, size_t size)
{
	_cleanup_(fd_list_done) struct fd_list l = { 0 };
	_cleanup_(free_ptr) char *text = malloc(size + 1);
	int fd = file_of(data, size), r;
	char value[32];

	assert(text);
	memcpy(text, data, size);
	text[size] = '\0';
	snprintf(value, sizeof(value), "%d:%d", getpid(), fd);
	setenv("GPUSHM_MANIFEST", value, 1);
	assert(fd_list_is_passed());
	r = fd_list_receive(&l);
	assert(r == 1 || r == -EBADMSG);
	assert(!fd_list_is_passed() && fcntl(fd, F_GETFD) < 0);
	check_list(&l, text, size, fd);
}

/* ---- a journal ---- */

/* The next id is above all; above the largest number there is none. */
static bool is_below(uint64_t id, uint64_t next)
{
	return id < next || next == UINT64_MAX;
}

static void check_items(const struct replay *r, const struct list *list, uint16_t type)
{
	const struct item *it;

	list_foreach (it, list, link) {
		assert(it->type == type && it->message);
		assert(type != GPUSHM__JOURNAL__TYPE__TYPE_BUFFER ||
		       is_below(it->id, r->next_buffer));
		assert(type != GPUSHM__JOURNAL__TYPE__TYPE_LEASE ||
		       is_below(it->id, r->next_lease));
	}
}

/* No id is there twice. */
static void check_ids(const struct replay *r, const struct list *list)
{
	const struct item *it, *other;

	list_foreach (it, list, link)
		for (const struct list *at = it->link.next; at != list; at = at->next) {
			other = container_of(at, struct item, link);
			assert(other->id != it->id);
		}
}

static void check(const struct replay *r)
{
	const struct {
		const struct list *list;
		uint16_t type;
	} lists[] = {
		{ &r->pools, GPUSHM__JOURNAL__TYPE__TYPE_POOL },
		{ &r->buffers, GPUSHM__JOURNAL__TYPE__TYPE_BUFFER },
		{ &r->leases, GPUSHM__JOURNAL__TYPE__TYPE_LEASE },
		{ &r->streams, GPUSHM__JOURNAL__TYPE__TYPE_STREAM },
		{ &r->readers, GPUSHM__JOURNAL__TYPE__TYPE_READER },
	};

	assert(r->complete && r->daemon && r->daemon->id.len == DAEMON_ID_BYTES);
	for (size_t i = 0; i < array_size(lists); i++) {
		check_items(r, lists[i].list, lists[i].type);
		check_ids(r, lists[i].list);
	}
}

/* Replays it twice: the first time may wipe its end, and says the same. */
static void fuzz_fd(int fd)
{
	int first = 0;

	for (int i = 0; i < 2; i++) {
		struct named_fd one = { .name = "j1", .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3) };
		struct fdstore store = { .received = { .items = &one, .n = 1 } };
		uint64_t generation = 0;
		struct replay r;
		int e = replay(&store, &r, &generation);

		assert(e == 0 || e == -ENOENT);
		assert(i == 0 || e == first);
		assert(one.fd < 0);
		first = e;
		if (e < 0)
			continue;
		check(&r);
		replay_done(&r);
	}
}

static void fuzz_journal(const unsigned char *data, size_t size)
{
	_cleanup_(close_fd) int fd = file_of(data, size);

	fuzz_fd(fd);
}

/* The next record; false: there is none. */
static bool next_record(const unsigned char **at, size_t *left, uint16_t *ret_type, size_t *ret_n)
{
	if (*left < 3)
		return false;
	*ret_type = (*at)[0];
	*ret_n = (size_t)(*at)[1] | (size_t)(*at)[2] << 8;
	*at += 3;
	*left -= 3;
	*ret_n = *ret_n < *left ? *ret_n : *left;
	return true;
}

static void fuzz_records(const unsigned char *data, size_t size)
{
	_cleanup_(journal_done) struct journal j = JOURNAL_NONE;
	uint16_t type;
	size_t n;

	assert(journal_new(1, &j) == 0);
	while (next_record(&data, &size, &type, &n)) {
		int r = journal_append(&j, type, data, n);

		assert(r == (n == 0 || n > JOURNAL_BODY_MAX ? -EMSGSIZE : 0));
		data += n;
		size -= n;
	}
	/* A journal of 64 KiB takes its time. */
	assert(ftruncate(j.fd, (off_t)(j.used + 64)) == 0);
	fuzz_fd(j.fd);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	if (size > 0 && data[0] == 'l')
		fuzz_list(data + 1, size - 1);
	else if (size > 0 && data[0] == 'j')
		fuzz_journal(data + 1, size - 1);
	else if (size > 0 && data[0] == 'r')
		fuzz_records(data + 1, size - 1);
	return 0;
}

/* ---- mutations ---- */

/* By type; those of an id are alike. */
static const ProtobufCMessageDescriptor *const messages[] = {
	[GPUSHM__JOURNAL__TYPE__TYPE_DAEMON] = &gpushm__journal__daemon__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_COMPLETE] = &gpushm__journal__complete__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_POOL] = &gpushm__journal__pool__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_BUFFER] = &gpushm__journal__buffer__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_UNLINK] = &gpushm__journal__id__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_GONE] = &gpushm__journal__id__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_LEASE] = &gpushm__journal__lease__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_CLOSE] = &gpushm__journal__id__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_REFUSALS] = &gpushm__journal__refusals__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_RESTARTS] = &gpushm__journal__restarts__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_STREAM] = &gpushm__journal__stream__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_READER] = &gpushm__journal__reader__descriptor,
	[GPUSHM__JOURNAL__TYPE__TYPE_LEFT] = &gpushm__journal__id__descriptor,
};

/* Adds a record to the end: a message of this type that has been mutated some times. */
static size_t add_record(struct dice *d, uint8_t *data, size_t size, size_t max)
{
	uint8_t type = (uint8_t)(1 + dice_roll(d, array_size(messages) - 1));
	size_t room = max - size, n = 0;

	if (room < 4 || size == 0)
		return size;
	room = room - 3 < JOURNAL_BODY_MAX ? room - 3 : JOURNAL_BODY_MAX;
	for (uint32_t k = 1 + dice_roll(d, 4); k > 0; k--) {
		size_t m = mutate_message(d, messages[type], data + size + 3, n, room);

		n = m ? m : n;
	}
	data[size] = type;
	data[size + 1] = (uint8_t)n;
	data[size + 2] = (uint8_t)(n >> 8);
	return n ? size + 3 + n : size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	struct dice d = { seed };

	if (size == 0 || data[0] != 'r' || dice_roll(&d, 2))
		return LLVMFuzzerMutate(data, size, max_size);
	return add_record(&d, data, size, max_size);
}
