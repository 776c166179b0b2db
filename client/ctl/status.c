/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl status`: shows the daemon's state, and how much of each limit this user has used. An
 * admin sees all users.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/record_json.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <string.h>

void usage_json_members(struct json *j, const struct gpushm_usage *u)
{
	const struct {
		const char *name;
		uint64_t used, max, unlimited;
	} rows[] = {
		{ "bytes", u->bytes, u->bytes_max, UINT64_MAX },
		{ "buffers", u->buffers, u->buffers_max, UINT32_MAX },
		{ "leases", u->leases, u->leases_max, UINT32_MAX },
		{ "peers", u->peers, u->peers_max, UINT32_MAX },
		{ "connections", u->peers, u->peers_max, UINT32_MAX },
	};

	json_uint(j, "uid", u->uid);
	json_string(j, "user", output_user(u->uid));
	for (size_t i = 0; i < array_size(rows); i++) {
		json_open(j, rows[i].name, '{');
		json_uint(j, "used", rows[i].used);
		json_uint_if(j, "max", rows[i].max != rows[i].unlimited, rows[i].max);
		json_close(j, '}');
	}
}

static struct output_text daemon_id(const struct gpushm_status *s)
{
	struct output_text id;

	for (size_t i = 0; i < sizeof(s->daemon); i++)
		sprintf(id.text + 2 * i, "%02x", s->daemon[i]);
	return id;
}

void status_json_members(struct json *j, const struct gpushm_status *s)
{
	json_record(j, json_status, s, false);
	json_uint(j, "connections", s->peers);
	json_uint(j, "ending", s->suspects);
	json_open(j, "refusals", '{');
	for (size_t i = 0; i < s->n_refusals; i++)
		json_uint(j, s->refusals[i]->code, s->refusals[i]->count);
	json_close(j, '}');
}

static void status_json(struct json *j, const struct gpushm_status *s)
{
	json_open(j, NULL, '{');
	status_json_members(j, s);
	json_open(j, "usage", '[');
	for (size_t i = 0; i < s->n_usage; i++) {
		json_open(j, NULL, '{');
		usage_json_members(j, s->usage[i]);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

static void print_refusals(const struct gpushm_status *s)
{
	for (size_t i = 0; i < s->n_refusals; i++) {
		const char *code = s->refusals[i]->code;
		_cleanup_(free_ptr) char *escaped = output_escape(code, strlen(code));

		printf("%s%s %" PRIu64,
		       i ? ", " : "refused over all restarts: ", escaped ? escaped : "?",
		       s->refusals[i]->count);
	}
	printf(s->n_refusals ? "\n\n" : "\n");
}

static void print_daemon(const struct ctl *ctl, const struct gpushm_status *s)
{
	table_text(stdout, ctl->colour ? TABLE_COLOUR : 0, TABLE_BOLD, "%s", s->software);
	printf(", pid %d, up %s, id %s\n", s->pid, output_age(s->uptime_ms * 1000000).text,
	       daemon_id(s).text);
	printf("%u %s, %u %s, %u %s, %u waiting for a name\n", OUTPUT_COUNT(s->buffers, "buffer"),
	       OUTPUT_COUNT(s->leases, "lease"), OUTPUT_COUNT(s->peers, "connection"), s->waiting);
	if (s->suspects)
		printf("%s (gpushmctl ls --holders)\n", output_ending(s->suspects).text);
	if (!s->kept)
		printf("published buffers are lost if the daemon dies (gpushmd(8), --no-keeper)\n");
	if (*s->needs_restart)
		printf("gpushmctl restart applies what was changed in gpushmd.conf: %s\n",
		       s->needs_restart);
	if (s->pools_failed)
		printf("%u %s failed (gpushmctl pools)\n", OUTPUT_COUNT(s->pools_failed, "pool"));
	if (s->retained)
		printf("%u freed %s of %s not let go of by their processes\n",
		       OUTPUT_COUNT(s->retained, "buffer"), ctl_size(ctl, s->retained_bytes).text);
	printf("%lu %s, %lu refused, %lu %s; %u of %u file descriptors\n",
	       OUTPUT_COUNT((unsigned long)s->requests, "request"), (unsigned long)s->refused,
	       OUTPUT_COUNT((unsigned long)s->violations, "violation"), s->fds, s->fds_max);
	print_refusals(s);
}

static void count_cell(struct table *t, uint32_t used, uint32_t max)
{
	if (max == UINT32_MAX)
		table_cell(t, TABLE_PLAIN, "%u", used);
	else
		table_cell(t, used >= max ? TABLE_BAD : TABLE_PLAIN, "%u of %u", used, max);
}

void usage_cells(struct table *t, const struct gpushm_usage *u, bool exact)
{
	table_cell(t, TABLE_PLAIN, "%s", output_user(u->uid));
	if (u->bytes_max == UINT64_MAX)
		table_cell(t, TABLE_PLAIN, "%s", output_size(u->bytes, exact).text);
	else
		table_cell(t, u->bytes >= u->bytes_max ? TABLE_BAD : TABLE_PLAIN, "%s of %s",
			   output_size(u->bytes, exact).text,
			   output_size(u->bytes_max, exact).text);
	count_cell(t, u->buffers, u->buffers_max);
	count_cell(t, u->leases, u->leases_max);
	count_cell(t, u->peers, u->peers_max);
}

static int print_usages(const struct ctl *ctl, const struct gpushm_status *s)
{
	struct table *t = table_new("USER >BYTES >BUFFERS >LEASES >CONNECTIONS");

	for (size_t i = 0; i < s->n_usage; i++)
		usage_cells(t, s->usage[i], ctl->bytes);
	return ctl_print(ctl, t);
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	_cleanup_(free_result) struct gpushm_status *s = NULL;
	struct json j;
	int r = gpushm_status(ctl->connection, &s);

	if (r < 0)
		return ctl_refused(r);
	if (ctl_json(ctl, &j)) {
		status_json(&j, s);
		return CTL_OK;
	}
	print_daemon(ctl, s);
	return print_usages(ctl, s);
}

const struct command command_status = {
	.name = "status",
	.synopsis = "",
	.about = "show the daemon's state and this user's limits",
	.run = run,
};
