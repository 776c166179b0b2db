/* SPDX-License-Identifier: MIT
 *
 * Patterns of names. The daemon lists names by a prefix only; the rest is matched here.
 */
#include "client/ctl/pattern.h"

#include "proto/base/own.h"

#include <fnmatch.h>
#include <string.h>

bool pattern_is_folder(const char *word)
{
	size_t len = strlen(word);

	return len && word[len - 1] == '/';
}

bool pattern_is(const char *word)
{
	return pattern_is_folder(word) || strpbrk(word, "*?[");
}

bool pattern_matches(const char *word, const char *name)
{
	if (!*name || (*name == '~' && *word != '~'))
		return false;
	if (pattern_is_folder(word) && !strpbrk(word, "*?["))
		return !strncmp(word, name, strlen(word));
	return fnmatch(word, name, 0) == 0;
}

bool pattern_lists(const char *word, const char *name)
{
	return !word || !strncmp(name, word, strlen(word)) || pattern_matches(word, name);
}

int pattern_list(struct gpushm *c, const char *word, uint32_t flags, struct gpushm_stat ***ret,
		 size_t *ret_n)
{
	_cleanup_(free_ptr) char *prefix = NULL;

	if (!word)
		return gpushm_list(c, NULL, flags, ret, ret_n);
	prefix = strndup(word, strcspn(word, "*?[\\"));
	if (!prefix)
		return -ENOMEM;
	return gpushm_list(c, prefix, flags, ret, ret_n);
}
