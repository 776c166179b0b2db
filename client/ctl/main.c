/* SPDX-License-Identifier: MIT
 *
 * gpushmctl: finds the command, reads its command line into its options, and runs it.
 * It holds no resource but the connection, which ends with the process: a buffer that a command
 * created and did not publish is freed then, however the process ends.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/model/model.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <string.h>

static int check_words(const struct command *c, size_t n)
{
	char text[160];

	if (n >= c->words.min && n <= c->words.max)
		return CTL_OK;
	snprintf(text, sizeof(text), "%s: gpushmctl %s%s%.*s",
		 n < c->words.min ? "something is missing" : "too many words", c->name,
		 *c->synopsis ? " " : "", (int)strcspn(c->synopsis, "\n"), c->synopsis);
	return help_usage_error(c, text);
}

/* options: the command's own, with its defaults. */
static int run_with(struct ctl *ctl, const struct command *c, void *options, char **argv)
{
	const struct arg_target targets[] = { { c->args, options },
					      { c->more_args[0], options },
					      { c->more_args[1], options },
					      { ctl_args, ctl } };
	char err[256];
	size_t n;
	int r = args_parse(argv, targets, array_size(targets), false, &n, err, sizeof(err));

	if (r == -ECANCELED) {
		help_print(c, stdout);
		return CTL_OK;
	}
	if (r < 0)
		return help_usage_error(c, err);
	r = check_words(c, n);
	if (r == CTL_OK && !c->connects_itself)
		r = ctl_connect(ctl);
	if (r)
		return r;
	if (c->loads)
		model_library_offer();
	return c->run ? c->run(ctl, options, n, argv) : ctl_each(ctl, options, n, argv, c->each);
}

static int run_command(struct ctl *ctl, const struct command *c, char **argv)
{
	_cleanup_(free_ptr) void *options = calloc(1, c->options_size + 1);

	if (!options)
		return ctl_error(CTL_FAILED, "out of memory");
	if (c->defaults)
		memcpy(options, c->defaults, c->options_size);
	return run_with(ctl, c, options, argv);
}

static int run(struct ctl *ctl, char **argv)
{
	bool version = false;
	const struct arg own[] = { { "version", ARG_FLAG, 'V', NULL, "", 0 }, { .name = NULL } };
	const struct arg_target targets[] = { { ctl_args, ctl }, { own, &version } };
	const struct command *c;
	char text[256];
	size_t n;
	int r = args_parse(argv, targets, array_size(targets), true, &n, text, sizeof(text));

	if (r < 0 && r != -ECANCELED)
		return help_usage_error(NULL, text);
	if (version) {
		printf("gpushmctl %s (libgpushm %s)\n", GPUSHM_VERSION, gpushm_version());
		return CTL_OK;
	}
	if (r == -ECANCELED) {
		help_print(NULL, stdout);
		return CTL_OK;
	}
	if (!n)
		return help_usage_error(NULL, "a command is missing");
	c = command_find(argv[0]);
	return c ? run_command(ctl, c, argv + 1) : help_unknown_command(argv[0]);
}

/* Output that could not be written is a failure; but a closed pipe needs no message. */
static int finish_output(int code)
{
	errno = output_flush_error();
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (errno == EPIPE)
		return code ? code : CTL_FAILED;
	return ctl_error(CTL_FAILED, "standard output: %s", strerror(errno ? errno : EIO));
}

/* A caller may have closed one of them, and the daemon's socket must not become stdout. */
static void open_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

int main(int argc, char **argv)
{
	struct ctl ctl = { 0 };
	int code;

	open_standard_fds();
	if (argc == 4 && !strcmp(argv[1], "--driver"))
		return ctl_drive(argv + 2);
	/* A file beyond the limit (ulimit -f) is an error, and what was written is removed. */
	signal(SIGXFSZ, SIG_IGN);
	/* For the width of characters in tables; C.UTF-8 is part of the C library, so it is there
	 * on a machine that lacks the user's locale. */
	if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
		setlocale(LC_CTYPE, "C.UTF-8");
	ctl.colour = output_colour(STDOUT_FILENO);
	code = argc > 0 ? run(&ctl, argv + 1) : CTL_USAGE;
	code = finish_output(code);
	gpushm_disconnect(ctl.connection);
	ctl_obey_signal();
	return code;
}
