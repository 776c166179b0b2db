/* SPDX-License-Identifier: MIT
 *
 * The commands that are one request for each of their words: `rm` unlinks names, `clean` marks
 * dirty buffers as clean, `flush` returns freed memory to driver and kernel, and `restart` lets the
 * daemon's program, or its update, take over.
 */
#include "client/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>

struct rm_options {
	bool force;
};

/* Sends the request for each word, and goes on after an error. The first exit code that is not
 * CTL_OK. */
static int each_word(struct ctl *ctl, int (*request)(struct gpushm *, const char *), int allowed,
		     size_t n, char **words)
{
	int first = CTL_OK;

	for (size_t i = 0; i < n; i++) {
		int r = request(ctl->connection, words[i]);

		r = r == allowed ? CTL_OK : ctl_result(r);
		if (!first)
			first = r;
	}
	return first;
}

static int run_rm(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct rm_options *o = options;

	return each_word(ctl, gpushm_unlink, o->force ? -ENOENT : 0, n, words);
}

const struct command command_rm = {
	.name = "rm",
	.synopsis = "[--force] NAME...",
	.about = "unlink buffers; their memory is freed with the last lease",
	.args = ARGS({ "force", ARG_FLAG, 'f', NULL, "a missing name is no error",
		       offsetof(struct rm_options, force) }),
	.options_size = sizeof(struct rm_options),
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_rm,
};

static int run_clean(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return each_word(ctl, gpushm_clean, 0, n, words);
}

const struct command command_clean = {
	.name = "clean",
	.synopsis = "NAME...",
	.about = "mark dirty buffers as clean after you have checked them",
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_clean,
};

static int run_flush(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return ctl_result(gpushm_flush(ctl->connection, n ? words[0] : NULL));
}

const struct command command_flush = {
	.name = "flush",
	.synopsis = "[POOL]",
	.about = "return freed memory that pools keep for reuse",
	.more = "Without POOL it flushes all pools that the user may create buffers in. When the\n"
		"command ends, the memory is returned to the driver or the kernel.",
	.max_words = 1,
	.run = run_flush,
};

static void report_restart(const struct ctl *ctl, const struct gpushm_status *s)
{
	struct json j;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "software", s->software);
		json_int(&j, "pid", s->pid);
		json_uint(&j, "buffers", s->buffers);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		output_line(stdout, "%s, pid %d, has taken over with %u %s", s->software, s->pid,
			    OUTPUT_COUNT(s->buffers, "buffer"));
	}
}

static int run_restart(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct gpushm_status *s = NULL;
	int r = gpushm_restart(ctl->connection);

	if (r == 0)
		r = gpushm_status(ctl->connection, &s);
	if (r < 0)
		return ctl_refused(r);
	report_restart(ctl, s);
	gpushm_status_free(s);
	return CTL_OK;
}

const struct command command_restart = {
	.name = "restart",
	.synopsis = "",
	.about = "restart the daemon with its program file, or its update",
	.more = "The process stays the same, and so do published buffers and leases; clients\n"
		"reconnect by themselves. If the new program cannot take over, the old one\n"
		"continues. Administrators only.",
	.run = run_restart,
};
