/* SPDX-License-Identifier: MIT
 *
 * Numbers in gpushmd.conf: modes, NUMA nodes, sizes, counts and ratios.
 *
 * They are read digit by digit: strtoull() and strtod() take signs, blanks, hexadecimal, "inf" and
 * "nan", which a typing error may well produce. What is written (--dump-config) reads back as the
 * same value, so a decimal fraction has six digits at most.
 */
#include "daemon/config/config_value.h"
#include "proto/base/own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODE_MAX 1023u /* the kernel's MAX_NUMNODES is 1 << 10 at most (CONFIG_NODES_SHIFT) */
#define PENDING_MAX                                                                   \
	65536u /* each pending vmm, pinned or host buffer is an open fd of the daemon \
		*/
#define SECONDS_MAX 86400u
#define MICROSECONDS_MAX 1000u
#define FRACTION_DIGITS 6

static const char digits[] = "0123456789";
static const char unlimited[] = "unlimited";

/* Decimal digits up to a number of at most max. 0 with what follows them, or -EINVAL. */
static int parse_digits(const char *text, uint64_t max, uint64_t *ret, const char **ret_rest)
{
	size_t n = strspn(text, digits);
	uint64_t value = 0;

	if (n == 0)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		uint64_t digit = (uint64_t)(text[i] - '0');

		if (value > (max - digit) / 10)
			return -EINVAL;
		value = value * 10 + digit;
	}
	*ret = value;
	*ret_rest = text + n;
	return 0;
}

static int parse_whole(const char *text, uint64_t max, uint64_t *ret)
{
	const char *rest = "";
	int r = parse_digits(text, max, ret, &rest);

	return r < 0 ? r : *rest != '\0' ? -EINVAL : 0;
}

/* "12", "12.5", ".5": at most max, then `suffix`. */
static int parse_decimal(const char *text, double max, const char *suffix, double *ret)
{
	size_t whole = strspn(text, digits);
	size_t fraction = text[whole] == '.' ? strspn(text + whole + 1, digits) : 0;
	size_t len = whole + (text[whole] == '.') + fraction;
	double value;

	if (whole + fraction == 0 || whole > 3 || fraction > FRACTION_DIGITS ||
	    strcmp(text + len, suffix) != 0)
		return -EINVAL;
	value = strtod(text, NULL);
	if (value > max)
		return -EINVAL;
	*ret = value;
	return 0;
}

static void format_decimal(double value, FILE *out)
{
	char text[32];
	size_t len = (size_t)snprintf(text, sizeof(text), "%.*f", FRACTION_DIGITS, value);

	while (len > 0 && text[len - 1] == '0')
		len--;
	if (len > 0 && text[len - 1] == '.')
		len--;
	fprintf(out, "%.*s", (int)len, text);
}

/* Bytes, with a unit of 1024, its square, ... */
static int parse_bytes_unit(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGT";
	const char *rest = "", *unit;
	uint64_t value = 0;
	unsigned shift = 0;

	if (parse_digits(text, UINT64_MAX - 1, &value, &rest) < 0)
		return -EINVAL;
	if (*rest != '\0') {
		unit = strchr(units, *rest);
		if (!unit || rest[1] != '\0')
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (value > (UINT64_MAX - 1) >> shift)
		return -EINVAL;
	*ret = value << shift;
	return 0;
}

static void format_bytes_unit(uint64_t bytes, FILE *out)
{
	static const char *const units[] = { "", "K", "M", "G", "T" };
	size_t unit = 0;

	while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < array_size(units)) {
		bytes /= 1024;
		unit++;
	}
	fprintf(out, "%llu%s", (unsigned long long)bytes, units[unit]);
}

static int parse_mode(const char *text, void *member, char *wrong)
{
	size_t n = strspn(text, "01234567");

	if (n == 0 || n > 4 || text[n] != '\0' || strtoul(text, NULL, 8) > 0777)
		return -EINVAL;
	*(mode_t *)member = (mode_t)strtoul(text, NULL, 8);
	return 0;
}

static void format_mode(const void *member, FILE *out)
{
	fprintf(out, "%04o", (unsigned)*(const mode_t *)member);
}

static int parse_node(const char *text, void *member, char *wrong)
{
	uint64_t node;

	if (parse_whole(text, NODE_MAX, &node) < 0)
		return -EINVAL;
	*(int *)member = (int)node;
	return 0;
}

static void format_node(const void *member, FILE *out)
{
	if (*(const int *)member >= 0)
		fprintf(out, "%d", *(const int *)member);
}

