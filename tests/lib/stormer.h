/* SPDX-License-Identifier: MIT
 *
 * One client in a storm: a role that creates, publishes, opens, checks and unlinks by chance until
 * its input is closed. What a buffer holds follows from its name, so that anybody can check it.
 */
#ifndef GPUSHM_TESTS_LIB_STORMER_H
#define GPUSHM_TESTS_LIB_STORMER_H

#include "client/gpushm.h"

/* args: socket, id, id of the one it comes after or 0, seed, pools with commas between. */
int stormer_run(char **args);

uint64_t stormer_random(uint64_t *state);

/* Opens it and checks it. 0; -errno of the open; -EBADMSG for wrong contents; why says it. */
int stormer_verify_name(struct gpushm *c, const char *name, char *why, size_t size);

/* Processes that the daemon waits for. */
unsigned stormer_suspects(struct gpushm *c);

#endif
