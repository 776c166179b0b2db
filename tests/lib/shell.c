/* SPDX-License-Identifier: MIT
 *
 * Runs scripts. The output goes to files, not to pipes: so the test never waits for a process that
 * a script leaves behind, and any amount fits.
 */
#include "tests/lib/shell.h"

#include "proto/base/own.h"
#include "tests/lib/daemon.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void shell_open(struct shell *s)
{
	*s = (struct shell){ .folder = "/tmp/gpushm-shell-XXXXXX" };
	ck_assert_ptr_nonnull(mkdtemp(s->folder));
}

void shell_close(struct shell *s)
{
	ck_assert_int_eq(shell_run(s, "rm -rf \"$PWD\""), 0);
	free_ptr(&s->out);
	free_ptr(&s->err);
}

static void redirect(int to, const char *file)
{
	int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || dup2(fd, to) < 0)
		_exit(126);
	close(fd);
}

static void become_script(const struct shell *s, const char *script)
{
	char source[PATH_MAX], out[96], err[96];

	snprintf(out, sizeof(out), "%s.out", s->folder);
	snprintf(err, sizeof(err), "%s.err", s->folder);
	if (!getcwd(source, sizeof(source)) || chdir(s->folder) < 0)
		_exit(126);
	redirect(STDIN_FILENO, "/dev/null");
	redirect(STDOUT_FILENO, out);
	redirect(STDERR_FILENO, err);
	setenv("source", source, 1);
	setenv("ctl", build_path("gpushmctl"), 1);
	execlp("bash", "bash", "-uc", script, (char *)NULL);
	_exit(127);
}

static char *take_file(const struct shell *s, const char *suffix)
{
	char path[96];
	_cleanup_(close_fd) int fd = -1;
	char *text = NULL;
	off_t size;

	snprintf(path, sizeof(path), "%s%s", s->folder, suffix);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	size = lseek(fd, 0, SEEK_END);
	text = calloc(1, (size_t)size + 1);
	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(pread(fd, text, (size_t)size, 0), size);
	unlink(path);
	return text;
}

/* bash -c exits with the status of the last command before a syntax error, which may be 0. */
static void check_script(const struct shell *s, const char *script)
{
	static const char *const complaints[] = { "syntax error", "operator expected",
						  "unbound variable", "command not found" };

	for (size_t i = 0; i < array_size(complaints); i++)
		ck_assert_msg(!strstr(s->err, complaints[i]), "a wrong script: %s\n%s", script,
			      s->err);
}

static int run(struct shell *s, const char *script)
{
	int status = 0;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		become_script(s, script);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	free(s->out);
	free(s->err);
	s->out = take_file(s, ".out");
	s->err = take_file(s, ".err");
	check_script(s, script);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int shell_run(struct shell *s, const char *format, ...)
{
	_cleanup_(free_ptr) char *script = NULL;
	va_list ap;

	va_start(ap, format);
	ck_assert_int_ge(vasprintf(&script, format, ap), 0);
	va_end(ap);
	return run(s, script);
}

void shell_expect(struct shell *s, int status, const char *format, ...)
{
	_cleanup_(free_ptr) char *script = NULL;
	va_list ap;
	int r;

	va_start(ap, format);
	ck_assert_int_ge(vasprintf(&script, format, ap), 0);
	va_end(ap);
	r = run(s, script);
	ck_assert_msg(r == status, "exit status %d, not %d, of: %s\n%s%s", r, status, script,
		      s->out, s->err);
}
