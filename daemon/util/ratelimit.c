/* SPDX-License-Identifier: MIT
 *
 * A user above the limit gets one more line when its time is over, with the number of lines that
 * were left out. Few users do anything wrong, so a short array is enough. When it is full, all
 * further pairs share one limit: many uids of one person bring no more lines.
 */
#include "daemon/util/ratelimit.h"

#include "daemon/util/log.h"

static unsigned seconds_of(const struct ratelimit *t)
{
	return t->hourly ? RATELIMIT_HOUR : RATELIMIT_SECONDS;
}

static void tell_left_out(const struct ratelimit *t, const struct ratelimit_pair *it)
{
	struct log_about about = { .message_id = it->cause->message_id,
				   .uid = it->uid,
				   .of_user = true };

	if (it->left_out && it->cause->what)
		log_write(LOG_WARNING, &about, "%u more %s of uid %u within %u s of the first one",
			  it->left_out, it->cause->what, it->uid, seconds_of(t));
}

static bool is_over(const struct ratelimit *t, const struct ratelimit_pair *it, uint64_t now_ns)
{
	return now_ns - it->since_ns >= seconds_of(t) * 1000000000ull;
}

static void settle_others(struct ratelimit *t, uint64_t now_ns)
{
	if (!t->others.cause || !is_over(t, &t->others, now_ns))
		return;
	if (t->others.left_out)
		log_warning("%u more lines about many users within %u s of the first one",
			    t->others.left_out, seconds_of(t));
	t->others = (struct ratelimit_pair){ 0 };
}

void ratelimit_settle(struct ratelimit *t, uint64_t now_ns)
{
	for (size_t i = t->n; i-- > 0;) {
		if (!is_over(t, &t->pairs[i], now_ns))
			continue;
		tell_left_out(t, &t->pairs[i]);
		t->pairs[i] = t->pairs[--t->n];
	}
	settle_others(t, now_ns);
}

static struct ratelimit_pair *find(struct ratelimit *t, const struct ratelimit_cause *cause,
				   uid_t uid, uint64_t now_ns)
{
	struct ratelimit_pair *it;

	for (size_t i = 0; i < t->n; i++)
		if (t->pairs[i].uid == uid && t->pairs[i].cause == cause)
			return &t->pairs[i];
	it = t->n < RATELIMIT_PAIRS ? &t->pairs[t->n++] : &t->others;
	if (it != &t->others || !it->cause)
		*it = (struct ratelimit_pair){ .cause = cause, .uid = uid, .since_ns = now_ns };
	return it;
}

bool ratelimit_pass(struct ratelimit *t, const struct ratelimit_cause *cause, uid_t uid,
		    uint64_t now_ns)
{
	struct ratelimit_pair *it;

	ratelimit_settle(t, now_ns);
	it = find(t, cause, uid, now_ns);
	if (it->written < (t->hourly ? 1 : RATELIMIT_LINES)) {
		it->written++;
		return true;
	}
	it->left_out++;
	return false;
}
