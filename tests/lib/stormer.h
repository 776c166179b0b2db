/* SPDX-License-Identifier: MIT
 *
 * One client in a storm: a role that creates, publishes, opens, checks and unlinks buffers at
 * random until its input is closed. The contents of a buffer follow from its name, so that every
 * client can check them.
 */
#pragma once

#include "client/gpushm.h"

/* args: socket, id, id of the client that it replaces or 0, seed, pools separated by commas. */
int stormer_run(char **args);

uint64_t stormer_random(uint64_t *state);

/* Opens a buffer and checks it. Returns 0, -errno of the open, or -EBADMSG for wrong contents; why
 * gets the reason. */
int stormer_verify_name(struct gpushm *c, const char *name, char *why, size_t size);

/* The number of processes whose end the daemon waits for. */
unsigned stormer_suspects(struct gpushm *c);
