/* SPDX-License-Identifier: MIT
 *
 * What the pages of bad readers can do to a producer's calls: producer.c and pages.c over the real
 * words, with a daemon, a GPU and naps that are functions here, which the linker takes in place of
 * the archive's (-z muldefs). Seat 0 has an honest
 * `latest` reader, which holds nothing and is never dropped. No call ends in an error that says
 * that the daemon makes no sense, and no page goes while a GPU may wait for a word of it.
 *
 * The first byte says what the stream is like. Then there are ops: a byte, and of some more.
 */
#include "client/lib/link/request.h"
#include "client/lib/stream/pages.h"
#include "client/lib/stream/stream.h"
#include "client/lib/stream/wait.h"
#include "daemon/catalog/stream_words.h"
#include "proto/base/own.h"
#include "proto/stream_atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#define SLOTS 3u
#define SEATS 4u
#define PENDING_MAX 1024u

#define require(x) ((x) ? (void)0 : abort())

struct pending { /* a wait that a GPU may still do */
	const void *word;
	uint32_t slot;
	uint64_t seq;
};

static struct {
	const unsigned char *at, *end;
	struct stream_words words;
	struct gpushm conn;
	struct gpushm_buffer buffer;
	struct gpushm_stream stream;
	struct gpushm_frame frame;
	struct stream_reader_page *pages[SEATS]; /* as the readers have them; NULL: nobody */
	int files[SEATS];
	uint64_t joins;
	struct pending pending[PENDING_MAX];
	uint32_t n_pending;
} f;

static uint8_t take_byte(void)
{
	return f.at < f.end ? *f.at++ : 0;
}

/* ---- readers ---- */

