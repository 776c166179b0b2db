/* SPDX-License-Identifier: MIT
 *
 * A process that comes back after a restart of the daemon (RECLAIM) gets no new line: it has one
 * from when it opened the buffer.
 */
#include "daemon/ipc/audit.h"

#include "daemon/ipc/service.h"
#include "daemon/util/log.h"

static struct log_about about(const struct process *p)
{
	return (struct log_about){
		.message_id = LOG_ID_AUDIT, .pid = p->pid, .uid = p->uid, .of_user = true
	};
}

void audit(const struct session *s, const char *done, const char *key, uint64_t buffer)
{
	const struct process *p = s->process;
	struct log_about line = about(p);

	if (!s->service->config->audit)
		return;
	line.name = key;
	line.buffer = buffer;
	log_write(LOG_INFO, &line, "uid %u (process %d, %s) %s buffer \"%s\"", p->uid, p->pid,
		  p->command, done, key ? key : "");
}

void audit_rename(const struct session *s, const char *from, const char *to, uint64_t buffer)
{
	const struct process *p = s->process;
	struct log_about line = about(p);

	if (!s->service->config->audit)
		return;
	line.name = to;
	line.buffer = buffer;
	log_write(LOG_INFO, &line, "uid %u (process %d, %s) renamed buffer \"%s\" to \"%s\"",
		  p->uid, p->pid, p->command, from, to);
}

void audit_refusal(const struct session *s, const char *verb, const struct fault *f)
{
	const struct process *p = s->process;
	struct log_about line = about(p);

	if (!s->service->config->audit || f->code != CODE_ACCESS)
		return;
	log_write(LOG_NOTICE, &line, "uid %u (process %d, %s) may not %s: %s", p->uid, p->pid,
		  p->command, verb, f->text);
}
