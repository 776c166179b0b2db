/* SPDX-License-Identifier: MIT
 *
 * Takes a sample again and again, on a thread of its own: the screen obeys keys also while the
 * daemon does not reply.
 */
#pragma once

#include "client/ctl/top/sample.h"

#include <stdbool.h>

struct sampler;

/* Takes the connection over. socket is for the next ones (NULL: the library's rule), word is as for
 * sample_take(); both are borrowed. The samples have no events. 0 or -errno. */
int sampler_new(struct gpushm *connection, const char *socket, const char *word, uint64_t delay_ms,
		struct sampler **ret);

/* Readable when there is a new sample or error; sampler_take() resets it. */
int sampler_fd(const struct sampler *s);

/* The newest sample, which is then the caller's; or NULL. error: why the last one failed, else "".
 * ret_silent_ms: how long the daemon has been asked without a reply. */
struct sample *sampler_take(struct sampler *s, char *error, size_t size, uint64_t *ret_silent_ms);

/* A thread that waits for the daemon goes on until the process ends. Returns NULL. */
struct sampler *sampler_free(struct sampler *s);
