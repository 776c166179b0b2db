/* SPDX-License-Identifier: MIT
 *
 * Prints a table of what an honest user notices of a hostile one; RESULTS.md has it. Needs root, to
 * become two other users.
 *
 *	attack [--connections N] [--seconds N] [--program NAME] [--list] [ATTACK...]
 */
#include "tests/adversary/fairness.h"
#include "tests/adversary/hostile.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 3

static const struct role roles[] = { { "hostile", hostile_role },
				     { "honest", fairness_honest_role } };

static struct fairness_options o = { .connections = 1000, .idle_ms = 1000, .beside_ms = 5000 };
static char **chosen; /* names, NULL at the end; empty: all */

static bool is_chosen(const char *name)
{
	for (char **it = chosen; *it; it++)
		if (strcmp(*it, name) == 0)
			return true;
	return !*chosen;
}

static void print_head(void)
{
	puts("| attack | requests/s | idle p50 | p99 | beside it p50 | p99 | max | control p99 | "
	     "max | connect p99 | RSS | fds | log lines | |");
	puts("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
	fflush(stdout);
}

static bool is_late(const struct attacked *a)
{
	return a->beside[OPENS].p99 > fairness_limit_us(a);
}

/* Whether the machine alone may have made the OPENs late. */
static bool was_disturbed(const struct attacked *a)
{
	return a->beside[OPENS].p99 - a->beside[CONTROL].max <= fairness_limit_us(a);
}

static const char *verdict(const struct attacked *a)
{
	return !is_late(a) ? "" : was_disturbed(a) ? "the machine" : "**unfair**";
}

/* If OPENs are late and the control was late, too, this measures again. The best counts. */
static void measure(const char *name, struct attacked *ret)
{
	struct attacked a;

	fairness_measure(name, &o, ret);
	for (int i = 1; i < TRIES && is_late(ret) && was_disturbed(ret); i++) {
		fairness_measure(name, &o, &a);
		if (a.beside[OPENS].p99 < ret->beside[OPENS].p99)
			*ret = a;
	}
}

static void print_row(const char *name, const struct attacked *a)
{
	const struct latency *idle = &a->idle[OPENS], *opens = &a->beside[OPENS];
	const struct latency *control = &a->beside[CONTROL];

	printf("| %s | %lu | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | +%.1f MiB | "
	       "+%d | %u | %s |\n",
	       name, a->requests, idle->p50, idle->p99, opens->p50, opens->p99, opens->max,
	       control->p99, control->max, a->beside[CONNECTS].p99,
	       (double)(a->rss_max - a->rss_before) / 1024, (int)(a->fds_max - a->fds_before),
	       a->lines, verdict(a));
	fflush(stdout);
}

/* Inside of a test, because the functions of tests/lib end it when something fails. */
START_TEST(attack)
{
	const char *name = hostile_name((size_t)_i);
	struct attacked a;

	if (!is_chosen(name))
		return;
	measure(name, &a);
	print_row(name, &a);
	ck_assert(!is_late(&a) || was_disturbed(&a));
}
END_TEST

static int list(void)
{
	for (size_t i = 0; i < hostile_attacks(); i++)
		printf("%-16s %s\n", hostile_name(i), hostile_text(i));
	return 0;
}

static int run(void)
{
	TCase *t = tcase_create("attacks");

	if (!user_may_change())
		return 0;
	print_head();
	tcase_set_timeout(t, 600);
	tcase_add_loop_test(t, attack, 0, (int)hostile_attacks());
	return suite_run("attacks", t, NULL);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "connections", required_argument, NULL, 'c' },
						 { "seconds", required_argument, NULL, 's' },
						 { "program", required_argument, NULL, 'p' },
						 { "list", no_argument, NULL, 'l' },
						 { 0 } };
	int opt;

	role_dispatch(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'l')
			return list();
		else if (opt == 'c')
			o.connections = (unsigned)atoi(optarg);
		else if (opt == 's')
			o.beside_ms = (unsigned)atoi(optarg) * 1000;
		else if (opt == 'p')
			o.program = optarg;
		else
			return 2;
	}
	chosen = argv + optind;
	return run();
}
