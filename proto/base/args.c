/* SPDX-License-Identifier: MIT
 *
 * The command line's parser. It is not getopt_long: the options of all commands and a command's own
 * come from several tables, each value is checked and stored in a struct, --help prints the same
 * tables, and an error for a mistyped option names the one that was probably meant.
 * It owns nothing: values are pointers into argv.
 */
#include "proto/base/args.h"

#include "proto/base/size.h"
#include "proto/base/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct parser {
	const struct arg_target *targets;
	size_t n_targets;
	char **next; /* the rest of argv */
	char *err;
	size_t err_size;
};

#define refuse(p, ...) (snprintf((p)->err, (p)->err_size, __VA_ARGS__), -EINVAL)

int args_parse_time(const char *text, uint64_t *ret)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = { { "", 1e3 },  { "s", 1e3 },   { "ms", 1 },
		      { "m", 6e4 }, { "min", 6e4 }, { "h", 36e5 } };
	char *rest;
	double v;

	if (!strcmp(text, "inf")) {
		*ret = UINT64_MAX;
		return 0;
	}
	/* strtod() also takes "inf", "nan", hexadecimal and a sign. */
	if (!isdigit((unsigned char)text[0]) || text[1] == 'x' || text[1] == 'X')
		return -EINVAL;
	v = strtod(text, &rest);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(rest, units[i].name))
			continue;
		v *= units[i].ms;
		if (!(v < 0x1p63))
			return -EINVAL;
		/* Rounded up. */
		*ret = (uint64_t)v;
		*ret += (double)*ret < v;
		return 0;
	}
	return -EINVAL;
}

static int parse_whole(const char *text, int base, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, base);
	return !isdigit((unsigned char)text[0]) || *end || errno ? -EINVAL : 0;
}

static int store_list(struct parser *p, const struct arg *a, struct arg_list *list,
		      const char *value)
{
	if (list->n == ARG_LIST_MAX)
		return refuse(p, "--%s: given more than %d times", a->name, ARG_LIST_MAX);
	list->v[list->n++] = value;
	return 0;
}

static bool is_choice(const char *words, const char *value)
{
	size_t len = strlen(value);

	for (const char *w = words; *w; w += *w == '|') {
		size_t n = strcspn(w, "|");

		if (n == len && !memcmp(w, value, n))
			return true;
		w += n;
	}
	return false;
}

static int store(struct parser *p, const struct arg *a, void *target, const char *value)
{
	const char *wrong = NULL;
	uint64_t mode = 0;

	switch (a->type) {
	case ARG_FLAG:
		*(bool *)target = true;
		return 0;
	case ARG_TEXT:
		*(const char **)target = value;
		return 0;
	case ARG_LIST:
		return store_list(p, a, target, value);
	case ARG_SIZE:
		wrong = size_parse(value, target);
		if (!wrong && !*(uint64_t *)target)
			wrong = "it must be at least 1";
		return wrong ? refuse(p, "--%s: \"%s\" is not a size: %s; write 4096, 64K or 1.5G",
				      a->name, value, wrong)
			     : 0;
	case ARG_HELP:
		return -ECANCELED;
	case ARG_CHOICE:
		*(const char **)target = value;
		return is_choice(a->meta, value) ? 0
						 : refuse(p, "--%s: \"%s\" is not one of %s",
							  a->name, value, a->meta);
	case ARG_JSON:
		if (!strcmp(value, "short") || !strcmp(value, "pretty"))
			*(const char **)target = value;
		else
			wrong = "a form of JSON; write --json=short or --json=pretty";
		break;
	case ARG_TIME:
		if (args_parse_time(value, target) < 0)
			wrong = "a time; write 5, 2.5s, 300ms or inf";
		break;
	case ARG_COUNT:
		if (parse_whole(value, 10, target) < 0 || !*(uint64_t *)target)
			wrong = "a whole number of at least 1";
		break;
	case ARG_MODE:
		if (parse_whole(value, 8, &mode) < 0 || mode > 0666 || mode & 0111)
			wrong = "a mode; write it in octal, 0600 to 0666 without x";
		*(unsigned *)target = (unsigned)mode;
		break;
	}
	return wrong ? refuse(p, "--%s: \"%s\" is not %s", a->name, value, wrong) : 0;
}

static const struct arg *find(struct parser *p, const char *name, size_t len, char letter,
			      void **ret_target)
{
	for (size_t t = 0; t < p->n_targets; t++)
		for (const struct arg *a = p->targets[t].args; a && a->name; a++) {
			if (letter ? a->letter != letter
				   : strlen(a->name) != len || memcmp(a->name, name, len))
				continue;
			*ret_target = (char *)p->targets[t].base + a->offset;
			return a;
		}
	return NULL;
}

