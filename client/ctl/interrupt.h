/* SPDX-License-Identifier: MIT
 *
 * SIGINT, SIGTERM and SIGHUP while a transfer has something to clean up. Elsewhere they kill.
 */
#ifndef GPUSHM_CLIENT_CTL_INTERRUPT_H
#define GPUSHM_CLIENT_CTL_INTERRUPT_H

#include <stdbool.h>

/* From now on a signal is remembered instead of killing, and makes blocking calls return EINTR.
 * The second one kills. A signal that is ignored stays so. */
void interrupt_catch(void);

/* From now on signals kill again. */
void interrupt_release(void);

/* Whether one was caught. */
bool interrupt_pending(void);

/* Dies of the signal that was caught, as the shell expects; returns if there was none. */
void interrupt_obey(void);

#endif
