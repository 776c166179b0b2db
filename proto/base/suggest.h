/* SPDX-License-Identifier: MIT
 *
 * "Did you mean ...?"
 */
#pragma once

#include <stddef.h>

/* Returns the name that the word is probably a mistyping of, or NULL. */
const char *suggest_name(const char *word, const char *const *names, size_t n);

/* Writes "did you mean "x"?" if one of the names is close to the word, else "allowed: " and all of
 * them. Cuts at size. */
void suggest(const char *word, const char *const *names, size_t n, char *buf, size_t size);
