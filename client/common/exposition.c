/* SPDX-License-Identifier: MIT
 *
 * A number of ns is written as seconds without a detour by floating point, so no digit is lost.
 */
#include "client/common/exposition.h"

#include <inttypes.h>
#include <string.h>

#define NS 1000000000u

static const struct {
	const char *word;
	const char *prometheus; /* the word there */
	const char *suffix;	/* that Prometheus' name of the family has */
} types[] = {
	[EXPOSITION_GAUGE] = { "gauge", "gauge", "" },
	[EXPOSITION_COUNTER] = { "counter", "counter", "_total" },
	[EXPOSITION_HISTOGRAM] = { "histogram", "histogram", "" },
	[EXPOSITION_SUMMARY] = { "summary", "summary", "" },
	[EXPOSITION_INFO] = { "info", "gauge", "_info" },
};

enum exposition_format exposition_format_for(const char *accept)
{
	return accept && strstr(accept, "application/openmetrics-text") ? EXPOSITION_OPENMETRICS
									: EXPOSITION_PROMETHEUS;
}

const char *exposition_content_type(enum exposition_format format)
{
	return format == EXPOSITION_OPENMETRICS
		       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		       : "text/plain; version=0.0.4; charset=utf-8";
}

void exposition_family(struct exposition *e, enum exposition_type type, const char *name,
		       const char *unit, const char *help)
{
	bool classic = e->format == EXPOSITION_PROMETHEUS;
	const char *suffix = classic ? types[type].suffix : "";

	e->family = name;
	fprintf(e->out, "# HELP %s%s %s\n", name, suffix, help);
	fprintf(e->out, "# TYPE %s%s %s\n", name, suffix,
		classic ? types[type].prometheus : types[type].word);
	if (unit && !classic)
		fprintf(e->out, "# UNIT %s %s\n", name, unit);
}

void exposition_begin(struct exposition *e, const char *suffix)
{
	fprintf(e->out, "%s%s", e->family, suffix);
	e->labelled = false;
}

static void open_label(struct exposition *e, const char *name)
{
	fprintf(e->out, "%c%s=\"", e->labelled ? ',' : '{', name);
	e->labelled = true;
}

void exposition_label(struct exposition *e, const char *name, const char *value)
{
	if (!value || !*value)
		return;
	open_label(e, name);
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", e->out);
		else if (strchr("\\\"", *value))
			fprintf(e->out, "\\%c", *value);
		else
			fputc(*value, e->out);
	}
	fputc('"', e->out);
}

/* "0.0000025", "1.0". */
static void write_seconds(FILE *out, uint64_t ns)
{
	char digits[16];
	int n = snprintf(digits, sizeof(digits), "%09u", (unsigned)(ns % NS));

	while (n > 1 && digits[n - 1] == '0')
		n--;
	fprintf(out, "%" PRIu64 ".%.*s", ns / NS, n, digits);
}

void exposition_bound(struct exposition *e, uint64_t ns)
{
	open_label(e, "le");
	if (ns == UINT64_MAX)
		fputs("+Inf", e->out);
	else
		write_seconds(e->out, ns);
	fputc('"', e->out);
}

static void close_labels(struct exposition *e)
{
	fputs(e->labelled ? "} " : " ", e->out);
}

void exposition_number(struct exposition *e, uint64_t value)
{
	close_labels(e);
	fprintf(e->out, "%" PRIu64 "\n", value);
}

void exposition_seconds(struct exposition *e, uint64_t ns)
{
	close_labels(e);
	write_seconds(e->out, ns);
	fputc('\n', e->out);
}

void exposition_sample(struct exposition *e, const char *suffix, const char *label,
		       const char *value, uint64_t number)
{
	exposition_begin(e, suffix);
	exposition_label(e, label, value);
	exposition_number(e, number);
}

void exposition_words(struct exposition *e, const char *suffix, const char *label,
		      const char *const *words, const uint64_t *numbers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		exposition_sample(e, suffix, label, words[i], numbers[i]);
}

void exposition_one(struct exposition *e, enum exposition_type type, const char *name,
		    const char *unit, const char *help, uint64_t value)
{
	exposition_family(e, type, name, unit, help);
	exposition_begin(e, type == EXPOSITION_COUNTER ? "_total" : "");
	exposition_number(e, value);
}

void exposition_end(struct exposition *e)
{
	if (e->format == EXPOSITION_OPENMETRICS)
		fputs("# EOF\n", e->out);
}
