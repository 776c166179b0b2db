/* SPDX-License-Identifier: MIT
 *
 * Stands in for fetch.c where the library is built without libcurl's headers: fetch_new() says what
 * to install, and no other function here is ever called for a fetch.
 */
#include "client/gpushm_private.h"
#include "client/models/web/fetch.h"

int fetch_new(struct fetch **ret)
{
	return gpushm_private_fail(ENOSYS, "this build of libgpushm-load can't read URLs: build it "
					   "where libcurl4-openssl-dev is installed");
}

struct fetch *fetch_free(struct fetch *f)
{
	return NULL;
}

int fetch_begin(struct fetch *f, const struct ask *a, const struct url *u, struct load_stop stop,
		enum fate *ret)
{
	return -ENOSYS;
}

int fetch_body(struct fetch *f, void *to, size_t n, size_t *ret_got, struct load_stop stop,
	       enum fate *ret)
{
	return -ENOSYS;
}

void fetch_hurry(struct fetch *f, unsigned ms)
{
}

void fetch_end(struct fetch *f)
{
}
