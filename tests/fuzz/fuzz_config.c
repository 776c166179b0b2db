/* SPDX-License-Identifier: MIT
 *
 * Any bytes as gpushmd.conf: the parser survives them, and can write what it accepts and read it
 * back as the same configuration.
 */
#include "daemon/config/config_reader.h"
#include "proto/base/own.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Returns 0 and *ret, which the caller frees, or the reader's error. The text lies in memory of its
 * exact size. */
static int parse(const void *data, size_t size, struct config **ret)
{
	_cleanup_(config_reader_done) struct config_reader r = { 0 };
	_cleanup_(free_ptr) char *text = malloc(size + 1), *errors = NULL;
	size_t errors_size;
	FILE *out = open_memstream(&errors, &errors_size);
	int e;

	assert(text && out);
	memcpy(text, data, size);
	e = config_reader_init(&r, out);
	if (e == 0)
		e = config_reader_text(&r, "fuzz", text, size);
	if (e == 0)
		e = config_reader_finish(&r, ret);
	fclose(out);
	/* A key of an older version is told, too. */
	assert(e == 0 || e == -ENOMEM || errors_size > 0);
	return e;
}

static char *dump(const struct config *c, size_t *ret_size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_size);

	config_dump(c, out);
	fclose(out);
	return text;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	struct config *c = NULL, *again = NULL;
	_cleanup_(free_ptr) char *text = NULL;
	size_t text_size;
	char names[64];

	if (parse(data, size, &c) < 0)
		return 0;
	text = dump(c, &text_size);
	assert(parse(text, text_size, &again) == 0);
	config_needs_restart(c, again, names, sizeof(names));
	assert(*names == '\0');
	assert(memcmp(&c->limits, &again->limits, sizeof(c->limits)) == 0);
	assert(c->n_user_limits == again->n_user_limits && c->n_pools == again->n_pools);
	assert(strcmp(c->default_pool, again->default_pool) == 0);
	for (size_t i = 0; i < c->n_pools; i++)
		assert(c->pools[i].allow_users.n == again->pools[i].allow_users.n &&
		       c->pools[i].pending_max_age == again->pools[i].pending_max_age &&
		       c->pools[i].allocate == again->pools[i].allocate);
	config_free(again);
	config_free(c);
	return 0;
}
