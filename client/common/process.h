/* SPDX-License-Identifier: MIT
 *
 * The process of a server: its words, its descriptors and its signals.
 */
#pragma once

#include "proto/base/args.h"

#include <signal.h>
#include <stdbool.h>

/* args_read(), with the synopsis and the version that all servers have. */
void process_options(const struct args_program *p, char *const *argv, void *base);

/* Before the first thread: raises the limit of descriptors, since each client takes one, and blocks
 * SIGTERM, SIGINT and, if it means something, SIGHUP, for sigtimedwait(). Ignores SIGPIPE. */
void process_prepare(bool takes_hangup, sigset_t *ret);
