/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl metrics`: prints what the daemon counts, as gpushm-exporter serves it.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/snapshot.h"

#include <string.h>

struct options {
	bool by_owner, by_stream;
	const char *format;
};

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct exposition e = { .out = stdout };
	unsigned by =
		(o->by_owner ? SNAPSHOT_BY_OWNER : 0) | (o->by_stream ? SNAPSHOT_BY_STREAM : 0);
	struct snapshot s;
	int r;

	if (ctl->json)
		return ctl_error(CTL_USAGE, "metrics: there is no --json here; gpushmctl status "
					    "and gpushmctl pools have it");
	r = snapshot_read(ctl->connection, by, &s);
	if (r < 0)
		return ctl_refused(r);
	if (o->format && !strcmp(o->format, "prometheus"))
		e.format = EXPOSITION_PROMETHEUS;
	snapshot_write(&s, &e, by);
	snapshot_done(&s);
	return CTL_OK;
}

const struct command command_metrics = {
	.name = "metrics",
	.synopsis = "[--by-owner] [--by-stream] [--format=FORMAT]",
	.about = "print what the daemon counts, for Prometheus",
	OPTIONS(options, FLAG(options, by_owner, "by-owner", 0, "print what each user holds, too"),
		FLAG(options, by_stream, "by-stream", 0, "print each stream, too"),
		ARG(options, format, "format", ARG_CHOICE, 0, "openmetrics|prometheus",
		    "OpenMetrics 1.0 (default), or Prometheus' text format")),
	.run = run,
};
