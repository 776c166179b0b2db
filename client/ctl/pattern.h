/* SPDX-License-Identifier: MIT
 *
 * A word that stands for many names: with *, ? or [ as in fnmatch(3), where * matches "/", too; or
 * with a "/" at its end for all names below. As a file whose name starts with a dot, a private name
 * matches only a pattern that starts with "~" itself.
 */
#pragma once

#include "client/gpushm_query.h"

#include <stdbool.h>
#include <stddef.h>

/* "models/": no name ends so. */
bool pattern_is_folder(const char *word);

/* A folder, or a pattern for fnmatch(3); a name may look like the latter. */
bool pattern_is(const char *word);

bool pattern_matches(const char *word, const char *name);

/* Whether a list of those that the word means has the name: it may also be the start of it. NULL
 * means all. */
bool pattern_lists(const char *word, const char *name);

/* As gpushm_list(), of at least the names that the word means; others may be among them. */
int pattern_list(struct gpushm *c, const char *word, uint32_t flags, struct gpushm_stat ***ret,
		 size_t *ret_n);
