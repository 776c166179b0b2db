/* SPDX-License-Identifier: MIT
 *
 * A uid gets an account with its first charge and loses it with its last. Limits are read from the
 * configuration at each charge: a reload is in force at once, and ends nothing of a user who is
 * above the new limit already.
 */
#include "daemon/catalog/account.h"

#include "daemon/util/fds.h"
#include "proto/base/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *noun, *key, *remedy; /* key: NULL: none changes it */
} items[] = {
	[ACCOUNT_BYTES] = { "memory", "max-bytes", "unlink buffers that are not needed" },
	[ACCOUNT_TABLES] = { "memory for tables and pages of streams", NULL,
			     "describe fewer arrays, with shorter names and descrs, or have fewer "
			     "streams and readers" },
	[ACCOUNT_BUFFERS] = { "buffers", "max-buffers",
			      "unlink some, or put many arrays into one buffer" },
	[ACCOUNT_LEASES] = { "leases", "max-leases", "close buffers that are not needed" },
	[ACCOUNT_PEERS] = { "connections", "max-connections", "share one connection in a process" },
	[ACCOUNT_FDS] = { "file descriptors of gpushmd", "max-share",
			  "close connections and buffers, or raise LimitNOFILE" },
	[ACCOUNT_IN_FLIGHT] = { "descriptors in replies that nobody has read", "max-share",
				"read the replies, or close the connections" },
	[ACCOUNT_KEPT] = { "buffers kept by systemd", "max-share",
			   "put many arrays into one buffer" },
	[ACCOUNT_KEPT_PIDS] = { "processes kept by systemd", "max-share",
				"let fewer processes of containers hold buffers" },
	[ACCOUNT_KEPT_PAGES] = { "pages of streams kept by systemd", "max-share",
				 "have fewer streams and readers" },
	[ACCOUNT_WATCHED] = { "watched names", "max-share", "watch fewer names" },
};

#define RESERVE_PART 8u /* one in so many is for administrators alone */
#define FDS_SPARE 16u	/* for what is open for a moment only */
/* Tables take the daemon's own memory, not a pool's. The names, shapes and dtypes of 5,000 arrays
 * take 0.7 MB; the largest possible table takes 64 MiB. */
#define TABLES_MAX (256u << 20)
#define WATCHED_TOTAL (256u << 10) /* with a name of 255 bytes each takes about 350 bytes */

int accounts_init(struct accounts *a, const struct config *config)
{
	a->config = config;
	list_init(&a->all);
	for (int i = 0; i < ACCOUNT_ITEMS; i++)
		a->budgets[i] = (struct budget){ .total = UINT64_MAX };
	a->budgets[ACCOUNT_WATCHED].total = WATCHED_TOTAL;
	return hashtable_init(&a->by_uid);
}

void accounts_done(struct accounts *a)
{
	assert(a->by_uid.n == 0);
	hashtable_done(&a->by_uid);
}

struct account *account_find(const struct accounts *a, uid_t uid)
{
	struct account *it;

	hashtable_foreach (it, &a->by_uid, hashtable_hash_u64(uid), link)
		if (it->uid == uid)
			return it;
	return NULL;
}

static struct account *find_or_new(struct accounts *a, uid_t uid)
{
	struct account *account = account_find(a, uid);

	if (account)
		return account;
	account = calloc(1, sizeof(*account));
	if (!account)
		return NULL;
	account->accounts = a;
	account->uid = uid;
	account->admin = uid == 0 || uid == geteuid();
	list_init(&account->unread);
	list_init(&account->turn_link);
	list_init(&account->work);
	hashtable_insert(&a->by_uid, &account->link, hashtable_hash_u64(uid));
	list_insert(&a->all, &account->all_link);
	return account;
}

void account_free_if_unused(struct account *account)
{
	if (account->in_turn || !list_empty(&account->work))
		return;
	for (int i = 0; i < ACCOUNT_ITEMS; i++)
		if (account->used[i])
			return;
	hashtable_drop(&account->accounts->by_uid, &account->link);
	list_drop(&account->all_link);
	list_drop(&account->turn_link);
	free(account);
}

/* What all users but administrators may still take. */
static uint64_t left_to_users(uint64_t total, uint64_t used)
{
	uint64_t taken = total / RESERVE_PART + used;

	return taken < total ? total - taken : 0;
}

/* The part that a user may hold of what it has and what is left: with half of it, two users who
 * both take all they can get leave a quarter, and a third one is still served. */
static uint64_t share_of(const struct accounts *a, const struct account *account, double percent,
			 enum account_item item)
{
	const struct budget *b = &a->budgets[item];
	uint64_t reach;

