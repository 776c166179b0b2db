/* SPDX-License-Identifier: MIT
 *
 * The fixture that tests of planned restarts share.
 */
#include "tests/lib/reexec.h"

#include <signal.h>

#define BYTES 200000u

void reexec_setup(void)
{
	daemon_start_with(&d, "", &(struct daemon_options){ .copied = true });
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

struct gpushm_status *reexec_status(void)
{
	struct gpushm_status *st = NULL;

	ck_assert_msg(gpushm_status(c, &st) == 0, "%s", gpushm_error());
	return st;
}

void reexec_restart(void)
{
	daemon_forget_notifications(&d);
	ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
	daemon_await(&d, "READY=1");
}

void reexec_replace(void)
{
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert_int_eq(daemon_wait(&d), 0);
	ck_assert_int_lt(access(d.socket, F_OK), 0);
	daemon_forget_notifications(&d);
	daemon_restart(&d);
	gpushm_disconnect(c);
	c = NULL;
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static void fill(unsigned char *bytes, char seed)
{
	for (unsigned i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 37 + (i >> 9) + (unsigned)seed);
}

struct gpushm_buffer *reexec_make(const char *pool, const char *name, enum gpushm_state state)
{
	struct gpushm_attr attr = { sizeof(attr), "epoch", "12", 2 };
	struct gpushm_create_options o = {
		.struct_size = sizeof(o), .pool = pool, .attrs = &attr, .n_attrs = 1
	};
	struct gpushm_buffer *b = client_create(name, BYTES, &o);
	unsigned char bytes[BYTES];

	fill(bytes, name[0]);
	ck_assert_int_eq(gpushm_write(b, 0, bytes, BYTES), 0);
	ck_assert_msg(gpushm_publish(b, state) == 0, "%s", gpushm_error());
	return b;
}

void reexec_check(struct gpushm_buffer *b, const char *name)
{
	unsigned char bytes[BYTES], want[BYTES];

	fill(want, name[0]);
	ck_assert_msg(gpushm_read(b, 0, bytes, BYTES) == 0, "%s", gpushm_error());
	ck_assert_mem_eq(bytes, want, BYTES);
}
