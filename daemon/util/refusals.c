/* SPDX-License-Identifier: MIT
 *
 * Few pairs of a user and a code are refused within an hour, so a short array is enough. When it is
 * full, the oldest pair goes, and may get its next line early.
 */
#include "daemon/util/refusals.h"

void refusals_count(struct refusals *r, int code)
{
	if (code <= CODE_OK || code >= CODE_COUNT)
		return;
	r->counts[code]++;
	r->changed = true;
}

/* The pair's place, or the place that a new pair takes. */
static struct refusal_told *find(struct refusals *r, uid_t uid, enum code code)
{
	struct refusal_told *oldest = &r->told[0];

	for (size_t i = 0; i < r->n_told; i++) {
		struct refusal_told *it = &r->told[i];

		if (it->uid == uid && it->code == code)
			return it;
		if (it->since_ns < oldest->since_ns)
			oldest = it;
	}
	return r->n_told < REFUSALS_TOLD_MAX ? &r->told[r->n_told] : oldest;
}

bool refusals_tell(struct refusals *r, uid_t uid, enum code code, uint64_t now_ns)
{
	struct refusal_told *it = find(r, uid, code);
	bool is_new = it == &r->told[r->n_told] || it->uid != uid || it->code != code;

	if (!is_new && now_ns - it->since_ns < REFUSALS_QUIET_S * 1000000000ull)
		return false;
	r->n_told += it == &r->told[r->n_told];
	*it = (struct refusal_told){ uid, code, now_ns };
	return true;
}
