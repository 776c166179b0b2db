/* SPDX-License-Identifier: MIT
 *
 * The frame of the operations: the daemon and its supervisor, the processes, the connections, the
 * start and the end of a sequence, and receiving the replies that are due.
 */
#include "tests/model/play.h"

#include "proto/base/own.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { ALICE = 65531, BOB = 65532, MALLORY = 65529, FAMILY = 65530, STRANGERS = 65533 };

/* The actors: root, two processes of one user, another user of her group, a stranger. */
static const struct {
	uid_t uid;
	gid_t gid;
} people[ACTORS] = {
	{ 0, 0 }, { ALICE, FAMILY }, { ALICE, FAMILY }, { BOB, FAMILY }, { MALLORY, STRANGERS }
};

/* The limits are the model's; each pool has space for eight of its smallest buffers. */
#define PENDING "pending-max-age=3600\n"
static const char config[] =
	"[daemon]\ndefault-pool=host\nkeep=0\nyield-timeout=0\n"
	"[limits]\nmax-buffers=7\nmax-leases=9\nmax-connections=3\nmax-bytes=14M\n"
	"max-pool-share=75%\n"
	"[pool host]\nkind=host\nsize=32K\n" PENDING "[pool gpu0]\nkind=vmm\nsize=16M\n" PENDING
	"[pool pinned]\nkind=pinned\nsize=16M\n" PENDING
	"[pool mem]\nkind=mempool\nsize=4K\n" PENDING "allow-users=65531 65532\n";

static const struct {
	enum model_kind kind;
	const char *name;
} pools[] = { { MODEL_HOST, "host" },
	      { MODEL_VMM, "gpu0" },
	      { MODEL_PINNED, "pinned" },
	      { MODEL_MEMPOOL, "mem" } };

#define CLOCK_NS 9000000000u

struct outcome *outcome;

uint64_t play_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The daemon frees pending memory after ten seconds without a request: the result of a sequence
 * that takes so long is undefined. */
void play_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(outcome->text, sizeof(outcome->text), format, args);
	va_end(args);
	outcome->disturbed = play_now_ns() - outcome->began_ns > CLOCK_NS;
	_exit(1);
}

