/* SPDX-License-Identifier: MIT
 *
 * Appending to, and reading, a journal. The process may be killed between any two instructions;
 * memory that it wrote stays in the order in which it wrote it. So the body goes first, and the
 * record's head with its checksum last: until the head is there the log ends before it. There is no
 * count of records that could be wrong. A reader trusts nothing: lengths are checked
 * against the file before anything is touched.
 */
#include "daemon/state/journal.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC 0x4c4e4a4d48535047u /* "GPSHMJNL" */
#define BYTES_MIN ((size_t)64 << 10)
#define BYTES_MAX ((size_t)1 << 30)

struct journal_header {
	uint64_t magic;
	uint32_t version, header_bytes;
	uint64_t generation;
};

struct journal_record {
	uint32_t crc;
	uint16_t type, reserved;
	uint32_t len; /* of the body, without padding; the record is there once this is not 0 */
	uint32_t zero;
	uint64_t sequence;
};
_Static_assert(sizeof(struct journal_header) == 24 && sizeof(struct journal_record) == 24,
	       "the image's layout");

static size_t padded(size_t len)
{
	return (len + 7) & ~(size_t)7;
}

/* ---- the checksum ---- */

#define STRIDE 8u /* bytes at a time: a byte at a time was most of what a record cost */

struct crc_tables {
	uint32_t of[STRIDE][256]; /* the remainder of a byte with so many zeros behind it */
};

/* Made on first use: the loop's thread is the only one that writes a journal. */
static const struct crc_tables *crc_tables(void)
{
	static struct crc_tables t;

	if (t.of[0][1])
		return &t;
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (0x82f63b78u & -(crc & 1));
		t.of[0][byte] = crc;
	}
	for (unsigned zeros = 1; zeros < STRIDE; zeros++)
		for (uint32_t byte = 0; byte < 256; byte++) {
			uint32_t crc = t.of[zeros - 1][byte];

			t.of[zeros][byte] = (crc >> 8) ^ t.of[0][crc & 0xff];
		}
	return &t;
}

static uint32_t crc_bytes(uint32_t crc, const void *data, size_t len)
{
	const struct crc_tables *t = crc_tables();
	const unsigned char *p = data;

	for (; len >= STRIDE; len -= STRIDE, p += STRIDE) {
		uint32_t w[2]; /* little endian, as the image is */

		memcpy(w, p, sizeof(w));
		w[0] ^= crc;
		crc = t->of[7][w[0] & 0xff] ^ t->of[6][w[0] >> 8 & 0xff] ^
		      t->of[5][w[0] >> 16 & 0xff] ^ t->of[4][w[0] >> 24] ^ t->of[3][w[1] & 0xff] ^
		      t->of[2][w[1] >> 8 & 0xff] ^ t->of[1][w[1] >> 16 & 0xff] ^
		      t->of[0][w[1] >> 24];
	}
	for (; len > 0; len--, p++)
		crc = (crc >> 8) ^ t->of[0][(crc ^ *p) & 0xff];
	return crc;
}

static uint32_t crc_of(const struct journal_record *r, const void *body)
{
	uint32_t crc = crc_bytes(~0u, &r->type, sizeof(r->type));

	crc = crc_bytes(crc, &r->len, sizeof(r->len));
	crc = crc_bytes(crc, &r->sequence, sizeof(r->sequence));
	return ~crc_bytes(crc, body, r->len);
}

/* ---- the file ---- */

static int map_whole(struct journal *j, size_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, j->fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	if (j->map)
		munmap(j->map, j->bytes);
	j->map = map;
	j->bytes = bytes;
	return 0;
}

static int resize(struct journal *j, size_t bytes)
{
	if (bytes > BYTES_MAX)
		return -ENOMEM;
	/* Allocated now, so that no later write to the mapping can fail with SIGBUS. */
	if (fallocate(j->fd, 0, 0, (off_t)bytes) < 0)
		return errno == ENOSPC ? -ENOMEM : -errno;
	return map_whole(j, bytes);
}

void journal_done(struct journal *j)
{
	if (j->map)
		munmap(j->map, j->bytes);
	close_fd(&j->fd);
	*j = JOURNAL_NONE;
}

