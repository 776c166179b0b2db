/* SPDX-License-Identifier: MIT
 *
 * Finds the name that a mistyped word stands for: the one with the fewest edits (insert, drop,
 * replace, swap two neighbours), if these are at most a third of its letters. Upper case and '_'
 * for '-' cost nothing: people copy them from other programs' files.
 */
#include "proto/base/suggest.h"

#include "proto/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 32u /* no name of ours is longer */

static int fold(char c)
{
	return c == '_' ? '-' : tolower((unsigned char)c);
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: Levenshtein's distance that also counts a swap as one edit. */
static unsigned distance(const char *a, const char *b)
{
	unsigned d[WORD_MAX + 1][WORD_MAX + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MAX || m > WORD_MAX)
		return WORD_MAX + 1;
	for (size_t i = 0; i <= n; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		for (size_t j = 1; j <= m; j++) {
			unsigned cost = fold(a[i - 1]) != fold(b[j - 1]);

			d[i][j] =
				least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + cost);
			if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
			    fold(a[i - 2]) == fold(b[j - 1]))
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	}
	return d[n][m];
}

const char *suggest_name(const char *word, const char *const *names, size_t n)
{
	const char *best = NULL;
	unsigned best_distance = WORD_MAX + 1;

	for (size_t i = 0; i < n; i++) {
		unsigned d = distance(word, names[i]);

		if (d < best_distance && d <= (strlen(names[i]) + 2) / 3) {
			best = names[i];
			best_distance = d;
		}
	}
	return best;
}

void suggest(const char *word, const char *const *names, size_t n, char *buf, size_t size)
{
	const char *best = suggest_name(word, names, n);

	if (best) {
		snprintf(buf, size, "did you mean \"%s\"?", best);
		return;
	}
	snprintf(buf, size, "allowed: ");
	for (size_t i = 0; i < n; i++)
		text_append(buf, size, "%s%s", i > 0 ? ", " : "", names[i]);
}