static void join(uint32_t i, enum stream_follow follow)
{
	size_t bytes = stream_reader_bytes(SLOTS);
	struct stream_join how = {
		.generation = ++f.joins, .now_ns = 1, .max_held = 1, .follow = follow, .pid = 1
	};

	if (f.pages[i])
		return;
	f.files[i] = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	require(f.files[i] >= 0 && ftruncate(f.files[i], (off_t)bytes) == 0);
	require(fchmod(f.files[i], 0400) == 0);
	require(fcntl(f.files[i], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	f.pages[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f.files[i], 0);
	require(f.pages[i] != MAP_FAILED);
	stream_words_init_reader(&f.words, f.pages[i]);
	stream_words_join(&f.words, i, f.pages[i], &how);
}

static void leave(uint32_t i)
{
	if (!f.pages[i])
		return;
	if (f.words.head->seats[i].state == STREAM_SEAT_DROPPED)
		stream_words_free_seat(&f.words, i, f.pages[i]);
	else
		stream_words_leave(&f.words, i, f.pages[i]);
	munmap(f.pages[i], stream_reader_bytes(SLOTS));
	close(f.files[i]);
	f.pages[i] = NULL;
}

/* Words as the protocol has them, or any bytes. */
static void scribble(void)
{
	struct stream_reader_page *p = f.pages[1 + take_byte() % (SEATS - 1)];
	uint8_t kind = take_byte(), value = take_byte();
	struct stream_claim *c;

	if (!p)
		return;
	c = &p->claims[value % SLOTS];
	switch (kind % 4) {
	case 0:
		memset(p, value, value % 2 ? stream_reader_bytes(SLOTS) : 64);
		break;
	case 1:
		c->claim = stream_claim_word(1 + value / 4, STREAM_RELEASING);
		break;
	case 2:
		c->claim = stream_claim_word(1, (enum stream_claim_state)(kind / 4 % 3));
		break;
	default:
		((unsigned char *)p)[kind * 8 % stream_reader_bytes(SLOTS)] = value;
	}
}

/* ---- the daemon ---- */

int request_read_within(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request,
			int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
			void *to)
{
	Gpushm__Proto__PageReply page = GPUSHM__PROTO__PAGE_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;
	uint32_t i = request->page->page - STREAM_PAGE_READER;

	require(i < SEATS);
	if (!f.pages[i])
		return -ENOENT;
	page.page = request->page->page;
	page.bytes = stream_reader_bytes(SLOTS);
	page.generation = f.words.head->seats[i].generation;
	reply.page = &page;
	c->frame.fds[0] = f.files[i];
	return read(c, &reply, to);
}

int request_ack_within(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request)
{
	const Gpushm__Proto__Drop *m = request->drop;

	require(m->reader > 0 && m->reader < SEATS);
	if (!f.pages[m->reader] || f.words.head->seats[m->reader].generation != m->generation)
		return -ENOENT;
	if (f.words.head->seats[m->reader].state == STREAM_SEAT_TAKEN)
		stream_words_drop(&f.words, m->reader, f.pages[m->reader]);
	return 0;
}

int wait_for_daemon(struct gpushm_buffer *b, uint64_t ms, uint64_t *outage, bool *ret_busy)
{
	return *ret_busy = false;
}

int wait_check_daemon(struct gpushm_buffer *b, uint64_t *outage)
{
	return 0;
}

/* ---- naps ---- */

bool wait_words(const struct wait_word *words, size_t n, uint64_t ns)
{
	for (size_t i = 0; i < n; i++)
		(void)stream_load(words[i].word);
	scribble();
	return true;
}

void wait_wake(const _Atomic uint32_t *word)
{
	(void)stream_load(word);
}

bool wait_spin(struct wait_spin *spin)
{
	return spin->looks++ == 0;
}

uint64_t wait_next_step(struct wait_step *step)
{
	return step->ns = 1;
}

void notify_clear(struct gpushm_stream *s, uint64_t ns)
{
}

/* ---- the GPU ---- */

/* Ends the oldest frame that it has to fill; all waits before it are over. */
static bool gpu_runs(void)
{
	struct stream_slot *slot;
	uint64_t seq;
	uint32_t n = 0;

	if (f.n_pending == 0)
		return false;
	seq = f.pending[0].seq;
	slot = &f.words.head->slot[f.pending[0].slot];
	while (n < f.n_pending && f.pending[n].seq == seq)
		n++;
	if (stream_before(slot->ready, seq))
		slot->ready = seq;
	f.n_pending -= n;
	memmove(f.pending, f.pending + n, f.n_pending * sizeof(f.pending[0]));
	return true;
}

int map_synchronize(struct map *m)
{
	while (gpu_runs())
		;
	return 0;
}

int stream_register(struct gpushm_stream *s, struct order_page *p)
{
	p->address = (uintptr_t)p->host;
	return 0;
}

int order_unregister(struct order_page *p, int device)
{
	for (uint32_t i = 0; i < f.n_pending; i++)
		require((uintptr_t)f.pending[i].word - (uintptr_t)p->host >= p->bytes);
	p->address = 0;
	return 0;
}

/* ---- the producer ---- */

struct gpushm_frame *frame_new(struct gpushm_stream *s)
{
	f.frame = (struct gpushm_frame){ .stream = s };
	return &f.frame;
}

void frame_keep(struct gpushm_frame *frame)
{
}

void frame_free(struct gpushm_frame *frame)
{
}

uint64_t stream_spin_end(const struct gpushm_stream *s, uint64_t begun, uint64_t now,
			 uint64_t deadline)
{
	return now;
}

bool stream_is_idle(struct gpushm_stream *s, uint64_t begun, uint64_t ns)
{
	return false;
}

int stream_check_daemon(struct gpushm_stream *s)
{
	return -EAGAIN;
}

static void enqueue(const struct order_op *ops, size_t n, const struct writer_slot *slot)
{
	for (size_t i = 0; i < n; i++)
		f.pending[f.n_pending++] = (struct pending){ (void *)(uintptr_t)ops[i].address,
							     slot->slot, slot->seq };
	f.pending[f.n_pending++] = (struct pending){ NULL, slot->slot, slot->seq };
}

static void fill(bool on_host, uint64_t timeout_ms)
{
	struct writer_slot *slot = &f.stream.producer.slot;
	struct gpushm_frame *frame = NULL;
	struct order_op ops[ORDER_OPS_MAX];
	size_t n;
	int r = producer_begin(&f.stream, on_host, timeout_ms, ops, &n, &frame);

	require(r == 0 || r == -EAGAIN || r == -ETIMEDOUT || r == -ENOENT);
	if (r < 0)
		return;
	require(slot->slot < SLOTS && f.n_pending + n < PENDING_MAX);
	if (on_host)
		require(n == 0);
	else
		enqueue(ops, n, slot);
	if (take_byte() % 8 == 0) {
		producer_cancel(frame);
		return;
	}
	writer_publish(&f.stream.producer.writer, slot, on_host, 1, NULL, 0);
	f.stream.producer.filling = NULL;
}

/* ---- an input ---- */

static void begin(uint8_t kind)
{
	struct stream_words *w = &f.words;
	struct gpushm_stream *s = &f.stream;

	w->shape = (struct stream_shape){
		.slots = SLOTS, .readers = SEATS, .delivery = STREAM_AT_LEAST_ONCE, .slot_bytes = 1
	};
	w->head = calloc(1, stream_head_bytes(SLOTS, SEATS));
	w->group = calloc(1, stream_group_bytes(SLOTS));
	require(w->head && w->group);
	stream_words_init(w);
	stream_words_begin(w, 1);
	f.conn.server_uid = getuid();
	f.buffer = (struct gpushm_buffer){ .connection = &f.conn, .name = "s", .bytes = SLOTS };
	*s = (struct gpushm_stream){ .buffer = &f.buffer,
				     .is_producer = true,
				     .on_gpu = kind % 2,
				     .slots = SLOTS,
				     .readers = SEATS,
				     .slot_bytes = 1,
				     .limit_ms = kind % 4 < 2 ? 0 : UINT64_MAX,
				     .head = { .host = w->head } };
	pthread_mutex_init(&s->lock, NULL);
	require(writer_init(&s->producer.writer, w->head, w->group, SLOTS, SEATS) == 0);
	join(0, STREAM_LATEST);
}

static void do_op(uint8_t op)
{
	uint32_t bad = 1 + op / 8 % (SEATS - 1);

	switch (op % 8) {
	case 0:
	case 1:
		fill(true, op / 8 % 4 == 0);
		break;
	case 2:
		fill(!f.stream.on_gpu, op / 8 % 4 == 0);
		break;
	case 3:
		join(bad, (enum stream_follow)(STREAM_EVERY + op / 32 % 2));
		break;
	case 4:
		leave(bad);
		break;
	case 5:
		gpu_runs();
		break;
	default:
		scribble();
	}
}

static void end(void)
{
	map_synchronize(NULL);
	producer_done(&f.stream);
	for (uint32_t i = 0; i < SEATS; i++)
		leave(i);
	pthread_mutex_destroy(&f.stream.lock);
	free(f.words.group);
	free(f.words.head);
	memset(&f, 0, sizeof(f));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	f.at = data;
	f.end = data + size;
	begin(take_byte());
	for (int n = 0; f.at < f.end && n < 100; n++)
		do_op(take_byte());
	end();
	return 0;
}
