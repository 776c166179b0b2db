/* SPDX-License-Identifier: MIT
 *
 * The types of values that more than one program has.
 */
#include "proto/base/keyfile.h"
#include "proto/base/number.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

int keyfile_parse_number(const struct keyfile_type *type, const char *text, void *member,
			 char *wrong)
{
	uint64_t value = UINT32_MAX;
	bool none = type->none && strcmp(text, type->none) == 0;

	if (!none && (!number_read(text, type->max, &value) || value < type->min))
		return -EINVAL;
	*(uint32_t *)member = (uint32_t)value;
	return 0;
}

void keyfile_format_number(const struct keyfile_type *type, const void *member, FILE *out)
{
	uint32_t value = *(const uint32_t *)member;

	if (type->none && value == UINT32_MAX)
		fputs(type->none, out);
	else
		fprintf(out, "%" PRIu32, value);
}

int keyfile_parse_size(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	uint64_t bytes = UINT64_MAX;
	const char *fault = NULL;

	if (!type->none || strcmp(text, type->none) != 0) {
		fault = size_parse(text, &bytes);
		if (!fault && bytes == UINT64_MAX)
			fault = "it is too large";
	}
	if (fault)
		snprintf(wrong, KEYFILE_WRONG_MAX, "%s", fault);
	if (fault || bytes < type->min)
		return -EINVAL;
	*(uint64_t *)member = bytes;
	return 0;
}

/* Writes all of its digits, unlike size_format(): the text must mean the same number. */
void keyfile_format_size(const struct keyfile_type *type, const void *member, FILE *out)
{
	static const char *const units[] = { "", "K", "M", "G", "T" };
	uint64_t bytes = *(const uint64_t *)member;
	size_t unit = 0;

	if (type->none && bytes == UINT64_MAX) {
		fputs(type->none, out);
		return;
	}
	while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < array_size(units)) {
		bytes /= 1024;
		unit++;
	}
	fprintf(out, "%" PRIu64 "%s", bytes, units[unit]);
}

int keyfile_parse_word(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	bool second = strcmp(text, type->words[1]) == 0;

	if (!second && strcmp(text, type->words[0]) != 0)
		return -EINVAL;
	*(bool *)member = second;
	return 0;
}

void keyfile_format_word(const struct keyfile_type *type, const void *member, FILE *out)
{
	fputs(type->words[*(const bool *)member], out);
}

int keyfile_parse_text(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	char *copy;

	if (*text == '\0')
		return -EINVAL;
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	free_ptr(member);
	*(char **)member = copy;
	return 0;
}

void keyfile_format_text(const struct keyfile_type *type, const void *member, FILE *out)
{
	fputs(*(char *const *)member ? *(char *const *)member : "", out);
}

static int parse_mode(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	size_t n = strspn(text, "01234567");

	if (n == 0 || n > 4 || text[n] != '\0' || strtoul(text, NULL, 8) > 0777)
		return -EINVAL;
	*(mode_t *)member = (mode_t)strtoul(text, NULL, 8);
	return 0;
}

static void format_mode(const struct keyfile_type *type, const void *member, FILE *out)
{
	fprintf(out, "%04o", (unsigned)*(const mode_t *)member);
}

const struct keyfile_type keyfile_mode = { .allowed = "an octal mode from 0 to 0777",
					   .size = sizeof(mode_t),
					   .parse = parse_mode,
					   .format = format_mode };
