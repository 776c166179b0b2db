/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl help`, `--help`, and the errors about a wrong command line, all from the table of
 * commands and their options.
 */
#include "client/ctl/ctl.h"

#include "proto/base/own.h"

#include <string.h>

static void print_usage(FILE *out)
{
	fprintf(out, "Usage: gpushmctl [OPTIONS] COMMAND ...\n\n"
		     "Named buffers in GPU and host memory, shared between processes.\n\n"
		     "Commands:\n");
	for (const struct command *const *c = commands; *c; c++)
		fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->about);
	fprintf(out, "\nOptions, before or after the command:\n");
	args_help(ctl_args, out);
	fprintf(out, "      --version            print the versions of program and library\n\n"
		     "gpushmctl help COMMAND explains a command; gpushmctl(1) is the manual.\n");
}

static void print_command_usage(const struct command *c, FILE *out)
{
	const char *line = c->synopsis;

	for (const char *lead = "Usage: "; line; lead = "       ") {
		size_t len = strcspn(line, "\n");

		fprintf(out, "%sgpushmctl %s%s%.*s\n", lead, c->name, len ? " " : "", (int)len,
			line);
		line = line[len] ? line + len + 1 : NULL;
	}
	fprintf(out, "\n%c%s.\n", c->about[0] - 'a' + 'A', c->about + 1);
	if (c->more)
		fprintf(out, "\n%s\n", c->more);
	fprintf(out, "\nOptions:\n");
	args_help(c->args, out);
	for (size_t i = 0; i < array_size(c->more_args); i++)
		args_help(c->more_args[i], out);
	args_help(ctl_args, out);
}

int help_usage_error(const struct command *c, const char *text)
{
	ctl_error(CTL_USAGE, "%s%s%s", c ? c->name : "", c ? ": " : "", text);
	if (c)
		fprintf(stderr, "gpushmctl %s --help lists what is allowed.\n", c->name);
	else
		fprintf(stderr, "gpushmctl --help lists the commands and options.\n");
	return CTL_USAGE;
}

int help_unknown_command(const char *typed)
{
	const char *best = command_suggest(typed);
	char text[256];

	snprintf(text, sizeof(text), "there is no command \"%.100s\"%s%s%s", typed,
		 best ? "; did you mean \"" : "", best ? best : "", best ? "\"?" : "");
	return help_usage_error(NULL, text);
}

void help_print(const struct command *c, FILE *out)
{
	if (c)
		print_command_usage(c, out);
	else
		print_usage(out);
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct command *c = n ? command_find(words[0]) : NULL;

	if (n && !c)
		return help_unknown_command(words[0]);
	help_print(c, stdout);
	return CTL_OK;
}

const struct command command_help = {
	.name = "help",
	.synopsis = "[COMMAND]",
	.about = "list the commands, or explain one",
	.words = { 0, 1 },
	.connects_itself = true,
	.run = run,
};
