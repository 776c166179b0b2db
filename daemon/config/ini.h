/* SPDX-License-Identifier: MIT
 *
 * The form of a configuration file: sections, assignments, comments and continued lines. It knows
 * no section and no key.
 */
#ifndef GPUSHM_DAEMON_CONFIG_INI_H
#define GPUSHM_DAEMON_CONFIG_INI_H

#include "daemon/config/diagnostics.h"

#include <stddef.h>

enum ini_what { INI_END, INI_SECTION, INI_ASSIGNMENT };

/* One section's header or one assignment. Strings lie in the text that was given to ini_init(). */
struct ini_item {
	unsigned line;	/* its first; from 1 */
	char *section;	/* "" where the header was wrong, which was complained of */
	char *argument; /* [section argument]; "" where there is none */
	char *key, *value;
};

struct ini {
	struct diagnostics *complaints; /* borrowed */
	char *at, *end;			/* what is left of the text */
	unsigned line;			/* lines that were read */
};

/* text is len bytes with room for one more behind them; it is written to, and must outlive what
 * ini_next() gives. */
void ini_init(struct ini *ini, char *text, size_t len, struct diagnostics *complaints);

/* The next item. Lines that have no form are complained of and skipped. */
enum ini_what ini_next(struct ini *ini, struct ini_item *ret);

#endif
