/* SPDX-License-Identifier: MIT
 *
 * The process of a server: its words, its descriptors and its signals.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* Ends the process, with a line on stderr, if a word follows the options, as getopt_long() has left
 * them. */
void process_refuse_words(const char *program, int argc, char *const *argv);

/* Before the first thread: raises the limit of descriptors, since each client takes one, and blocks
 * SIGTERM, SIGINT and, if it means something, SIGHUP, for sigtimedwait(). Ignores SIGPIPE. */
void process_prepare(bool takes_hangup, sigset_t *ret);