void play_tell(const struct play *p, const char *format, ...)
{
	va_list args;

	if (!p->tells)
		return;
	printf("  %2u. ", outcome->step);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

int play_look(struct play *p, const Gpushm__Proto__Request *q)
{
	if (raw_call(&p->eye, q) != 0)
		play_fail("the eye is refused: %s", p->eye.text);
	return 0;
}

/* ---- the beginning ---- */

/* Of several pools with this name the last one is in use; the others are from earlier daemons. */
static void learn_pool(struct model_pool *pool, const Gpushm__Proto__PoolsReply *told)
{
	for (size_t i = 0; i < told->n_pools; i++) {
		const Gpushm__Proto__Pool *t = told->pools[i];

		if (t->name.len != strlen(pool->name) ||
		    memcmp(t->name.data, pool->name, t->name.len) != 0)
			continue;
		pool->id = t->id;
		pool->fails = t->failed;
		pool->size = t->size_bytes;
		pool->granularity = t->granularity;
	}
}

void play_learn_pools(struct play *p)
{
	play_look(p, REQUEST(POOLS, Pools, pools));
	for (size_t i = 0; i < array_size(pools); i++) {
		struct model_pool *pool = model_pool_by_name(&p->model, pools[i].name);
		uint32_t id = pool ? pool->id : 0;

		if (!pool)
			pool = model_add_pool(&p->model, pools[i].kind, pools[i].name);
		pool->closed_shop = pools[i].kind == MODEL_MEMPOOL;
		learn_pool(pool, p->eye.reply->pools);
		if (id && pool->id != id && !pool->fails)
			play_fail("pool \"%s\" is another one after a restart", pool->name);
	}
}

void play_greet(struct play *p)
{
	raw_greet(&p->eye, p->supervisor.socket);
	if (model_connect(&p->model, p->self, &p->eye_session) != CODE_OK)
		play_fail("the eye is one connection too many");
	p->eye_session->number = p->eye.reply->hello->session;
}

void play_begin(struct play *p)
{
	p->alone = geteuid() != 0;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		p->connections[i].raw.socket = -1;
	model_init(&p->model);
	supervisor_init(&p->supervisor, config);
	snprintf(outcome->folder, sizeof(outcome->folder), "%s", p->supervisor.folder);
	/* Other users must reach the socket. */
	ck_assert_int_eq(chmod(p->supervisor.folder, 0755), 0);
	supervisor_start(&p->supervisor);
	ck_assert_int_eq(chmod(p->supervisor.socket, 0666), 0);
	p->self = model_add_process(&p->model, getpid(), geteuid(), getegid());
	p->self->admin = true;
	play_greet(p);
	play_learn_pools(p);
	outcome->began_ns = play_now_ns();
}

/* ---- its fds ---- */

static uint32_t count_fds(struct play *p)
{
	play_look(p, REQUEST(STATUS, Status, status));
	return p->eye.reply->status->fds;
}

void play_measure(struct play *p)
{
	const Gpushm__Proto__Request *create;
	uint64_t lease;

	play_crash(p, SIGKILL, NULL);
	for (size_t i = 0; i < array_size(pools); i++) {
		create = REQUEST(CREATE, Create, create, BYTES(name, "x"),
				 BYTES(pool, pools[i].name), SET(size_bytes, 1));
		if (raw_call(&p->eye, create) != 0)
			continue;
		lease = p->eye.reply->attach->lease;
		play_look(p, REQUEST(CLOSE, Close, close, SET(lease, lease)));
	}
	play_look(p, REQUEST(FLUSH, Flush, flush));
	p->fds = count_fds(p);
}

void play_check_fds(struct play *p)
{
	uint32_t fds = count_fds(p);

	for (int waited = 0; fds > p->fds && waited < p->deadline_ms; waited += 10) {
		poll(NULL, 0, 10);
		fds = count_fds(p);
	}
	if (fds > p->fds)
		play_fail("the daemon has nothing, and %u fds for it; %u were enough before", fds,
			  p->fds);
}

static void bring_in(struct play *p, unsigned i)
{
	uid_t uid = p->alone ? geteuid() : people[i].uid;
	gid_t gid = p->alone ? getegid() : people[i].gid;
	struct model_process *process;

	if (p->actors[i].pid)
		return;
	actor_start(&p->actors[i], p->supervisor.socket, uid, gid);
	process = model_add_process(&p->model, p->actors[i].pid, uid, gid);
	process->admin = p->alone || uid == 0;
	process->trusted = uid == ALICE || uid == BOB;
	p->processes[i] = process;
}

/* ---- what is due ---- */

static void check_reclaimed(const Gpushm__Proto__ReclaimReply *r, const struct model_reply *a)
{
	if (r->n_lost != a->lost)
		play_fail("RECLAIM: %zu leases are lost, not %u", r->n_lost, a->lost);
}

static void check_reply(struct play *p, struct raw *raw, struct model_session *s)
{
	static const int cases[] = {
		[MODEL_ERROR] = GPUSHM__PROTO__REPLY__RESULT_ERROR,
		[MODEL_DONE] = GPUSHM__PROTO__REPLY__RESULT_DONE,
		[MODEL_ATTACH] = GPUSHM__PROTO__REPLY__RESULT_ATTACH,
		[MODEL_DESCRIBED] = GPUSHM__PROTO__REPLY__RESULT_DESCRIBED,
		[MODEL_PUBLISHED] = GPUSHM__PROTO__REPLY__RESULT_PUBLISHED,
		[MODEL_STAT] = GPUSHM__PROTO__REPLY__RESULT_STAT,
		[MODEL_RECLAIMED] = GPUSHM__PROTO__REPLY__RESULT_RECLAIMED,
	};
	const struct model_reply *a = &s->reply;

	outcome->counts.codes[raw->code]++;
	if (raw->code != a->code || (int)raw->reply->result_case != cases[a->what])
		play_fail("uid %u got %s (%s), the model says %s", s->process->uid,
			  raw->code ? code_name(raw->code) : "yes", raw->text,
			  a->code ? code_name(a->code) : "yes");
	if (a->what == MODEL_ATTACH)
		play_check_attach(p, raw, s);
	if (a->what == MODEL_STAT)
		play_check_buffer(p, raw->reply->stat, a->buffer, s->process, a->later);
	if (a->what == MODEL_DESCRIBED && raw->reply->described->arrays != a->buffer->arrays)
		play_fail("DESCRIBE: %u arrays, not %u", raw->reply->described->arrays,
			  a->buffer->arrays);
	if (a->what == MODEL_PUBLISHED)
		a->buffer->digest = raw->reply->published->digest;
	if (a->what == MODEL_RECLAIMED)
		check_reclaimed(raw->reply->reclaimed, a);
}

void play_collect(struct play *p)
{
	struct model_session *s;

	list_foreach (s, &p->model.sessions, link) {
		struct raw *raw;

		if (s->reply.what == MODEL_NOTHING || s->connection < 0)
			continue;
		raw = &p->connections[s->connection].raw;
		raw_receive(raw);
		check_reply(p, raw, s);
		s->reply = (struct model_reply){ 0 };
	}
	p->last_buffer = p->max_buffer;
	p->last_lease = p->max_lease;
}

/* After frees in an undefined order both give pending memory back. */
void play_flush_vague(struct play *p)
{
	struct model_pool *pool;

	list_foreach (pool, &p->model.pools, link) {
		if (pool->vague && !pool->inherited) {
			play_look(p, REQUEST(FLUSH, Flush, flush, BYTES(pool, pool->name)));
			model_empty(pool);
		}
		pool->vague = false;
		pool->frees = 0;
	}
}

/* ---- the end ---- */

void play_release(struct connection *conn)
{
	raw_close(&conn->raw);
	conn->session = NULL;
}

static void clean_names(struct play *p)
{
	struct model_buffer *b;
	char name[MODEL_NAME_MAX];

	list_foreach (b, &p->model.buffers, link) {
		if (!b->name[0])
			continue;
		snprintf(name, sizeof(name), "%s", b->name);
		model_unlink(&p->model, p->eye_session, name, false);
		p->eye_session->reply = (struct model_reply){ 0 };
		play_look(p, REQUEST(UNLINK, Unlink, unlink, BYTES(name, name)));
		play_collect(p);
		play_flush_vague(p);
		clean_names(p);
		return;
	}
}

static bool has_suspects(const struct play *p, const struct model_process *process)
{
	const struct model_session *s;

	list_foreach (s, &p->model.sessions, link)
		if (s->process == process)
			return true;
	return false;
}

void play_tidy(struct play *p)
{
	struct model_pool *pool;

	for (unsigned i = 0; i < CONNECTIONS; i++) {
		if (!p->connections[i].session)
			continue;
		model_disconnect(&p->model, p->connections[i].session);
		play_release(&p->connections[i]);
		play_collect(p);
		play_await(p);
		play_flush_vague(p);
	}
	clean_names(p);
	for (unsigned i = 0; i < ACTORS; i++) {
		if (!p->processes[i] || !has_suspects(p, p->processes[i]))
			continue;
		actor_kill(&p->actors[i]);
		model_die(&p->model, p->processes[i]);
		p->processes[i] = NULL;
		play_await(p);
		play_flush_vague(p);
	}
	if (!list_empty(&p->model.buffers) || model_suspects(&p->model))
		play_fail("the model itself has something left");
	play_compare_all(p);
	/* The next sequence begins without pending memory. */
	play_look(p, REQUEST(FLUSH, Flush, flush));
	list_foreach (pool, &p->model.pools, link)
		model_empty(pool);
	model_forget_dead(&p->model);
	outcome->began_ns = play_now_ns();
}

void play_end(struct play *p)
{
	for (unsigned i = 0; i < ACTORS; i++)
		if (p->actors[i].pid)
			actor_kill(&p->actors[i]);
	raw_close(&p->eye);
	supervisor_end(&p->supervisor, SIGTERM);
	supervisor_done(&p->supervisor);
	model_done(&p->model);
}

/* ---- a step ---- */

/* How often; and how often in sequences that are about memory which comes and goes. */
static const struct {
	void (*play)(struct play *p, const struct op *op);
	unsigned weights[2];
} verbs[] = {
	{ play_connect, { 12, 14 } }, { play_disconnect, { 4, 1 } }, { play_die, { 6, 1 } },
	{ play_restart, { 3, 2 } },   { play_create, { 24, 14 } },   { play_describe, { 4, 1 } },
	{ play_publish, { 20, 14 } }, { play_open, { 20, 14 } },     { play_stat, { 4, 2 } },
	{ play_close, { 14, 6 } },    { play_unlink, { 9, 3 } },     { play_clean, { 5, 1 } },
	{ play_rename, { 6, 4 } },    { play_flush, { 1, 1 } },	     { play_list, { 2, 2 } },
	{ play_compare, { 3, 3 } },   { play_reclaim, { 8, 6 } },    { play_suspend, { 3, 20 } },
	{ play_copy, { 2, 18 } },     { play_hand_over, { 3, 26 } }, { play_open_twin, { 1, 3 } },
	{ play_evict, { 2, 22 } },    { play_keep, { 1, 5 } },	     { play_crowd, { 2, 20 } },
};

void play_step(struct play *p, const struct op *op)
{
	unsigned all = 0, at, i = 0, about = play_is_about_memory(p);

	for (unsigned n = 0; n < ACTORS; n++)
		bring_in(p, n);
	for (unsigned n = 0; n < array_size(verbs); n++)
		all += verbs[n].weights[about];
	for (at = op->what % all; at >= verbs[i].weights[about]; i++)
		at -= verbs[i].weights[about];
	outcome->counts.steps++;
	p->model.now++;
	verbs[i].play(p, op);
	play_collect(p);
	play_await(p);
	play_flush_vague(p);
}
