/* SPDX-License-Identifier: MIT
 *
 * A user above the limit gets one more line when its time is over, with the number of lines that
 * were left out. Few users do anything wrong, so a short array is enough.
 */
#include "daemon/util/ratelimit.h"

#include "daemon/util/log.h"

static void drop(struct ratelimit *t, size_t i)
{
	const struct ratelimit_user *u = &t->users[i];

	struct log_about about = { .message_id = t->message_id, .uid = u->uid, .of_user = true };

	if (u->left_out)
		log_write(LOG_WARNING, &about, "%u more %s of uid %u within %u s of the first one",
			  u->left_out, t->what, u->uid, RATELIMIT_SECONDS);
	t->users[i] = t->users[--t->n];
}

static bool is_over(const struct ratelimit_user *u, uint64_t now_ns)
{
	return now_ns - u->since_ns >= RATELIMIT_SECONDS * 1000000000ull;
}

void ratelimit_settle(struct ratelimit *t, uint64_t now_ns)
{
	for (size_t i = t->n; i-- > 0;)
		if (is_over(&t->users[i], now_ns))
			drop(t, i);
}

static size_t oldest(const struct ratelimit *t)
{
	size_t found = 0;

	for (size_t i = 1; i < t->n; i++)
		if (t->users[i].since_ns < t->users[found].since_ns)
			found = i;
	return found;
}

static struct ratelimit_user *find(struct ratelimit *t, uid_t uid, uint64_t now_ns)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->users[i].uid == uid)
			return &t->users[i];
	if (t->n == RATELIMIT_USERS)
		drop(t, oldest(t));
	t->users[t->n] = (struct ratelimit_user){ .uid = uid, .since_ns = now_ns };
	return &t->users[t->n++];
}

bool ratelimit_pass(struct ratelimit *t, uid_t uid, uint64_t now_ns)
{
	struct ratelimit_user *u;

	ratelimit_settle(t, now_ns);
	u = find(t, uid, now_ns);
	if (u->written < RATELIMIT_LINES) {
		u->written++;
		return true;
	}
	u->left_out++;
	return false;
}