	if (b->total == UINT64_MAX || (account && account->admin))
		return UINT64_MAX;
	reach = left_to_users(b->total, b->used) + (account ? account->used[item] : 0);
	return (uint64_t)((double)reach * percent / 100);
}

uint64_t accounts_share(const struct accounts *a, uid_t uid, uint64_t total, uint64_t used,
			uint64_t own)
{
	uint64_t reach = left_to_users(total, used) + own;
	uint64_t share = (uint64_t)((double)reach * config_limits(a->config, uid)->share / 100);

	return share > 0 ? share : 1;
}

static uint64_t count_limit(uint32_t count)
{
	return count == UINT32_MAX ? UINT64_MAX : count;
}

static uint64_t limit_of(const struct accounts *a, const struct account *account, uid_t uid,
			 enum account_item item)
{
	const struct limits_config *limits = config_limits(a->config, uid);

	switch (item) {
	case ACCOUNT_BYTES:
		return limits->bytes;
	case ACCOUNT_TABLES:
		return TABLES_MAX;
	case ACCOUNT_BUFFERS:
		return count_limit(limits->buffers);
	case ACCOUNT_LEASES:
		return count_limit(limits->leases);
	case ACCOUNT_PEERS:
		return count_limit(limits->peers);
	default:
		return share_of(a, account, limits->share, item);
	}
}

uint64_t account_limit(const struct accounts *a, uid_t uid, enum account_item item)
{
	return limit_of(a, account_find(a, uid), uid, item);
}

/* "4.0 GiB", "3". */
static struct size_text amount_text(enum account_item item, uint64_t amount)
{
	struct size_text t;

	if (item == ACCOUNT_BYTES || item == ACCOUNT_TABLES)
		return size_format(amount);
	snprintf(t.text, sizeof(t.text), "%" PRIu32, (uint32_t)amount);
	return t;
}

static int check_limit(const struct account *account, enum account_item item, uint64_t amount,
		       uint64_t slack, struct fault *f)
{
	uint64_t limit = limit_of(account->accounts, account, account->uid, item);
	uint64_t used = account->used[item], sum;
	char where[64] = "";

	/* The sum is also checked without a limit, because it is counted. */
	if (!__builtin_add_overflow(used, amount, &sum) && (sum <= limit || sum - limit <= slack))
		return 0;
	if (items[item].key)
		snprintf(where, sizeof(where), " (%s in gpushmd.conf)", items[item].key);
	return fault(f, CODE_LIMIT, "uid %u: %s more %s asked, %s held, limit %s%s: %s",
		     account->uid, amount_text(item, amount).text, items[item].noun,
		     amount_text(item, used).text, amount_text(item, limit).text, where,
		     items[item].remedy);
}

int charge(struct accounts *a, uid_t uid, enum account_item item, uint64_t amount, uint64_t slack,
	   struct charge *ret, struct fault *f)
{
	struct account *account = find_or_new(a, uid);
	int r;

	if (!account)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	r = check_limit(account, item, amount, slack, f);
	if (r < 0) {
		account_free_if_unused(account);
		return r;
	}
	account->used[item] += amount;
	a->budgets[item].used += amount;
	*ret = (struct charge){ account, item, amount };
	return 0;
}

int recharge(struct charge *c, uint64_t amount, struct fault *f)
{
	int r = amount > c->amount ? check_limit(c->account, c->item, amount - c->amount, 0, f) : 0;

	if (r < 0)
		return r;
	c->account->used[c->item] += amount - c->amount;
	c->account->accounts->budgets[c->item].used += amount - c->amount;
	c->amount = amount;
	return 0;
}

void discharge(struct charge *c)
{
	if (!c->account)
		return;
	assert(c->account->used[c->item] >= c->amount);
	c->account->used[c->item] -= c->amount;
	c->account->accounts->budgets[c->item].used -= c->amount;
	account_free_if_unused(c->account);
	*c = (struct charge){ 0 };
}

/* What is open and charged to nobody is the daemon's own: libraries and drivers open descriptors,
 * and freed memory that waits has some, too. */
void accounts_count_fds(struct accounts *a)
{
	struct budget *fds = &a->budgets[ACCOUNT_FDS];
	uint64_t open = fds_open(), limit = fds_limit();
	uint64_t own = (open > fds->used ? open - fds->used : 0) + FDS_SPARE;

	fds->total = limit > own ? limit - own : 0;
	a->budgets[ACCOUNT_IN_FLIGHT].total = limit;
}
