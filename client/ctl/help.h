/* SPDX-License-Identifier: MIT
 *
 * The explanations of gpushmctl and of its commands.
 */
#pragma once

#include "client/ctl/ctl.h"

#include <stdio.h>

/* Prints what the command does and its options; without a command (NULL), the list of commands. */
void help_print(const struct command *c, FILE *out);

/* Prints what is wrong with a command line, and where help is. c: NULL if no command is known.
 * CTL_USAGE. */
int help_usage_error(const struct command *c, const char *text);
int help_unknown_command(const char *typed);
