/* SPDX-License-Identifier: MIT
 *
 * Options come first, then the environment. A variable of the environment does not count in a
 * program that runs with rights that its caller does not have (secure_getenv).
 */
#include "client/models/web/credentials.h"

#include "client/models/fail.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_DEFAULT_S 60u

/* ---- the token ---- */

/* The first line, without spaces at its ends. What is left must be fit for a header. */
static int check_token(const char *from, const char *text, char **ret)
{
	size_t n;

	text += strspn(text, " \t");
	n = strcspn(text, "\r\n");
	while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
		n--;
	if (n == 0)
		return load_fail(EINVAL, "%s: its first line has no token", from);
	for (size_t i = 0; i < n; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return load_fail(EINVAL,
					 "%s: a token has printable characters without spaces",
					 from);
	*ret = strndup(text, n);
	return *ret ? 0 : load_no_memory();
}

static int read_token_file(const char *path, char **ret)
{
	_cleanup_(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char text[TOKEN_BYTES_MAX + 1];
	ssize_t n = fd < 0 ? -1 : 0, got = 0;
	int r;

	while (fd >= 0 && got < (ssize_t)sizeof(text) - 1 &&
	       (n = read(fd, text + got, sizeof(text) - 1 - (size_t)got)) > 0)
		got += n;
	if (n < 0)
		return load_fail(errno, "the file with the token, %s: %s", path, strerror(errno));
	text[got] = '\0';
	if (got == (ssize_t)sizeof(text) - 1 && !strchr(text, '\n'))
		r = load_fail(EINVAL, "%s: its first line is too long for a token", path);
	else
		r = check_token(path, text, ret);
	explicit_bzero(text, sizeof(text));
	return r;
}

static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value && value[0] ? value : NULL;
}

static bool is_hub(const struct url *u)
{
	return strcmp(u->host, "huggingface.co") == 0 || strcmp(u->host, "hf.co") == 0;
}

static int find_token(const char *file, const struct url *u, char **ret)
{
	const char *name = "GPUSHM_TOKEN", *value;

	if (!file)
		file = variable("GPUSHM_TOKEN_FILE");
	if (file)
		return read_token_file(file, ret);
	value = variable(name);
	if (!value && is_hub(u))
		value = variable(name = "HF_TOKEN");
	return value ? check_token(name, value, ret) : 0;
}

static void drop_token(struct credentials *c)
{
	if (c->token)
		explicit_bzero(c->token, strlen(c->token));
	free(c->token);
	c->token = NULL;
}

/* ---- files of keys ---- */

/* libcurl would say "problem with the local SSL certificate". */
static int set_file(const char *what, const char *option, const char *name, char **ret)
{
	const char *path = option ? option : variable(name);

	if (!path)
		return 0;
	if (access(path, R_OK) < 0)
		return load_fail(errno, "the file with %s, %s: %s", what, path, strerror(errno));
	*ret = strdup(path);
	return *ret ? 0 : load_no_memory();
}

static int set_files(const struct gpushm_remote_options *o, struct credentials *c)
{
	int r = set_file("the certificates of authorities", o->ca, "GPUSHM_TLS_CA", &c->ca);

	if (r == 0)
		r = set_file("the certificate", o->cert, "GPUSHM_TLS_CERT", &c->cert);
	if (r == 0)
		r = set_file("the certificate's key", o->key, "GPUSHM_TLS_KEY", &c->key);
	if (r == 0 && c->key && !c->cert)
		r = load_fail(EINVAL, "there is a key, %s, and no certificate for it", c->key);
	return r;
}

/* ---- the whole ---- */

int credentials_read_options(const struct gpushm_remote_options *from,
			     struct gpushm_remote_options *ret)
{
	int r = load_read_struct("remote options", from, ret, sizeof(*ret));

	ret->struct_size = sizeof(*ret);
	return r;
}

int credentials_read(const struct gpushm_remote_options *o, const struct url *u,
		     struct credentials *ret)
{
	struct gpushm_remote_options known;
	unsigned patience;
	int r = credentials_read_options(o, &known);

	*ret = (struct credentials){ .netrc = true };
	if (r < 0)
		return r;
	patience = known.patience_s ? known.patience_s : PATIENCE_DEFAULT_S;
	ret->patience_ms = patience < UINT_MAX / 2000 ? patience * 1000 : UINT_MAX / 2;
	r = find_token(known.token_file, u, &ret->token);
	if (r == 0)
		r = set_files(&known, ret);
	if (r < 0)
		return r;
	ret->withheld = !u->tls && !u->here;
	if (ret->withheld)
		drop_token(ret);
	if (ret->withheld || ret->token)
		ret->netrc = false;
	return 0;
}

void credentials_clear(struct credentials *c)
{
	drop_token(c);
	free(c->ca);
	free(c->cert);
	free(c->key);
	*c = (struct credentials){ 0 };
}
