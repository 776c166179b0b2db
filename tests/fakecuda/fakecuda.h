/* SPDX-License-Identifier: MIT
 *
 * libcuda.so.1 for machines without a GPU: the driver API, made of memfds. Device memory is a
 * sparse memfd that is mapped into the process, so a device pointer is a CPU address and a kernel
 * is memcpy. A stream does its work in order: at once, or behind a wait for a word, which other
 * processes may write, too. What it answers was measured on an H200 with driver 580; what a driver
 * would let pass and a broker must not do aborts.
 *
 * Environment
 *   FAKECUDA_DEVICES=n      GPUs, 1 unless told, at most 8; 0: cuInit says NO_DEVICE
 *   FAKECUDA_MEMORY=bytes   of each GPU (K, M, G are understood), 8G unless told
 *   FAKECUDA_STATE=file     shared by processes that shall see the same GPUs: what one has
 *                           allocated, another can't. A name without a slash is in /dev/shm.
 *                           Without it each process has GPUs of its own. Memory is used until the
 *                           last fd, mapping or datagram with its fd has gone, in any process:
 *                           the memfd carries a file lock, which the kernel drops with the last of
 *                           them and shows in /proc/locks.
 *   FAKECUDA_FAIL=n[:call]  the n-th call of this process, or of that name, fails ...
 *   FAKECUDA_FAIL_WITH=num  ... with this CUresult; 999 (UNKNOWN) unless told. cuGetErrorName and
 *                           cuGetErrorString never count. A call that gives something back does so
 *                           all the same and then reports the error; from then on misuse returns
 *                           INVALID_VALUE in this process and does not abort.
 *   FAKECUDA_EPOCH=n        the GPUs were reset that often: memory of a process with a smaller
 *                           number can't be imported any more (INVALID_HANDLE)
 *   FAKECUDA_HANG=n[:call]  the n-th call of this process, or of that name, does not return before
 *   FAKECUDA_HANG_UNTIL=file  this file exists; other threads' calls do. n is * for all
 *   FAKECUDA_BREAK=fact     this fact of proto/facts.h does not hold: memory can't be imported once
 *                           its handle or pool was given back or its maker has ended (kept); the
 *                           first memset of a process is done again after its end, for half a
 *                           second (stops); what was used of a GPU stays used (freed); what
 *                           cuMemCreate makes is not zero (zero)
 *   FAKECUDA_LOG=file       a line is appended for each call: pid, call, result
 *   FAKECUDA_STRICT=1       exit(3) with something not given back, or an fd of ours open, writes
 *                           "fakecuda: leaked ..." and ends the process with status 86
 *   CUDA_VISIBLE_DEVICES    as the real one: ordinals or GPU-<uuid>
 *
 * What aborts, with a line "fakecuda: abort: ..." on stderr
 *   a handle released twice; a map into what is not reserved; an unmap of what is not mapped, or of
 *   a part; a reservation freed while something is mapped in it, with another size, or twice; a
 *   pointer freed twice or never allocated; a pool destroyed twice; an exporter that frees a pool's
 *   pointer while a live process still has it imported; an import of a pointer that its exporter
 *   has freed (a driver maps the next tenant's memory); a destroyed stream, event or graph (a
 * driver crashes); a wait or a write of a word that is unaligned, unknown, or may not be written (a
 *   driver ends the context), and words that are unregistered while one is queued; memory that is
 *   freed or unmapped before the copy that is queued for it.
 *
 * Quirks that are faithful
 *   - A forked child of a process that has called cuInit gets NOT_INITIALIZED from every call. Our
 *     mappings are not inherited.
 *   - cuMemCreate, pool creation, exports and imports need no context; copies, cuMemAlloc, and a
 *     pool's allocation or free on the default stream do. A current context that was released
 *     gives CONTEXT_IS_DESTROYED.
 *   - An imported handle can't be exported. An fd of something else: UNKNOWN; a vmm fd as a pool:
 *     NOT_SUPPORTED. A handle is mapped whole (else NOT_SUPPORTED), PROT_NONE until cuMemSetAccess.
 *     PROT_READ: a CPU write is SIGSEGV, a driver call that would write INVALID_VALUE. HOST_NUMA
 *     memory: the CPU sees it only when it was given access.
 *   - vmm fds are close-on-exec, pool fds are not.
 *   - A pointer can be exported once its pool has been.
 *   - maxSize is rounded up to 32 MiB. An exported pool keeps what it had. A freed block is used
 *     again by the next allocation that fits, with its old contents.
 *   - An imported pool: its own GPU has access at once, others after cuMemPoolSetAccess, PROT_READ
 *     is NOT_SUPPORTED; no allocation, statistics, trim or export (INVALID_VALUE). Imported twice
 *     it is the same handle; with pointers alive cuMemPoolDestroy says INVALID_VALUE. A pointer
 *     imported twice has the same address and is not counted. One above 5248 MiB kills the
 *     importer with SIGSEGV.
 *   - cuMemHostRegister of read-only pages needs CU_MEMHOSTREGISTER_READ_ONLY.
 *   - Words of a mempool: INVALID_VALUE. Pageable memory is staged: a line of up to 64 KiB to a
 *     device is taken at once, other copies wait. The legacy default stream is behind and before
 *     all others of its context but the non-blocking ones. cuMemFree waits for the context.
 *   - A graph is what one stream captured; the parameters of its batches of words can be changed in
 *     the instantiated graph, as long as the graph itself lives.
 *   - cuCheckpointProcessLock, Checkpoint, Restore and Unlock in another process, which shares
 *     FAKECUDA_STATE: each in its state alone, else ILLEGAL_STATE. Meanwhile calls of the locked
 *     process wait. Checkpoint of a process that has another one's memory never returns.
 * Not modelled: kernels (cuLaunchHostFunc plays them), time, work that outlives its process, the
 * memory that a context costs.
 */
#pragma once

#define FAKECUDA_LEAKED_STATUS 86

/* For tests, found with dlsym(). They are no driver calls: they count nowhere and never fail. */
typedef unsigned long fakecuda_calls_fn(const char *name);
typedef unsigned long fakecuda_handed_out_fn(void);
typedef void fakecuda_reset_fail_fn(unsigned long n);

/* nvmlMemory_t */
struct nvml_memory {
	unsigned long long total, free, used;
};

#pragma GCC visibility push(default)
/* How often a call was made in this process; the name with or without its _v2. NULL: all calls. */
fakecuda_calls_fn fakecuda_calls;
/* Handles, reservations, mappings, pools, pointers and registrations alive in this process. */
fakecuda_handed_out_fn fakecuda_handed_out;
/* The n-th call from now on fails (0: none will), of FAKECUDA_FAIL's name if that gave one. Ends
 * the leniency towards misuse. */
fakecuda_reset_fail_fn fakecuda_reset_fail;
/* libnvidia-ml.so.1 is another name of this library. It tells the memory that is truly used. */
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci_id, void **ret);
int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *ret);
#pragma GCC visibility pop
