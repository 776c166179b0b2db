/* SPDX-License-Identifier: MIT
 *
 * The commands that change something by one request for each buffer or pool: `rm` unlinks names,
 * `mv` renames, `clean` marks dirty buffers as clean, `flush` returns freed memory to driver and
 * kernel, and `restart` lets the daemon's program, or its update, take over.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/pattern.h"
#include "proto/base/own.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct rm_options {
	bool force;
};

/* A buffer that another process unlinks meanwhile is no error. */
static int remove_matching(struct ctl *ctl, const char *pattern, bool force)
{
	_cleanup_(free_result) struct gpushm_stat **stats = NULL;
	size_t n, found = 0;
	int r = pattern_list(ctl->connection, pattern, 0, &stats, &n), first = CTL_OK;

	if (r < 0)
		return ctl_refused(r);
	for (size_t i = 0; i < n; i++) {
		if (!pattern_matches(pattern, stats[i]->name))
			continue;
		found++;
		r = gpushm_unlink(ctl->connection, stats[i]->name);
		r = r == -ENOENT ? CTL_OK : ctl_result(r);
		if (!first)
			first = r;
	}
	if (!found && !force)
		return ctl_error(CTL_NOT_FOUND, "no buffer matches \"%s\"", pattern);
	return first;
}

/* Of the buffers below the name, too, for it may be that of a folder to the user. */
static int report_missing(struct ctl *ctl, const char *word)
{
	_cleanup_(free_ptr) char *folder = NULL;
	_cleanup_(free_result) struct gpushm_stat **below = NULL;
	size_t n = 0;

	if (asprintf(&folder, "%s/", word) < 0)
		return ctl_error(CTL_FAILED, "out of memory");
	if (pattern_list(ctl->connection, folder, 0, &below, &n) == 0 && n > 0)
		return ctl_error(CTL_NOT_FOUND,
				 "no buffer \"%s\"; gpushmctl rm %s removes the %zu below it", word,
				 folder, n);
	return ctl_error(CTL_NOT_FOUND, "no buffer \"%s\"; gpushmctl ls shows what there is", word);
}

/* A buffer may have a name that looks like a pattern. */
static int remove_word(struct ctl *ctl, const void *options, const char *word)
{
	bool force = ((const struct rm_options *)options)->force;
	int r = pattern_is_folder(word) ? -ENOENT : gpushm_unlink(ctl->connection, word);

	if (r == -ENOENT && pattern_is(word))
		return remove_matching(ctl, word, force);
	/* Not where the daemon knows how the buffer ended. */
	if (r == -ENOENT && !force && strstr(gpushm_error(), "gpushmctl ls shows what there is"))
		return report_missing(ctl, word);
	return r == -ENOENT && force ? CTL_OK : ctl_result(r);
}

const struct command command_rm = {
	.name = "rm",
	.synopsis = "[--force] NAME|PATTERN...",
	.about = "unlink buffers; their memory is freed with the last lease",
	.more = "A PATTERN, in quotes, has *, ? or [, and * matches any characters:\n"
		"rm 'model/*'. model/ stands for all names below it. A buffer that has the\n"
		"PATTERN as its name is taken first.",
	OPTIONS(rm_options, FLAG(rm_options, force, "force", 'f',
				 "a NAME or PATTERN without a buffer is no error")),
	.words = { 1, SIZE_MAX },
	.each = remove_word,
};

struct mv_options {
	bool force;
};

static int run_mv(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct mv_options *o = options;

	int r = gpushm_rename(ctl->connection, words[0], words[1], o->force ? GPUSHM_REPLACE : 0);

	if (r == -EEXIST)
		return ctl_error(CTL_FAILED, "%s (mv --force replaces)", gpushm_error());
	return ctl_result(r);
}

const struct command command_mv = {
	.name = "mv",
	.synopsis = "[--force] NAME NEW",
	.about = "rename a buffer, in one step",
	.more = "With --force, NEW may be the name of another buffer, which loses it in the same\n"
		"step: nobody finds NEW missing. Processes that have the old buffer open keep it\n"
		"until they close it. The owner of both buffers and administrators may do that.",
	OPTIONS(mv_options,
		FLAG(mv_options, force, "force", 'f', "take NEW from the buffer that has it")),
	.words = { 2, 2 },
	.run = run_mv,
};

static int clean(struct ctl *ctl, const void *options, const char *word)
{
	return ctl_result(gpushm_clean(ctl->connection, word));
}

const struct command command_clean = {
	.name = "clean",
	.synopsis = "NAME...",
	.about = "mark dirty buffers as clean after you have checked them",
	.words = { 1, SIZE_MAX },
	.each = clean,
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
	.words = { 0, 1 },
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
	_cleanup_(free_result) struct gpushm_status *s = NULL;
	int r = gpushm_restart(ctl->connection);

	if (r == 0)
		r = gpushm_status(ctl->connection, &s);
	if (r == 0)
		report_restart(ctl, s);
	return ctl_result(r);
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
