/* SPDX-License-Identifier: MIT
 *
 * A libnixl_capi.so of our own, for tests: what client/models/nixl uses of it, over Unix sockets,
 *so that reads cross processes and network namespaces. Misuse ends the process with SIGABRT and a
 *line on standard error: memory that is registered twice or used after its end, a request that is
 *posted twice, handles of another kind, and at the process's end whatever was not freed.
 *
 * The environment says what goes wrong:
 *	FAKENIXL_DIR	where sockets are (/tmp)
 *	FAKENIXL_FAIL=N	the n-th call that can fail does
 *	FAKENIXL_HANG=N	the n-th call that can fail never ends
 *	FAKENIXL_WRONG=N  the n-th read brings a wrong byte; -1: each does
 *	FAKENIXL_DELAY_MS=N  a read takes so long
 *	FAKENIXL_STALL=1  reads never end
 * A test that has opened the library itself finds these functions in it.
 */
#pragma once

/* The n-th of the calls from now on fails; 0: none. Returns how many there were since the last
 * call of this function. */
int fakenixl_fail(int n);
/* The n-th of the reads from now on brings a wrong byte; 0: none. */
void fakenixl_wrong(int n);
/* How many handles and registrations there are. */
int fakenixl_alive(void);
