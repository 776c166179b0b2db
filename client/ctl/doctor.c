/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl doctor`: what this machine can do, and why not. Nothing is concluded from a version
 * where it can be tried instead. The report is written line by line as it comes, because starting
 * a driver can take a second, or hang, and then the last line tells where.
 */
#include "client/ctl/doctor.h"

#include "client/ctl/grid.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <stdarg.h>

static const char *const words[] = { "ok", "warn", "fail" };
static const enum grid_style styles[] = { GRID_GOOD, GRID_WARN, GRID_BAD };

static void say_json(struct doctor *d, enum finding finding, const char *check, const char *todo,
		     const char *text)
{
	json_open(&d->json, NULL, '{');
	json_string(&d->json, "check", check);
	json_string(&d->json, "result", words[finding]);
	json_string(&d->json, "what", text);
	json_string(&d->json, "todo", todo);
	json_close(&d->json, '}');
}

static void say_text(struct doctor *d, enum finding finding, const char *check, const char *todo,
		     const char *text)
{
	bool colour = d->ctl->colour;

	if (d->ctl->quiet && finding == FINDING_OK)
		return;
	printf("%s%-4s%s  %-14s %s\n", colour ? grid_styles[styles[finding]] : "", words[finding],
	       colour ? grid_style_end : "", check, text);
	if (todo)
		printf("%22s-> %s\n", "", todo);
	fflush(stdout);
}

void doctor_say(struct doctor *d, enum finding finding, const char *check, const char *todo,
		const char *format, ...)
{
	_cleanup_(free_ptr) char *escaped = NULL;
	char text[1024];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	n = n < (int)sizeof(text) ? n : (int)sizeof(text) - 1;
	d->counts[finding]++;
	escaped = output_escape(text, n < 0 ? 0 : (size_t)n);
	(d->as_json ? say_json : say_text)(d, finding, check, todo, escaped ? escaped : "");
}

static void finish(struct doctor *d)
{
	if (d->as_json) {
		json_close(&d->json, ']');
		json_uint(&d->json, "ok", d->counts[FINDING_OK]);
		json_uint(&d->json, "warn", d->counts[FINDING_WARN]);
		json_uint(&d->json, "fail", d->counts[FINDING_FAIL]);
		json_close(&d->json, '}');
	} else {
		printf("%u ok, %u warnings, %u failed\n", d->counts[FINDING_OK],
		       d->counts[FINDING_WARN], d->counts[FINDING_FAIL]);
	}
}

static int run(struct ctl *ctl, const void *options, size_t n, char **argv)
{
	struct doctor d = { .ctl = ctl };

	d.as_json = ctl_json(ctl, &d.json);
	if (d.as_json) {
		json_open(&d.json, NULL, '{');
		json_open(&d.json, "checks", '[');
	}
	doctor_system(&d);
	doctor_nodes(&d);
	doctor_cuda(&d);
	if (doctor_daemon(&d))
		doctor_pools(&d);
	finish(&d);
	return d.counts[FINDING_FAIL] ? CTL_FAILED : CTL_OK;
}

const struct command command_doctor = {
	.name = "doctor",
	.synopsis = "",
	.about = "find out what this machine can do, and why not",
	.more = "Tries the kernel's features, the driver's device nodes, the driver itself, the\n"
		"daemon, and a small buffer in each pool, read by a second process. The exit code\n"
		"is 1 if something failed; warnings do not count.",
	.args = (const struct arg[]){ { .name = NULL } },
	.run = run,
};
