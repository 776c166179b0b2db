/* SPDX-License-Identifier: MIT
 *
 * The last words of a process that writes to read-only host memory.
 */
#pragma once

#include "client/gpushm.h"

/* With the GIL: from the first to the second a write to the buffer's memory is explained. The first
 * call of all sets the handler, unless $GPUSHM_SIGSEGV is 0. */
void write_fault_watch(const struct gpushm_buffer *b);
void write_fault_forget(const struct gpushm_buffer *b);
