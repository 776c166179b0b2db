/* SPDX-License-Identifier: MIT
 *
 * Reads texts in the form of gpushmd.conf into a struct config, one after the other, and then makes
 * it whole.
 */
#ifndef GPUSHM_DAEMON_CONFIG_CONFIG_READER_H
#define GPUSHM_DAEMON_CONFIG_CONFIG_READER_H

#include "daemon/config/config_key.h"
#include "daemon/config/diagnostics.h"

struct config_reader {
	struct config *config;	       /* owned, until config_reader_finish() hands it on */
	struct diagnostics complaints; /* n: how many so far */
	enum section section;	       /* where assignments go now */
	size_t subject;		       /* its user or pool */
	bool complained;	       /* of an assignment before any section */
};

/* errors is borrowed. 0 or -ENOMEM. */
int config_reader_init(struct config_reader *r, FILE *errors);
void config_reader_done(struct config_reader *r);

/* Reads len bytes that came from `file`; text is written to, has room for a NUL behind it, and may
 * be freed afterwards. What is wrong is complained of and left out. 0 or -ENOMEM. */
int config_reader_text(struct config_reader *r, const char *file, char *text, size_t len);

/* Gives each value that no file set its default, and checks what belongs together. 0 with *ret the
 * caller's; -EINVAL where anything has been complained of; -ENOMEM. */
int config_reader_finish(struct config_reader *r, struct config **ret);

#endif
