/* SPDX-License-Identifier: MIT
 *
 * RESTART: only a refusal is answered. Who asked learns of the restart itself as everybody does:
 * the connection ends, and the next one leads to a daemon of the same identity.
 */
#include "daemon/ipc/verb.h"
#include "proto/base/own.h"

static void on_refused(struct restarter *r, const struct fault *f)
{
	struct session *s = container_of(r, struct session, restarter);
	struct reply a = { 0 };

	s->service->refused++;
	reply_fault(&a, f);
	s->on_answer(s, &a);
}

int request_restart(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		    struct fault *f)
{
	if (!s->process->admin)
		return fault(f, CODE_ACCESS,
			     "only administrators may restart gpushmd: root, its own user, and "
			     "admin-group in gpushmd.conf(5)");
	s->restarter.on_refused = on_refused;
	return reexec_ask(&s->service->restart, &s->restarter, f);
}
