/* SPDX-License-Identifier: MIT
 *
 * A uid gets an account with its first charge and loses it with its last. Limits are read from the
 * configuration at each charge: a reload is in force at once, and ends nothing of a user who is
 * above the new limit already.
 */
#include "daemon/catalog/account.h"

#include "proto/base/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *noun, *key, *remedy;
} items[] = {
	[ACCOUNT_BYTES] = { "bytes", "max-bytes", "unlink buffers that are not needed" },
	[ACCOUNT_TABLES] = { "bytes of tables", "max-table-bytes",
			     "describe fewer arrays, with shorter names and descrs" },
	[ACCOUNT_BUFFERS] = { "buffers", "max-buffers",
			      "unlink some, or put many arrays into one buffer" },
	[ACCOUNT_LEASES] = { "leases", "max-leases", "close buffers that are not needed" },
	[ACCOUNT_PEERS] = { "connections", "max-connections", "share one connection in a process" },
};

int accounts_init(struct accounts *a, const struct config *config)
{
	a->config = config;
	list_init(&a->all);
	return hashtable_init(&a->by_uid);
}

void accounts_done(struct accounts *a)
{
	assert(a->by_uid.n == 0);
	hashtable_done(&a->by_uid);
}

static struct account *find(const struct accounts *a, uid_t uid)
{
	struct account *it;

	hashtable_foreach (it, &a->by_uid, hashtable_hash_u64(uid), link)
		if (it->uid == uid)
			return it;
	return NULL;
}

static struct account *find_or_new(struct accounts *a, uid_t uid)
{
	struct account *account = find(a, uid);

	if (account)
		return account;
	account = calloc(1, sizeof(*account));
	if (!account)
		return NULL;
	account->accounts = a;
	account->uid = uid;
	hashtable_insert(&a->by_uid, &account->link, hashtable_hash_u64(uid));
	list_insert(&a->all, &account->all_link);
	return account;
}

static void free_if_empty(struct account *account)
{
	for (int i = 0; i < ACCOUNT_ITEMS; i++)
		if (account->used[i])
			return;
	hashtable_drop(&account->accounts->by_uid, &account->link);
	list_drop(&account->all_link);
	free(account);
}

uint64_t account_limit(const struct accounts *a, uid_t uid, enum account_item item)
{
	const struct limits_config *limits = config_limits(a->config, uid);
	uint32_t count = item == ACCOUNT_BUFFERS  ? limits->buffers
			 : item == ACCOUNT_LEASES ? limits->leases
						  : limits->peers;

	if (item == ACCOUNT_BYTES || item == ACCOUNT_TABLES)
		return item == ACCOUNT_BYTES ? limits->bytes : limits->tables;
	return count == UINT32_MAX ? UINT64_MAX : count;
}

static int check_limit(const struct account *account, enum account_item item, uint64_t amount,
		       uint64_t slack, struct fault *f)
{
	uint64_t limit = account_limit(account->accounts, account->uid, item);
	uint64_t used = account->used[item], sum;

	/* The sum is also checked without a limit, because it is counted. */
	if (!__builtin_add_overflow(used, amount, &sum) && (sum <= limit || sum - limit <= slack))
		return 0;
	return fault(f, CODE_LIMIT,
		     "uid %u: %" PRIu64 " more %s asked, %" PRIu64 " held, limit %" PRIu64
		     " (%s in gpushmd.conf): %s",
		     account->uid, amount, items[item].noun, used, limit, items[item].key,
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
		free_if_empty(account);
		return r;
	}
	account->used[item] += amount;
	*ret = (struct charge){ account, item, amount };
	return 0;
}

int recharge(struct charge *c, uint64_t amount, struct fault *f)
{
	int r = amount > c->amount ? check_limit(c->account, c->item, amount - c->amount, 0, f) : 0;

	if (r < 0)
		return r;
	c->account->used[c->item] += amount - c->amount;
	c->amount = amount;
	return 0;
}

void discharge(struct charge *c)
{
	if (!c->account)
		return;
	assert(c->account->used[c->item] >= c->amount);
	c->account->used[c->item] -= c->amount;
	free_if_empty(c->account);
	*c = (struct charge){ 0 };
}

/* ---- who fills a pool ---- */

#define LARGEST_MAX 3

static struct account *largest(struct accounts *a)
{
	struct account *it, *found = NULL;

	list_foreach (it, &a->all, all_link)
		if (it->unnamed > (found ? found->unnamed : 0))
			found = it;
	return found;
}

void accounts_name_largest(struct accounts *a, uint32_t pool, struct fault *f)
{
	struct account *it;

	list_foreach (it, &a->all, all_link)
		it->unnamed = it->blocks[pool];
	for (int i = 0; i < LARGEST_MAX && (it = largest(a)); i++) {
		size_t len = strlen(f->text);

		snprintf(f->text + len, sizeof(f->text) - len, "%suid %u: %s",
			 i ? ", " : "; held in it by ", it->uid, size_format(it->unnamed).text);
		it->unnamed = 0;
	}
}
