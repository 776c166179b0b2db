/* SPDX-License-Identifier: MIT
 *
 * The command line.
 */
#include "tests/bench/options.h"

#include "proto/base/own.h"
#include "proto/limits.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
	"gpushm-bench [options]: what gpushm costs over the calls that must be made anyway\n"
	"\n"
	"  --size SIZE     of the buffers that are attached (2M, 16G); may be given again\n"
	"  --arrays N      in the buffer that has many (3435)\n"
	"  --count N       rounds of each comparison at most (5000)\n"
	"  --seconds N     of each comparison at most (3)\n"
	"  --clients N     that send requests at the same time (64)\n"
	"  --pool KIND     only host, vmm, mempool or pinned (all that the machine has)\n"
	"  --only TEXT     only rows whose id contains TEXT; several, separated by commas\n"
	"  --busy-poll US  of the daemon's configuration; 0: off (50)\n"
	"  --quick         only shows that everything runs; the figures mean nothing\n"
	"  --json FILE     also writes the rows there; - is standard output, instead of the "
	"table\n";

static const struct options defaults = {
	.sizes = { 2ull << 20, 16ull << 30 },
	.count = 5000,
	.seconds = 3,
	.clients = 64,
	.arrays = 3435,
	.buffers = 4096,
	.many = 100000,
	.busy_poll = 50,
};

#define NUMBER_MAX 1000000u

static void refuse(const char *name, const char *value)
{
	fprintf(stderr, "gpushm-bench: --%s %s: this can't be used\n%s", name, value, usage);
	exit(2);
}

static unsigned number(const char *name, const char *text, unsigned least, unsigned most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || n < least || n > most)
		refuse(name, text);
	return (unsigned)n;
}

static uint64_t size(const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	uint64_t n = strtoull(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (unit)
		n <<= 10 * (unit - units + 1);
	if (n == 0 || n >> 45 || (*end && (!unit || end[1])))
		refuse("size", text);
	return n;
}

static void become_quick(struct options *o)
{
	o->count = 40;
	o->seconds = 1;
	o->clients = 8;
	o->buffers = 64;
	o->many = 1000;
	o->sizes[1] = 64ull << 20;
	o->quick = true;
}

static void take(struct options *o, int option, const char *name, const char *value)
{
	switch (option) {
	case 's':
		if (o->n_sizes == SIZES_MAX)
			refuse(name, value);
		o->sizes[o->n_sizes++] = size(value);
		break;
	case 'a':
		o->arrays = number(name, value, 1, ARRAYS_MAX);
		break;
	case 'c':
		o->count = number(name, value, 1, NUMBER_MAX);
		break;
	case 't':
		o->seconds = number(name, value, 1, NUMBER_MAX);
		break;
	case 'n':
		o->clients = number(name, value, 1, NUMBER_MAX);
		break;
	case 'b':
		o->busy_poll = number(name, value, 0, 1000);
		break;
	case 'p':
		o->pool = value;
		break;
	case 'o':
		o->only = value;
		break;
	case 'j':
		o->json = value;
		break;
	case 'q':
		become_quick(o);
		break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	default:
		fputs(usage, stderr);
		exit(2);
	}
}

void options_parse(int argc, char **argv, struct options *ret)
{
	static const struct option known[] = {
		{ "size", required_argument, NULL, 's' },
		{ "arrays", required_argument, NULL, 'a' },
		{ "count", required_argument, NULL, 'c' },
		{ "seconds", required_argument, NULL, 't' },
		{ "clients", required_argument, NULL, 'n' },
		{ "busy-poll", required_argument, NULL, 'b' },
		{ "pool", required_argument, NULL, 'p' },
		{ "only", required_argument, NULL, 'o' },
		{ "json", required_argument, NULL, 'j' },
		{ "quick", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, index = 0;

	*ret = defaults;
	while ((c = getopt_long(argc, argv, "", known, &index)) != -1)
		take(ret, c, c == '?' ? "" : known[index].name, optarg);
	if (optind < argc)
		refuse("", argv[optind]);
	if (ret->n_sizes == 0)
		ret->n_sizes = 2;
}

bool options_want(const struct options *o, const char *id)
{
	for (const char *at = o->only; at && *at;) {
		size_t n = strcspn(at, ",");

		if (n && memmem(id, strlen(id), at, n))
			return true;
		at += n + (at[n] == ',');
	}
	return !o->only;
}
