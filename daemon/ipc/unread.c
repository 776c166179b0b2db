/* SPDX-License-Identifier: MIT
 *
 * SIOCOUTQ is the size of the messages that were sent on a socket and still exist. They are freed
 * when the client has read them or has closed its last descriptor of the other end, also after a
 * shutdown() of both ends (net/unix/af_unix.c: unix_outq_len(), unix_release_sock()). Asking after
 * each reply would cost a tenth of a small request, so that is done only after some replies with
 * descriptors, or some bytes of other replies. Up to four replies of a connection may then be
 * charged although they are read; when a user's share is used up, those who have waited longest for
 * a look are looked at.
 */
#include "daemon/ipc/unread.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define LITTLE 4096u	       /* bytes of replies that the client may not have read yet */
#define WITH_FDS (LITTLE / 4u) /* a reply with descriptors counts at least this much */
#define LOOKS_MAX 8u	       /* at other connections, in one request */

void unread_init(struct unread *u, int socket)
{
	*u = (struct unread){ .socket = socket };
	list_init(&u->link);
}

bool unread_settle(struct unread *u)
{
	int bytes = 0;

	if (ioctl(u->socket, SIOCOUTQ, &bytes) < 0 || bytes != 0)
		return false;
	unread_done(u);
	u->bytes = 0;
	return true;
}

void unread_done(struct unread *u)
{
	list_drop(&u->link);
	discharge(&u->fds);
}

static int add(struct unread *u, struct accounts *a, uid_t uid, size_t n, struct fault *f)
{
	int r = u->fds.account ? recharge(&u->fds, u->fds.amount + n, f)
			       : charge(a, uid, ACCOUNT_IN_FLIGHT, n, 0, &u->fds, f);

	if (r == 0 && list_empty(&u->link))
		list_insert(&u->fds.account->unread, &u->link);
	return r;
}

/* Looks at the connections of the user that were looked at least recently. */
static void look_at_others(struct list *all)
{
	for (unsigned i = 0; i < LOOKS_MAX && !list_empty(all); i++) {
		struct unread *u = list_first(all, struct unread, link);

		list_drop(&u->link);
		list_insert(all, &u->link);
		unread_settle(u);
	}
}

int unread_charge(struct unread *u, struct accounts *a, uid_t uid, size_t n, struct fault *f)
{
	struct account *account;
	int r = add(u, a, uid, n, f);

	if (r != -EDQUOT)
		return r;
	account = account_find(a, uid);
	if (!account)
		return r;
	look_at_others(&account->unread);
	return add(u, a, uid, n, f);
}

void unread_sent(struct unread *u, size_t bytes, size_t n_fds)
{
	u->bytes += n_fds > 0 && bytes < WITH_FDS ? WITH_FDS : bytes;
}

bool unread_is_little(struct unread *u)
{
	return u->bytes < LITTLE || unread_settle(u);
}
