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

int naming_key(const struct process *p, const void *name, size_t len, char ret[KEY_MAX + 1],
	       struct fault *f)
{
	const char *wrong = name_check_buffer(name, len), *text = name;
	char own[16];
	int own_len;

	if (wrong)
		return fault(f, CODE_NAME, "name \"%.*s\": %s", (int)(len < 64 ? len : 64),
			     len ? text : "", wrong);
	own_len = snprintf(own, sizeof(own), "~%u", p->uid);
	if (len >= 2 && text[0] == '~' && text[1] == '/') {
		snprintf(ret, KEY_MAX + 1, "%s%.*s", own, (int)len - 1, text + 1);
		return 0;
	}
	if (text[0] == '~' && !p->admin &&
	    (len <= (size_t)own_len || strncmp(text, own, own_len) != 0 || text[own_len] != '/'))
		return fault(f, CODE_ACCESS,
			     "name \"%.*s\" is private to another user; yours start with \"~/\"",
			     (int)len, text);
	snprintf(ret, KEY_MAX + 1, "%.*s", (int)len, text);
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