int journal_new(uint64_t generation, struct journal *ret)
{
	_cleanup_(journal_done) struct journal j = JOURNAL_NONE;
	const struct journal_header header = { MAGIC, JOURNAL_VERSION,
					       sizeof(struct journal_header), generation };
	int r;

	j.fd = memfd_create("gpushm-journal", MFD_CLOEXEC);
	if (j.fd < 0 || fchmod(j.fd, 0600) < 0)
		return -errno;
	r = resize(&j, BYTES_MIN);
	if (r < 0)
		return r;
	memcpy(j.map, &header, sizeof(header));
	j.used = sizeof(header);
	j.generation = generation;
	*ret = j;
	j = JOURNAL_NONE;
	return 0;
}

static int check_header(struct journal *j)
{
	struct journal_header header;

	memcpy(&header, j->map, sizeof(header));
	if (header.magic != MAGIC || header.header_bytes < sizeof(header) ||
	    header.header_bytes > j->bytes || header.header_bytes % 8 != 0)
		return -EBADMSG;
	if (header.version < JOURNAL_VERSION_OLDEST || header.version > JOURNAL_VERSION)
		return -EPROTONOSUPPORT;
	j->used = header.header_bytes;
	j->generation = header.generation;
	return 0;
}

uint32_t journal_version(int fd)
{
	struct journal_header header = { 0 };

	return pread(fd, &header, sizeof(header), 0) == sizeof(header) ? header.version : 0;
}

int journal_adopt(int *fd, struct journal *ret)
{
	_cleanup_(journal_done) struct journal j = JOURNAL_NONE;
	struct stat st;
	int r;

	if (fstat(*fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct journal_header) ||
	    st.st_size > (off_t)BYTES_MAX)
		return -EBADMSG;
	j.fd = take_fd(fd);
	r = map_whole(&j, (size_t)st.st_size);
	if (r == 0)
		r = check_header(&j);
	if (r < 0) {
		*fd = take_fd(&j.fd);
		return r;
	}
	*ret = j;
	j = JOURNAL_NONE;
	return 0;
}

/* ---- records ---- */

/* One empty head is always left behind the last record: it ends the log. */
static int make_space(struct journal *j, size_t len)
{
	size_t whole = 2 * sizeof(struct journal_record) + padded(len);

	while (j->used + whole > j->bytes) {
		int r = resize(j, j->bytes * 2);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The head goes last: without it the log ends before the record. */
int journal_append(struct journal *j, uint16_t type, const void *body, size_t len)
{
	struct journal_record head = { .type = type,
				       .len = (uint32_t)len,
				       .sequence = j->sequence + 1 };
	unsigned char *at;
	int r;

	if (len == 0 || len > JOURNAL_BODY_MAX)
		return -EMSGSIZE;
	r = make_space(j, len);
	if (r < 0)
		return r;
	at = j->map + j->used;
	head.crc = crc_of(&head, body);
	memcpy(at + sizeof(head), body, len);
	memset(at + sizeof(head) + len, 0, padded(len) - len);
	atomic_signal_fence(memory_order_seq_cst);
	memcpy(at, &head, sizeof(head));
	atomic_signal_fence(memory_order_seq_cst);
	j->used += sizeof(head) + padded(len);
	j->sequence++;
	return 0;
}

static bool read_record(const struct journal *j, struct journal_record *ret)
{
	if (j->bytes - j->used < sizeof(*ret))
		return false;
	memcpy(ret, j->map + j->used, sizeof(*ret));
	return ret->len > 0 && ret->len <= JOURNAL_BODY_MAX &&
	       j->bytes - j->used - sizeof(*ret) >= padded(ret->len) &&
	       ret->sequence == j->sequence + 1 &&
	       ret->crc == crc_of(ret, j->map + j->used + sizeof(*ret));
}

/* What stands behind the last valid record is wiped, so that no later append makes it valid again.
 */
static size_t wipe_rest(struct journal *j)
{
	size_t end = j->bytes;

	while (end > j->used && j->map[end - 1] == 0)
		end--;
	memset(j->map + j->used, 0, end - j->used);
	return end - j->used;
}

int journal_replay(struct journal *j,
		   int (*on_record)(uint16_t type, const void *body, size_t len, void *arg),
		   void *arg, size_t *ret_dropped)
{
	struct journal_record head;
	int r = 0;

	while (r == 0 && read_record(j, &head)) {
		r = on_record(head.type, j->map + j->used + sizeof(head), head.len, arg);
		j->used += sizeof(head) + padded(head.len);
		j->sequence = head.sequence;
	}
	/* After an error the caller may read the rest later. */
	*ret_dropped = r == 0 ? wipe_rest(j) : 0;
	return r;
}