static int parse_size(const char *text, void *member, char *wrong)
{
	struct config_size size = { 0 };
	int r = strchr(text, '%') ? parse_decimal(text, 100, "%", &size.percent)
				  : parse_bytes_unit(text, &size.bytes);

	if (r < 0)
		return r;
	if (size.bytes == 0 && size.percent == 0) {
		strcpy(wrong, "a pool of no size");
		return -EINVAL;
	}
	*(struct config_size *)member = size;
	return 0;
}

static void format_size(const void *member, FILE *out)
{
	const struct config_size *size = member;

	if (size->percent > 0) {
		format_decimal(size->percent, out);
		putc('%', out);
	} else {
		format_bytes_unit(size->bytes, out);
	}
}

static int parse_bytes(const char *text, void *member, char *wrong)
{
	uint64_t bytes = UINT64_MAX;

	if (strcmp(text, unlimited) != 0 && parse_bytes_unit(text, &bytes) < 0)
		return -EINVAL;
	*(uint64_t *)member = bytes;
	return 0;
}

static void format_bytes(const void *member, FILE *out)
{
	if (*(const uint64_t *)member == UINT64_MAX)
		fputs(unlimited, out);
	else
		format_bytes_unit(*(const uint64_t *)member, out);
}

static int parse_count(const char *text, void *member, char *wrong)
{
	uint64_t count = UINT32_MAX;

	if (strcmp(text, unlimited) != 0 && parse_whole(text, UINT32_MAX - 1, &count) < 0)
		return -EINVAL;
	*(uint32_t *)member = (uint32_t)count;
	return 0;
}

static void format_count(const void *member, FILE *out)
{
	if (*(const uint32_t *)member == UINT32_MAX)
		fputs(unlimited, out);
	else
		fprintf(out, "%u", *(const uint32_t *)member);
}

static int parse_pending(const char *text, void *member, char *wrong)
{
	uint64_t count;

	if (parse_whole(text, PENDING_MAX, &count) < 0)
		return -EINVAL;
	*(uint32_t *)member = (uint32_t)count;
	return 0;
}

static int parse_seconds(const char *text, void *member, char *wrong)
{
	uint64_t seconds;

	if (parse_whole(text, SECONDS_MAX, &seconds) < 0 || seconds == 0)
		return -EINVAL;
	*(uint32_t *)member = (uint32_t)seconds;
	return 0;
}

static int parse_microseconds(const char *text, void *member, char *wrong)
{
	uint64_t microseconds;

	if (parse_whole(text, MICROSECONDS_MAX, &microseconds) < 0)
		return -EINVAL;
	*(uint32_t *)member = (uint32_t)microseconds;
	return 0;
}

static int parse_ratio(const char *text, void *member, char *wrong)
{
	return parse_decimal(text, 1, "", member);
}

static void format_ratio(const void *member, FILE *out)
{
	format_decimal(*(const double *)member, out);
}

const struct value_type value_mode = { .allowed = "an octal mode from 0 to 0777",
				       .size = sizeof(mode_t),
				       .parse = parse_mode,
				       .format = format_mode };
const struct value_type value_node = { .allowed = "a NUMA node's number, 0 to 1023",
				       .size = sizeof(int),
				       .parse = parse_node,
				       .format = format_node };
const struct value_type value_size = {
	.allowed = "bytes, with K, M, G or T for powers of 1024 (\"40G\"), or a part of the "
		   "device's or the host's memory up to 100% (\"80%\")",
	.size = sizeof(struct config_size),
	.parse = parse_size,
	.format = format_size
};
const struct value_type value_bytes = {
	.allowed = "bytes, with K, M, G or T for powers of 1024 (\"40G\"), or \"unlimited\"",
	.size = sizeof(uint64_t),
	.parse = parse_bytes,
	.format = format_bytes
};
const struct value_type value_count = { .allowed = "a whole number, or \"unlimited\"",
					.size = sizeof(uint32_t),
					.parse = parse_count,
					.format = format_count };
const struct value_type value_pending = { .allowed = "a whole number, 0 to 65536",
					  .size = sizeof(uint32_t),
					  .parse = parse_pending,
					  .format = format_count };
const struct value_type value_ratio = {
	.allowed = "a number from 0 to 1 with at most six decimals (\"0.2\")",
	.size = sizeof(double),
	.parse = parse_ratio,
	.format = format_ratio
};
const struct value_type value_microseconds = { .allowed =
						       "a whole number of microseconds, 0 to 1000",
					       .size = sizeof(uint32_t),
					       .parse = parse_microseconds,
					       .format = format_count };
const struct value_type value_seconds = { .allowed = "a whole number of seconds, 1 to 86400",
					  .size = sizeof(uint32_t),
					  .parse = parse_seconds,
					  .format = format_count };
