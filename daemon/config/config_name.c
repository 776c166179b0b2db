/* SPDX-License-Identifier: MIT
 *
 * Names in gpushmd.conf: the socket's path, pools, kinds of pool, GPUs, and the policy for clients
 * that can't be watched. Only their form is
 * checked here; whether there is such a GPU is found out when the pools are made, since a file can
 * be checked on a machine that has none.
 */
#include "daemon/config/config_value.h"
#include "proto/base/own.h"
#include "proto/name.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define PATH_BYTES_MAX 107 /* of a socket's path, beside its NUL (unix(7)) */
_Static_assert(PATH_BYTES_MAX + 1 == sizeof((struct sockaddr_un){ 0 }.sun_path),
	       "what is allowed says so");

static const char *const kind_names[] = { [POOL_HOST] = "host",
					  [POOL_PINNED] = "pinned",
					  [POOL_VMM] = "vmm",
					  [POOL_MEMPOOL] = "mempool" };

const char *pool_kind_name(enum pool_kind kind)
{
	return kind < array_size(kind_names) && kind_names[kind] ? kind_names[kind] : "unknown";
}

static int parse_path(const char *text, void *member, char *wrong)
{
	size_t len = strlen(text);
	char *copy;

	/* With a backslash at its end a line goes on in the next one: such a path can be read at a
	 * file's end alone, and not be written. */
	if (text[0] != '/' || text[len - 1] == '/' || text[len - 1] == '\\')
		return -EINVAL;
	if (len > PATH_BYTES_MAX) {
		snprintf(wrong, WRONG_MAX, "the path has %zu bytes", len);
		return -EINVAL;
	}
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	free_ptr(member);
	*(char **)member = copy;
	return 0;
}

static void format_path(const void *member, FILE *out)
{
	fputs(*(char *const *)member, out);
}

static int parse_pool(const char *text, void *member, char *wrong)
{
	const char *fault = name_check_pool(text, strlen(text));

	if (fault) {
		snprintf(wrong, WRONG_MAX, "%s", fault);
		return -EINVAL;
	}
	strcpy(member, text);
	return 0;
}

static void format_text(const void *member, FILE *out)
{
	fputs(member, out);
}

static int parse_kind(const char *text, void *member, char *wrong)
{
	for (size_t i = 0; i < array_size(kind_names); i++) {
		if (!kind_names[i] || strcmp(kind_names[i], text) != 0)
			continue;
		*(enum pool_kind *)member = (enum pool_kind)i;
		return 0;
	}
	return -EINVAL;
}

static void format_kind(const void *member, FILE *out)
{
	fputs(pool_kind_name(*(const enum pool_kind *)member), out);
}

/* "0000:3b:00.0"; '0' stands for a hexadecimal digit. */
static bool has_form(const char *text, const char *form)
{
	for (; *text != '\0' && *form != '\0'; text++, form++)
		if (*form == '0' ? !isxdigit((unsigned char)*text) : *form != *text)
			return false;
	return *text == *form;
}

static bool is_uuid_prefix(const char *text)
{
	size_t n = strspn(text, "0123456789abcdefABCDEF-");

	return n > 0 && n <= strlen("00000000-0000-0000-0000-000000000000") && text[n] == '\0';
}

/* nvidia-smi writes a PCI domain with eight digits, the driver's API with four; the latter is what
 * is kept. */
static int parse_device(const char *text, void *member, char *wrong)
{
	size_t n = strspn(text, "0123456789");
	char *device = member;

	if (has_form(text, "00000000:00:00.0") && strncmp(text, "0000", 4) == 0)
		text += 4;
	if (has_form(text, "0000:00:00.0")) {
		for (; *text != '\0'; text++)
			*device++ = (char)tolower((unsigned char)*text);
		*device = '\0';
		return 0;
	}
	if (!(strncmp(text, "GPU-", 4) == 0 && is_uuid_prefix(text + 4)) &&
	    !(n > 0 && n <= 4 && text[n] == '\0'))
		return -EINVAL;
	strcpy(device, text);
	return 0;
}

static int parse_trust(const char *text, void *member, char *wrong)
{
	bool trust = strcmp(text, "trust") == 0;

	if (!trust && strcmp(text, "refuse") != 0)
		return -EINVAL;
	*(bool *)member = trust;
	return 0;
}

static void format_trust(const void *member, FILE *out)
{
	fputs(*(const bool *)member ? "trust" : "refuse", out);
}

const struct value_type value_path = {
	.allowed = "an absolute path of at most 107 bytes that does not end with / or \\",
	.parse = parse_path,
	.format = format_path,
	.clear = free_ptr
};
const struct value_type value_pool = { .allowed = "1 to 63 of the characters A-Z a-z 0-9 . _ -",
				       .size = POOL_NAME_MAX + 1,
				       .parse = parse_pool,
				       .format = format_text };
const struct value_type value_kind = { .allowed = "host, pinned, vmm or mempool",
				       .size = sizeof(enum pool_kind),
				       .parse = parse_kind,
				       .format = format_kind };
const struct value_type value_device = {
	.allowed = "a UUID or its start (\"GPU-8c3b...\"), a PCI id (\"0000:3b:00.0\") or an "
		   "ordinal (\"0\")",
	.size = sizeof(((struct pool_config *)0)->device),
	.parse = parse_device,
	.format = format_text
};
const struct value_type value_trust = { .allowed = "refuse or trust",
					.size = sizeof(bool),
					.parse = parse_trust,
					.format = format_trust };
