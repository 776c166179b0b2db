/* SPDX-License-Identifier: MIT
 *
 * Built without libcurl's headers: a URL is known as one, and the error says what to install.
 */
#include "client/gpushm_private.h"
#include "client/models/web/remote.h"

#include <stdlib.h>

static int missing(void)
{
	return gpushm_private_fail(ENOSYS, "this build of libgpushm-load can't read URLs: build it "
					   "where libcurl4-openssl-dev is installed");
}

int remote_open(const char *url, const struct gpushm_remote_options *o, struct load_stop stop,
		struct remote **ret)
{
	return missing();
}

int remote_open_by(struct remote_reader *rr, const char *url, const struct gpushm_remote_options *o,
		   struct load_stop stop, struct remote **ret)
{
	return missing();
}

struct remote *remote_close(struct remote *r)
{
	return NULL;
}

const char *remote_name(const struct remote *r)
{
	return "";
}

uint64_t remote_size(const struct remote *r)
{
	return REMOTE_NO_SIZE;
}

const char *remote_etag(const struct remote *r)
{
	return "";
}

const char *remote_version(const struct remote *r)
{
	return "";
}

bool remote_has_ranges(const struct remote *r)
{
	return false;
}

int remote_add_mirror(struct remote *r, const char *url)
{
	return missing();
}

int remote_set_relay(struct remote *r, const char *relay)
{
	return missing();
}

int remote_reader_new(struct remote_reader **ret)
{
	return missing();
}

struct remote_reader *remote_reader_free(struct remote_reader *rr)
{
	return NULL;
}

void remote_expect(struct remote_reader *rr, struct remote *r, uint64_t offset, uint64_t bytes)
{
}

int remote_read(struct remote_reader *rr, struct remote *r, void *to, size_t n, uint64_t offset,
		struct load_stop stop)
{
	return missing();
}

int remote_read_up_to(struct remote_reader *rr, struct remote *r, void *to, size_t n,
		      uint64_t offset, size_t *ret_got, struct load_stop stop)
{
	return missing();
}

int remote_blame(struct remote_reader *rr, struct remote *r)
{
	return missing();
}

int remote_request(const struct remote_request *q, struct remote_reply *ret)
{
	return missing();
}

void remote_reply_clear(struct remote_reply *r)
{
	free(r->body);
	free(r->etag);
	free(r->url);
	*r = (struct remote_reply){ 0 };
}
