/* SPDX-License-Identifier: MIT
 *
 * What data depends on and no documentation promises: it was seen on driver 580. `gpushmctl doctor
 * --driver` tries each fact for each kind of memory (client/ctl/doctor_facts.c). gpushmd tries
 * "kept", which needs no context, when it opens a pool (daemon/pool/backend_*.c).
 */
#pragma once

/* By enum Kind: the kinds of memory that rely on a fact. */
#define FACT_OF(kind) (1u << (kind))
#define FACT_PINNED FACT_OF(2)
#define FACT_VMM FACT_OF(3)
#define FACT_MEMPOOL FACT_OF(4)

/* X(name, kinds, the fact, who relies on it, and what happens if it does not hold) */
#define FACTS(X)                                                                              \
	X(kept, FACT_VMM | FACT_PINNED | FACT_MEMPOOL,                                        \
	  "a descriptor keeps memory without its handle, its pool and its maker",             \
	  "gpushmd keeps descriptors, and hands them on at a restart; else buffers are lost") \
	X(stops, FACT_VMM | FACT_PINNED | FACT_MEMPOOL,                                       \
	  "a killed process writes no more once its pidfd says that it has ended",            \
	  "gpushmd gives its memory to others then; else it writes into their buffers")       \
	X(freed, FACT_VMM | FACT_MEMPOOL,                                                     \
	  "memory is free once its descriptors are closed and who mapped it was killed",      \
	  "gpushmd counts it as free; else pools run out of memory that nobody has")          \
	X(zero, FACT_VMM | FACT_PINNED, "new memory reads zero",                              \
	  "gpushmd does not clear it; else new buffers show what others have left")

enum fact_id {
#define FACT_ID(name, ...) FACT_##name,
	FACTS(FACT_ID) FACT_COUNT
};
struct fact {
	const char *name;
	unsigned int kinds;
	const char *holds, *relies;
};
#define FACT_ROW(name, kinds, holds, relies) { #name, kinds, holds, relies },
