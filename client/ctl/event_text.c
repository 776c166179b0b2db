/* SPDX-License-Identifier: MIT
 *
 * The wording of events. Each type has its own facts; who did it stands at the end.
 */
#include "client/ctl/event_text.h"

#include "proto/words.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct output_text event_time(const struct gpushm_logged_event *e)
{
	time_t seconds = (time_t)(e->time_ns / 1000000000u);
	struct output_text t = { "" };
	struct tm tm;
	size_t n = 0;

	if (localtime_r(&seconds, &tm))
		n = strftime(t.text, sizeof(t.text), "%T", &tm);
	snprintf(t.text + n, sizeof(t.text) - n, ".%03u",
		 (unsigned)(e->time_ns / 1000000u % 1000u));
	return t;
}

/* An unlinked buffer of an earlier daemon has no name. */
static void print_name(FILE *out, const struct gpushm_logged_event *e)
{
	if (*e->name)
		fputs(e->name, out);
	else if (e->buffer)
		fprintf(out, "buffer %llu", (unsigned long long)e->buffer);
}

static void print_facts(FILE *out, const struct gpushm_logged_event *e, bool exact)
{
	print_name(out, e);
	if (!strcmp(e->type, "created"))
		fprintf(out, ", %s in pool %s", output_size(e->bytes, exact).text, e->pool);
	else if (!strcmp(e->type, "published"))
		fprintf(out, " %s%s%s", state_word(e->state), *e->former ? ", before " : "",
			e->former);
	else if (!strcmp(e->type, "renamed"))
		fprintf(out, ", before %s", e->former);
	else if (!strcmp(e->type, "opened") || !strcmp(e->type, "died"))
		fprintf(out, " for %s", e->access == GPUSHM_WRITE ? "writing" : "reading");
	else if (!strcmp(e->type, "freed"))
		fprintf(out, ", %s in pool %s", output_size(e->bytes, exact).text, e->pool);
	else if (!strcmp(e->type, "refused"))
		fputs(e->verb, out);
	else if (!e->buffer)
		fputs(e->pool, out);
}

char *event_text(const struct gpushm_logged_event *e, bool exact)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	print_facts(out, e, exact);
	if (e->uid != (uid_t)-1)
		fprintf(out, "%sby %s (process %d, %s)", ftell(out) > 0 ? " " : "",
			output_user(e->uid), e->pid, e->command);
	if (*e->text)
		fprintf(out, "%s%s%s%s", ftell(out) > 0 ? ": " : "", e->code, *e->code ? ": " : "",
			e->text);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}
