/* SPDX-License-Identifier: MIT
 *
 * The daemon's log. Each line is written at once, by one system call, so that lines of two threads
 * never mix and a crash loses none: one datagram to the journal, or one write(2) to stderr.
 *
 * The journal is used if systemd says that stderr goes there anyway: JOURNAL_STREAM has the device
 * and inode of that stream (systemd.exec(5)); they differ after stderr was redirected. Text is
 * escaped: names come from clients, and a newline in one must not forge a line.
 *
 * It owns nothing: the socket for the journal is systemd.c's. A line that can't be written is lost;
 * the log never stops the daemon.
 */
#include "daemon/util/log.h"

#include "proto/base/own.h"
#include "proto/base/text.h"
#include "proto/limits.h"
#include "proto/systemd/systemd.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define LINE_MAX_BYTES 4096u /* PIPE_BUF: a pipe takes that much in one piece (pipe(7)) */
#define TEXT_MAX 1024u
#define SAFE_MAX 2048u
#define VALUE_MAX (4u * BUFFER_NAME_MAX + 64u)
#define PARTS_MAX 5u

/* One subject of a line. */
struct part {
	const char *field, *label; /* in the journal, and on stderr */
	char value[VALUE_MAX];
};

const char *log_name = "gpushmd";
_Atomic int log_max_priority = LOG_INFO;
static _Atomic bool to_journal;

static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t device, inode;
	struct stat st;
	char end;

	return stream &&
	       sscanf(stream, "%" SCNuMAX ":%" SCNuMAX "%c", &device, &inode, &end) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_open(int max_priority)
{
	log_max_priority = max_priority;
	to_journal = stderr_is_journal() && systemd_journal_open() == 0;
}

static struct part *add_text(struct part *p, const char *field, const char *label, const char *text)
{
	if (!text)
		return p;
	p->field = field;
	p->label = label;
	text_escape(text, p->value, sizeof(p->value));
	return p + 1;
}

static struct part *add_number(struct part *p, const char *field, const char *label,
			       uint64_t number, bool is_known)
{
	if (!is_known)
		return p;
	p->field = field;
	p->label = label;
	snprintf(p->value, sizeof(p->value), "%" PRIu64, number);
	return p + 1;
}

static size_t list_parts(const struct log_about *about, struct part parts[PARTS_MAX])
{
	struct part *p = parts;

	p = add_text(p, "GPUSHM_POOL", "pool", about->pool);
	p = add_text(p, "GPUSHM_NAME", "name", about->name);
	p = add_number(p, "GPUSHM_PID", "pid", (uint64_t)about->pid, about->pid != 0);
	p = add_number(p, "GPUSHM_UID", "uid", about->uid,
		       about->uid != 0 || about->pid != 0 || about->of_user);
	p = add_number(p, "GPUSHM_BUFFER", "buffer", about->buffer, about->buffer != 0);
	return (size_t)(p - parts);
}

/* Writes "FIELD=value" to buf and points iov to it. */
static void set_field(struct iovec *iov, char *buf, size_t size, const char *field,
		      const char *value)
{
	int len = snprintf(buf, size, "%s=%s", field, value);

	*iov = (struct iovec){ buf, (size_t)len < size ? (size_t)len : size - 1 };
}

static int write_journal(int priority, const char *message_id, const char *text,
			 const struct part *parts, size_t n)
{
	static char identifier[] = "SYSLOG_IDENTIFIER=gpushmd";
	char message[SAFE_MAX + 16], level[16], id[64], fields[PARTS_MAX][VALUE_MAX + 16];
	struct iovec iov[PARTS_MAX + 4];
	size_t used = 0;

	snprintf(level, sizeof(level), "PRIORITY=%d", priority);
	iov[used++] = (struct iovec){ level, strlen(level) };
	iov[used++] = (struct iovec){ identifier, strlen(identifier) };
	set_field(&iov[used++], message, sizeof(message), "MESSAGE", text);
	if (message_id)
		set_field(&iov[used++], id, sizeof(id), "MESSAGE_ID", message_id);
	for (size_t i = 0; i < n; i++)
		set_field(&iov[used++], fields[i], sizeof(fields[i]), parts[i].field,
			  parts[i].value);
	return systemd_journal_write(iov, used);
}

/* "gpushmd: error: text [pool=gpu0 uid=1001]" */
static void write_stderr(int priority, const char *text, const struct part *parts, size_t n)
{
	static const char *const levels[] = { "emergency", "alert",  "critical", "error",
					      "warning",   "notice", "info",	 "debug" };
	const size_t room = LINE_MAX_BYTES - strlen("]\n");
	char line[LINE_MAX_BYTES];
	ssize_t written;

	snprintf(line, room, "%s: %s: %s", log_name, levels[priority], text);
	for (size_t i = 0; i < n; i++)
		text_append(line, room, "%s%s=%s", i == 0 ? " [" : " ", parts[i].label,
			    parts[i].value);
	strcat(line, n > 0 ? "]\n" : "\n");
	written = write(STDERR_FILENO, line, strlen(line));
	(void)written;
}

void log_write(int priority, const struct log_about *about, const char *format, ...)
{
	static const struct log_about nothing = { 0 };
	struct part parts[PARTS_MAX];
	char text[TEXT_MAX], safe[SAFE_MAX];
	int saved = errno, r;
	va_list args;
	size_t n;

	if (!log_wants(priority))
		return;
	if (!about)
		about = &nothing;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_escape(text, safe, sizeof(safe));
	n = list_parts(about, parts);
	r = to_journal ? write_journal(priority, about->message_id, safe, parts, n) : -ENOTCONN;
	/* A journald that does not read its socket does not read what stderr leads to, either. */
	if (r < 0 && r != -ETIMEDOUT)
		write_stderr(priority, safe, parts, n);
	errno = saved;
}
