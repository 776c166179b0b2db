/* SPDX-License-Identifier: MIT
 *
 * The catalog has one flat space of keys. A client's "~/x" means "~UID/x", which only that user and
 * admins may name: nobody else can open, create or ask about such a key. A uid that may be any
 * user's (process::unmapped) has no private names.
 */
#include "daemon/catalog/private_names.h"

#include "proto/name.h"

#include <string.h>

/* "~1001/", the prefix of the user's private names. Every request that names a buffer needs it:
 * printf() would be too slow. */
static size_t own_prefix(const struct process *p, char ret[16])
{
	char digits[10], *at = digits + sizeof(digits);
	uint32_t uid = p->uid;
	size_t n;

	do
		*--at = (char)('0' + uid % 10);
	while ((uid /= 10) != 0);
	n = (size_t)(digits + sizeof(digits) - at);
	ret[0] = '~';
	memcpy(ret + 1, at, n);
	ret[n + 1] = '/';
	return n + 2;
}

static bool is_own(const struct process *p, const char *key)
{
	char own[16];

	return !p->unmapped && strncmp(key, own, own_prefix(p, own)) == 0;
}

bool private_names_may_say(const struct process *p, const char *key)
{
	return key[0] != '~' || p->admin || is_own(p, key);
}

static size_t join(const char *prefix, size_t prefix_len, const char *name, size_t len,
		   char ret[KEY_MAX + 1])
{
	memcpy(ret, prefix, prefix_len);
	memcpy(ret + prefix_len, name, len);
	ret[prefix_len + len] = '\0';
	return prefix_len + len;
}

int private_names_key(const struct process *p, const void *name, size_t len, char ret[KEY_MAX + 1],
		      struct fault *f)
{
	const char *wrong = name_check_buffer(name, len), *text = name;
	size_t own_len;
	char own[16];

	if (wrong)
		return fault(f, CODE_NAME, "name \"%.*s\": %s", (int)(len < 64 ? len : 64),
			     len ? text : "", wrong);
	if (len >= 2 && text[0] == '~' && text[1] == '/') {
		if (p->unmapped)
			return fault(
				f, CODE_ACCESS,
				"name \"%.*s\": the daemon can't tell users apart whom its user "
				"namespace does not map: they have no private names",
				(int)len, text);
		own_len = own_prefix(p, own);
		/* Admins must be able to name it, too. */
		if (own_len + len - 2 > BUFFER_NAME_MAX)
			return fault(
				f, CODE_NAME,
				"name \"%.48s...\": to others it is \"%.*s...\", which is longer "
				"than %u bytes",
				text, (int)own_len, own, BUFFER_NAME_MAX);
		join(own, own_len, text + 2, len - 2, ret);
		return 0;
	}
	join("", 0, text, len, ret);
	if (!private_names_may_say(p, ret))
		return fault(f, CODE_ACCESS,
			     "name \"%s\" is private to another user; yours start with \"~/\"",
			     ret);
	return 0;
}

size_t private_names_shown(const struct process *p, const char *key, char ret[KEY_MAX + 1])
{
	size_t len = strlen(key), own_len;
	char own[16];

	if (key[0] != '~')
		return join("", 0, key, len, ret);
	own_len = own_prefix(p, own);
	if (is_own(p, key))
		return join("~/", 2, key + own_len, len - own_len, ret);
	return join("", 0, key, len, ret);
}
