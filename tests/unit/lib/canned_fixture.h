/* SPDX-License-Identifier: MIT
 *
 * A canned server and a connection to it around each test, and checks of an error's text.
 */
#pragma once

#include "client/lib/link/connection.h"

#include "proto/base/own.h"
#include "tests/lib/canned.h"
#include "tests/lib/fds.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>

static struct canned *server;
static struct gpushm *c;

static inline void setup(void)
{
	fds_mark();
	unsetenv("GPUSHM_SOCKET");
	unsetenv("XDG_RUNTIME_DIR");
	server = canned_new();
}

static inline void teardown(void)
{
	c = gpushm_disconnect(c);
	server = canned_free(server);
	fds_check();
}

static inline int connect_to_it(void)
{
	canned_serve(server);
	return gpushm_connect(canned_path(server), &c);
}

static inline void connected(void)
{
	ck_assert_msg(connect_to_it() == 0, "%s", gpushm_error());
}

static inline void says(const char *words)
{
	ck_assert_msg(strstr(gpushm_error(), words), "\"%s\" is not in \"%s\"", words,
		      gpushm_error());
}

/* The connection has ended: the first error says why, and every later call says to connect again.
 */
static inline void refuses_for_good(int result, int number, const char *words)
{
	ck_assert_int_eq(result, -number);
	says(words);
	ck_assert_str_eq(gpushm_error_code(), "");
	ck_assert_int_eq(gpushm_unlink(c, "again"), -ECONNRESET);
	says("connect again");
}

static inline ProtobufCBinaryData bytes(const char *text, size_t n)
{
	return (ProtobufCBinaryData){ .len = n, .data = (uint8_t *)text };
}

static inline int null_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}
