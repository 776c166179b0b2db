/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl pools`: lists the pools, how much of each is used, and whether this user may create
 * buffers in it. A failed pool is listed with the daemon's reason.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/record_json.h"
#include "proto/base/own.h"
#include "proto/words.h"

struct options {
	bool wide;
};

void pool_json_members(struct json *j, const struct gpushm_pool *p)
{
	json_record(j, json_pool, p, false);
	json_uint(j, "ending_bytes", p->suspect_bytes);
}

static void place_cell(struct table *t, const struct gpushm_pool *p)
{
	if (p->device_name[0] && p->device >= 0)
		table_cell(t, TABLE_PLAIN, "%s (cuda:%d)", p->device_name, p->device);
	else if (p->device_name[0])
		table_cell(t, TABLE_PLAIN, "%s (%s)", p->device_name, p->pci_id);
	else if (p->kind == GPUSHM_PINNED && p->numa_node >= 0)
		table_cell(t, TABLE_PLAIN, "host, NUMA node %d", p->numa_node);
	else
		table_cell(t, TABLE_PLAIN, "host");
}

static void note_cell(struct table *t, const struct gpushm_pool *p, bool exact)
{
	if (p->failed)
		table_cell(t, TABLE_BAD, "failed: %s", p->why);
	else if (!p->allowed)
		table_cell(t, TABLE_WARN, "you may not create buffers in it");
	else if (p->suspect_bytes)
		table_cell(t, TABLE_WARN, "%s%s held by suspects (gpushmctl ls --holders)",
			   p->is_default ? "default; " : "",
			   output_size(p->suspect_bytes, exact).text);
	else
		table_cell(t, TABLE_PLAIN, "%s", p->is_default ? "default" : "");
}

void pool_cells(struct table *t, const struct gpushm_pool *p, bool exact)
{
	table_cell(t, TABLE_PLAIN, "%s", p->name);
	table_cell(t, TABLE_PLAIN, "%s", kind_word(p->kind));
	place_cell(t, p);
	table_cell(t, TABLE_PLAIN, "%u", p->buffers);
	table_cell(t, TABLE_PLAIN, "%s", output_size(p->used_bytes, exact).text);
	table_cell(t, TABLE_PLAIN, "%s", output_size(p->pending_bytes, exact).text);
	table_cell(t, TABLE_PLAIN, "%s", output_size(p->bytes, exact).text);
	table_cell(t, TABLE_PLAIN, "%s", output_size(p->max_buffer_bytes, exact).text);
	note_cell(t, p, exact);
}

static int print_pools(const struct ctl *ctl, struct gpushm_pool *const *pools, size_t n)
{
	struct table *t =
		table_new("POOL 5KIND 4PLACE 3>BUFFERS 6>USED 2>PENDING >SIZE 1>LARGEST |NOTE");

	for (size_t i = 0; i < n; i++)
		pool_cells(t, pools[i], ctl->bytes);
	return ctl_print(ctl, t);
}

static int run(struct ctl *ctl, const void *options, size_t n_words, char **words)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	const struct options *o = options;
	struct json j;
	size_t n;
	int r = gpushm_pools(ctl->connection, &pools, &n);

	ctl->wide = o->wide;
	if (r < 0)
		return ctl_refused(r);
	if (!ctl_json(ctl, &j))
		return print_pools(ctl, pools, n);
	json_open(&j, NULL, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(&j, NULL, '{');
		pool_json_members(&j, pools[i]);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	return CTL_OK;
}

const struct command command_pools = {
	.name = "pools",
	.synopsis = "[--wide]",
	.about = "list the pools that memory comes from",
	OPTIONS(options, ARG_WIDE(options)),
	.run = run,
};
