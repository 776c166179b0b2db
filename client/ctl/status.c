/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl status`: how the daemon is, and what this user holds of what it may hold. An admin
 * sees every user.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/entry.h"
#include "client/ctl/grid.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"

static void usage_json(struct json *j, const struct gpushm_usage *u)
{
	const struct {
		const char *name;
		uint64_t used, max, none;
	} rows[] = {
		{ "bytes", u->bytes, u->bytes_max, UINT64_MAX },
		{ "buffers", u->buffers, u->buffers_max, UINT32_MAX },
		{ "leases", u->leases, u->leases_max, UINT32_MAX },
		{ "peers", u->peers, u->peers_max, UINT32_MAX },
	};

	json_open(j, NULL, '{');
	json_uint(j, "uid", u->uid);
	json_string(j, "user", entry_user(u->uid));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		json_open(j, rows[i].name, '{');
		json_uint(j, "used", rows[i].used);
		if (rows[i].max == rows[i].none)
			json_null(j, "max");
		else
			json_uint(j, "max", rows[i].max);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static void hex(const unsigned char *bytes, size_t n, char *buf)
{
	for (size_t i = 0; i < n; i++)
		sprintf(buf + 2 * i, "%02x", bytes[i]);
}

static void status_json(struct json *j, const struct gpushm_status *s)
{
	char id[2 * sizeof(s->daemon) + 1];

	hex(s->daemon, sizeof(s->daemon), id);
	json_open(j, NULL, '{');
	json_string(j, "software", s->software);
	json_string(j, "daemon", id);
	json_int(j, "pid", s->pid);
	json_uint(j, "uptime_ms", s->uptime_ms);
	json_uint(j, "peers", s->peers);
	json_uint(j, "buffers", s->buffers);
	json_uint(j, "leases", s->leases);
	json_uint(j, "suspects", s->suspects);
	json_uint(j, "waiting", s->waiting);
	json_uint(j, "requests", s->requests);
	json_uint(j, "refused", s->refused);
	json_uint(j, "violations", s->violations);
	json_uint(j, "fds", s->fds);
	json_uint(j, "fds_max", s->fds_max);
	json_uint(j, "pools_failed", s->pools_failed);
	json_open(j, "usage", '[');
	for (size_t i = 0; i < s->n_usage; i++)
		usage_json(j, &s->usage[i]);
	json_close(j, ']');
	json_close(j, '}');
}

static void print_daemon(const struct ctl *ctl, const struct gpushm_status *s)
{
	char id[2 * sizeof(s->daemon) + 1], age[24];
	const char *style = ctl->colour ? grid_styles[GRID_BOLD] : "";
	const char *end = ctl->colour ? grid_style_end : "";

	hex(s->daemon, sizeof(s->daemon), id);
	output_age(s->uptime_ms * 1000000, age, sizeof(age));
	printf("%s%s%s, pid %d, up %s, id %s\n", style, s->software, end, s->pid, age, id);
	printf("%u buffers, %u leases, %u connections, %u waiting for a name\n", s->buffers,
	       s->leases, s->peers, s->waiting);
	if (s->suspects)
		printf("%u processes whose socket has closed are not gone yet "
		       "(gpushmctl ls --holders)\n",
		       s->suspects);
	if (s->pools_failed)
		printf("%u pools have failed (gpushmctl pools)\n", s->pools_failed);
	printf("%lu requests, %lu refused, %lu violations; %u of %u file descriptors\n\n",
	       (unsigned long)s->requests, (unsigned long)s->refused, (unsigned long)s->violations,
	       s->fds, s->fds_max);
}

static void count_cell(struct grid *g, uint32_t used, uint32_t max)
{
	if (max == UINT32_MAX)
		grid_cell(g, GRID_PLAIN, "%u", used);
	else
		grid_cell(g, used >= max ? GRID_BAD : GRID_PLAIN, "%u of %u", used, max);
}

static int print_usages(const struct ctl *ctl, const struct gpushm_status *s)
{
	struct grid *g = grid_new("USER >BYTES >BUFFERS >LEASES >CONNECTIONS");
	int r;

	if (!g)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_usage; i++) {
		const struct gpushm_usage *u = &s->usage[i];

		grid_cell(g, GRID_PLAIN, "%s", entry_user(u->uid));
		if (u->bytes_max == UINT64_MAX)
			grid_cell(g, GRID_PLAIN, "%s", ctl_size(ctl, u->bytes));
		else
			grid_cell(g, u->bytes >= u->bytes_max ? GRID_BAD : GRID_PLAIN, "%s of %s",
				  ctl_size(ctl, u->bytes), ctl_size(ctl, u->bytes_max));
		count_cell(g, u->buffers, u->buffers_max);
		count_cell(g, u->leases, u->leases_max);
		count_cell(g, u->peers, u->peers_max);
	}
	r = grid_print(g, ctl->colour, stdout);
	grid_free(g);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct gpushm_status *s = NULL;
	struct json j;
	int r = ctl_connect(ctl);

	if (r)
		return r;
	r = gpushm_status(ctl->connection, &s);
	if (r < 0)
		return ctl_refused(r);
	if (ctl_json(ctl, &j)) {
		status_json(&j, s);
	} else {
		print_daemon(ctl, s);
		r = print_usages(ctl, s);
	}
	gpushm_status_free(s);
	return r < 0 ? ctl_error(CTL_FAILED, "out of memory") : CTL_OK;
}

const struct command command_status = {
	.name = "status",
	.synopsis = "",
	.about = "show the daemon's state and this user's limits",
	.args = (const struct arg[]){ { .name = NULL } },
	.run = run,
};