static int unknown(struct parser *p, const char *typed)
{
	const char *names[ARG_SUGGEST_MAX], *best;
	size_t n = 0;

	for (size_t t = 0; t < p->n_targets; t++)
		for (const struct arg *a = p->targets[t].args; a && a->name; a++)
			if (a->help && n < ARG_SUGGEST_MAX)
				names[n++] = a->name;
	best = suggest_name(typed + 2, names, n);
	if (best)
		return refuse(p, "%s: no such option; did you mean --%s?", typed, best);
	return refuse(p, "%s: no such option", typed);
}

static bool takes_value(const struct arg *a)
{
	return a->type != ARG_FLAG && a->type != ARG_HELP;
}

static int parse_long(struct parser *p, const char *word)
{
	const char *equals = strchr(word, '=');
	size_t len = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
	const char *value = equals ? equals + 1 : NULL;
	void *target;
	const struct arg *a = find(p, word + 2, len, 0, &target);

	if (!a)
		return unknown(p, word);
	if (!takes_value(a) && value)
		return refuse(p, "--%s takes no value", a->name);
	if (a->type == ARG_JSON && !value)
		value = "short";
	if (takes_value(a) && !value) {
		value = *p->next;
		if (!value)
			return refuse(p, "--%s needs a value: --%s=%s", a->name, a->name, a->meta);
		p->next++;
	}
	return store(p, a, target, value);
}

static int parse_letters(struct parser *p, const char *word)
{
	for (const char *c = word + 1; *c; c++) {
		void *target;
		const struct arg *a = find(p, NULL, 0, *c, &target);
		const char *value = NULL;
		int r;

		if (!a)
			return refuse(p, "-%c: no such option", *c);
		if (takes_value(a)) {
			value = c[1] ? c + 1 : *p->next;
			if (!value)
				return refuse(p, "-%c needs a value: -%c %s", *c, *c, a->meta);
			p->next += c[1] ? 0 : 1;
		}
		r = store(p, a, target, value);
		if (r < 0 || value)
			return r;
	}
	return 0;
}

int args_parse(char **argv, const struct arg_target *targets, size_t n_targets,
	       bool first_word_ends, size_t *ret_words, char *err, size_t err_size)
{
	struct parser p = { targets, n_targets, argv, err, err_size };
	bool only_words = false;
	size_t words = 0;

	while (*p.next && !(first_word_ends && words)) {
		char *word = *p.next++;
		int r = 0;

		if (!only_words && !strcmp(word, "--"))
			only_words = true;
		else if (!only_words && word[0] == '-' && word[1] == '-')
			r = parse_long(&p, word);
		else if (!only_words && word[0] == '-' && word[1])
			r = parse_letters(&p, word);
		else
			argv[words++] = word;
		if (r < 0)
			return r;
	}
	while (*p.next)
		argv[words++] = *p.next++;
	argv[words] = NULL;
	*ret_words = words;
	return 0;
}

void args_help(const struct arg *args, FILE *out)
{
	for (const struct arg *a = args; a && a->name; a++) {
		char left[64];

		if (!a->help)
			continue;
		snprintf(left, sizeof(left), "  %c%c%s--%s%s%s", a->letter ? '-' : ' ',
			 a->letter ? a->letter : ' ', a->letter ? ", " : "  ", a->name,
			 a->meta ? "=" : "", a->meta ? a->meta : "");
		if (strlen(left) <= 26)
			fprintf(out, "%-26s %s\n", left, a->help);
		else
			fprintf(out, "%s\n%27s%s\n", left, "", a->help);
	}
}

/* ---- programs ---- */

static const struct arg own[] = { { "help", ARG_HELP, 'h', NULL, "print this text", 0 },
				  { "version", ARG_FLAG, 'V', NULL, "print the version", 0 },
				  { .name = NULL } };

static void print_usage(const struct args_program *p)
{
	printf("Usage: %s %s\n\n%s\n\nOptions:\n", p->name, p->synopsis, p->about);
	args_help(p->args, stdout);
	args_help(own, stdout);
	printf("\n%s(8) is the manual.\n", p->name);
}

void args_read(const struct args_program *p, char *const *argv, void *base)
{
	bool version = false;
	const struct arg_target targets[] = { { p->args, base }, { own, &version } };
	char **words, err[256] = "out of memory";
	size_t n = 0;
	int r;

	while (argv[n])
		n++;
	words = calloc(n + 1, sizeof(*words));
	if (words)
		memcpy(words, argv + (n > 0), n * sizeof(*words));
	r = words ? args_parse(words, targets, 2, false, &n, err, sizeof(err)) : -ENOMEM;
	if (r == 0 && n > 0)
		r = (snprintf(err, sizeof(err), "\"%s\" is no option", words[0]), -EINVAL);
	free(words);
	if (r == 0 && !version)
		return;
	if (r == -ECANCELED)
		print_usage(p);
	else if (r == 0)
		printf("%s %s\n", p->name, p->version);
	else
		fprintf(stderr, "%s: %s; %s --help lists what there is\n", p->name, err, p->name);
	exit(r == 0 || r == -ECANCELED ? fflush(stdout) != 0 : 2);
}
