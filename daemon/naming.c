/* SPDX-License-Identifier: MIT
 *
 * Private names. The catalog has one flat space of keys; whoever says "~/x" means "~UID/x", and
 * "~UID/x" is allowed to that user and to admins. Nobody else can reach, take or even ask about
 * such a key.
 */
#include "daemon/naming.h"

#include "proto/name.h"

#include <stdio.h>
#include <string.h>

bool naming_may_say(const struct process *p, const char *key)
{
	char own[16];
	int own_len = snprintf(own, sizeof(own), "~%u/", p->uid);

	return key[0] != '~' || p->admin || strncmp(key, own, (size_t)own_len) == 0;
}

int naming_key(const struct process *p, const void *name, size_t len, char ret[KEY_MAX + 1],
	       struct fault *f)
{
	const char *wrong = name_check_buffer(name, len), *text = name;

	if (wrong)
		return fault(f, CODE_NAME, "name \"%.*s\": %s", (int)(len < 64 ? len : 64),
			     len ? text : "", wrong);
	if (len >= 2 && text[0] == '~' && text[1] == '/') {
		snprintf(ret, KEY_MAX + 1, "~%u%.*s", p->uid, (int)len - 1, text + 1);
		return 0;
	}
	snprintf(ret, KEY_MAX + 1, "%.*s", (int)len, text);
	if (!naming_may_say(p, ret))
		return fault(f, CODE_ACCESS,
			     "name \"%s\" is private to another user; yours start with \"~/\"",
			     ret);
	return 0;
}

size_t naming_shown(const struct process *p, const char *key, char ret[KEY_MAX + 1])
{
	char own[16];
	int own_len = snprintf(own, sizeof(own), "~%u/", p->uid);

	if (strncmp(key, own, own_len) == 0)
		return (size_t)snprintf(ret, KEY_MAX + 1, "~/%s", key + own_len);
	return (size_t)snprintf(ret, KEY_MAX + 1, "%s", key);
}
