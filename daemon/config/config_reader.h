/* SPDX-License-Identifier: MIT
 *
 * Reads texts in the form of gpushmd.conf into a struct config, one after the other, and then
 * completes it.
 */
#pragma once

#include "daemon/config/config_table.h"

struct config_reader {
	struct config *config; /* owned, until config_reader_finish() gives it away */
	struct keyfile keys;
	enum section section; /* of the next assignment */
	size_t subject;	      /* its user or pool */
};

/* errors is borrowed. 0 or -ENOMEM. */
int config_reader_init(struct config_reader *r, FILE *errors);
void config_reader_done(struct config_reader *r);

/* Reads len bytes of `file`. The reader writes to text, which has space for a NUL after it; the
 * caller may free text afterwards. Faults are reported and left out. 0 or -ENOMEM. */
int config_reader_text(struct config_reader *r, const char *file, char *text, size_t len);

/* Sets the defaults of values that no file set, and makes the checks that need several values. 0,
 * and the caller owns *ret; -EINVAL if there was any diagnostic; -ENOMEM. */
int config_reader_finish(struct config_reader *r, struct config **ret);
