/* SPDX-License-Identifier: MIT
 *
 * Letting go of memory and coming back; gpushm-memory(7) has the picture. Errors and threads are as
 * gpushm.h says.
 */
#ifndef GPUSHM_MEMORY_H
#define GPUSHM_MEMORY_H

#include <gpushm.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Lets go of the buffer's memory: unmaps it, and tells the daemon that the lease is away. The
 * buffer stays open, and keeps its table, its arrays and its addresses. Meanwhile
 * gpushm_buffer_host_ptr(), gpushm_buffer_device_ptr(), copies and new DLPack tensors fail with
 * -EBUSY. Pointers, arrays and tensors that exist stay valid objects, but nobody may use what they
 * point to: a kernel that does ends with an illegal address, a CPU with SIGSEGV. A captured CUDA
 * graph may be launched again after gpushm_resume().
 *
 * The memory stays mapped while the process has the buffer open a second time, and in use.
 *
 * Waits for the work that this process has queued on the buffer's GPUs, as gpushm_close() does;
 * with GPUSHM_IDLE it does not: then the caller knows that no queued work uses the buffer. Asks the
 * daemon. A buffer that is suspended stays so: 0.
 *
 * Errors: -EBUSY (it is not published, or another thread copies from or to it), -ENOTSUP (a stream,
 * memory of a mempool, or opened with GPUSHM_COPY_ON_WRITE), -ENOSYS (the daemon is older than this
 * library), -EIO (the driver could not unmap it). After an error of the daemon's the memory is
 * mapped again, if the daemon sends it; gpushm_buffer_suspended() tells. */
int gpushm_suspend(struct gpushm_buffer *b, uint32_t flags);
#define GPUSHM_IDLE (1u << 13) /* suspend: no work that uses the buffer is queued */

/* Maps the memory again, at the same addresses: that of the buffer which has the name now, by which
 * this one was opened or published. It may be another one, which replaced it meanwhile, also as its
 * first generation by a second rename; with rights as for gpushm_open(). Where the name is
 * nobody's, or still being filled, the buffer is what it was. Asks the daemon, and waits for at
 * most timeout_ms. A buffer that is not suspended stays as it is: 0.
 *
 * 0: it has the same pages as before. GPUSHM_OTHER_PAGES: the same bytes in other memory, because
 * it was evicted: registrations with other devices must be made anew. GPUSHM_OTHER_GENERATION:
 * another buffer of that name, with other bytes, whose arrays have the same names, types and
 * offsets: arrays, pointers and captured graphs are valid, and read the new bytes;
 * gpushm_buffer_id() is the new one's, and attributes are those of the open. The lease on the old
 * buffer has ended.
 *
 * Where this process has the buffer open a second time, and not suspended, both are the same at the
 * same addresses, and it comes back to that one.
 *
 * Errors: -ESTALE (the buffer of that name has other arrays, another size, or is in another pool:
 * close this one, and open the name; until then it keeps the old bytes), -EACCES, -EROFS,
 * -ETIMEDOUT, -EBADF (the buffer is gone: the daemon was restarted without it, or its GPU was
 * lost), -ENOMEM, and of an evicted one -ENOSPC, -EDQUOT, -ESTALE (its source changed), -EBADMSG
 * (the twin's bytes have another digest), and -ENODATA (its source can't be read, or it is another
 * user's, whose processes did not bring it back in time). The buffer is suspended afterwards. */
int gpushm_resume(struct gpushm_buffer *b, uint64_t timeout_ms);
#define GPUSHM_OTHER_PAGES 1
#define GPUSHM_OTHER_GENERATION 2

/* Gives the memory of a buffer back to its pool. The name, the table and the leases stay, and the
 * twin has the bytes: the next gpushm_open() or gpushm_resume() of a process of the owner copies
 * them into new memory, and the others wait for that, for as long as their timeout says. Other
 * users' processes get -ENODATA meanwhile. For the owner and administrators. Asks the daemon. A
 * buffer that is evicted stays so: 0.
 *
 * Without a twin its source may have the bytes, the one file, folder or URL that it was loaded from
 * (gpushm_load.h). If the program has libgpushm-load, this function reads the headers there, and
 * tells the daemon that the owner's processes can load it again. They do, if they have that
 * library, with their own rights: -ENODATA, it can't be read; -ESTALE, it has other bytes. The
 * buffer stays evicted then.
 *
 * Errors: -ENOENT, -EACCES, -EBUSY (it is not sealed, has no twin and no source, or a process has
 * it mapped: all must have suspended it), -ENODATA, -ESTALE, -ENOTSUP as of gpushm_suspend(). */
int gpushm_evict(struct gpushm *c, const char *name);

/* Makes a twin of the buffer: copies its bytes into memory of that pool, of the host's memory. The
 * daemon has it as long as the buffer; nobody else sees it. For the owner. Opens the buffer, and
 * waits for the copy.
 *
 * Errors: -EEXIST (it has a twin), -ENOSPC, -EDQUOT, -EBUSY (it is not sealed), -ENOTSUP (pool is
 * on a GPU), and those of gpushm_open(). */
int gpushm_make_twin(struct gpushm *c, const char *name, const char *pool);

/* The program uses the buffer now: it is the last of those whose memory goes. Brings no memory
 * back. Call it with each use: tells the daemon once a second at most, without a wait, and not at
 * all while another thread waits for the daemon on this connection. 0, -EINVAL, -ECHILD. */
int gpushm_use(struct gpushm_buffer *b);

/* How long the memory of a buffer that has a twin, or a source as of gpushm_evict(), stays after
 * its last use: 0: it may be evicted at once when its owner needs memory in that pool;
 * GPUSHM_WAIT_FOREVER: never. A use is an open, a resume, a suspend, a close and gpushm_use().
 * priority: of buffers that are in use, those that have less are asked for first. The daemon's
 * default is `keep` in gpushmd.conf, and priority 0. For the owner and administrators. Asks the
 * daemon. Errors: -ENOENT, -EACCES, -EBUSY (it has no twin and no source), -ENODATA, -ESTALE. */
int gpushm_set_keep(struct gpushm *c, const char *name, uint64_t keep_ms, int priority);

/* 1: the buffer's memory is needed, and the processes that use it are asked to suspend it: within
 * `yield-timeout` of gpushmd.conf, and nobody is forced. Reads a word; no system call.
 * gpushm_buffer_wait() tells the change as GPUSHM_NOTICE_WANTED. */
int gpushm_wanted(const struct gpushm_buffer *b);
#define GPUSHM_NOTICE_WANTED (1u << 5)

/* An fd for poll() and event loops. It is readable when a buffer that this process has mapped may
 * have become wanted, or may not be wanted any more. Each call makes it unreadable until the next
 * change: so call it again when it is readable, and then look at gpushm_wanted() of the buffers,
 * also of one that was opened or resumed since. The fd is always the same. It belongs to the
 * connection, and is closed with it, after its last buffer: do not read or close it. Asks the
 * daemon at the first call, over a connection of its own, and waits for no reply later.
 *
 * Errors: -ENOSYS (the daemon is older than this library), those of gpushm_connect(), and
 * -ECONNRESET: the daemon has gone, and does not come back; the fd stays. */
int gpushm_wanted_fd(struct gpushm *c);

/* Asks all processes that have the buffer mapped to suspend it: it is wanted from now on, as if
 * memory were needed, but keeps its memory; it needs no twin. Nobody is forced. The holders that
 * gpushm_stat() tells with GPUSHM_HOLDERS say who is not away. It stays asked until
 * gpushm_ask_resume() takes that back, it ends, or the daemon is started again. *ret_yield_ms (NULL
 * is allowed): how long the daemon itself waits for those that it asks. For the owner and
 * administrators. Asks the daemon. Errors: -ENOENT, -EACCES, -EBUSY, -ENOTSUP as of
 * gpushm_suspend(). */
int gpushm_ask_suspend(struct gpushm *c, const char *name, uint64_t *ret_yield_ms);
int gpushm_ask_resume(struct gpushm *c, const char *name);

/* Says for this process that it may be parked: that it has nothing of other processes' on a GPU but
 * what gpushm knows: no import of memory or of a pool, no CUDA IPC handle, no NCCL communicator.
 * Without that promise it is not parked, because the driver never lets such a process run again.
 * unless: NULL, or why it may not (from now on), as "NCCL has imported its peers' memory"; at most
 * 127 bytes. Such a program calls gpushm_wanted_fd(), too: it is asked to suspend all buffers, of
 * which gpushm_wanted() is 1 then. Asks the daemon. Errors: -EINVAL, -ENOSYS (the daemon is older
 * than this library), -EPERM. */
int gpushm_may_park(struct gpushm *c, const char *unless);

/* Parks another process of the same user, and PID namespace: nothing of it is on a GPU then, no
 * context and no memory, until it is unparked. Asks it to suspend all that it has open, and has the
 * driver, of version 570 or later, freeze it; its threads go on until they call the driver, which
 * waits. A helper, the program gpushmctl of $PATH, or that which GPUSHMCTL names, calls the driver
 * for this. Waits for at most timeout_ms. A process that is parked stays so: 0.
 *
 * Errors, and the process runs as before: -ENOENT (no client of this user), -EBUSY (it has not
 * suspended all in time; the text says what), -ENOTSUP (it has not promised that it may be parked,
 * or has a stream or a mempool open), -EPERM (another PID namespace), -EIO (the driver refuses, or
 * can't; the text says why), -ENOENT (no helper), -ENOSYS.
 * -ETIMEDOUT: the driver does not come back, and nor may the process; GPUSHM_KILL_STUCK kills it
 * then. The helper is ended. */
int gpushm_park(struct gpushm *c, pid_t pid, uint64_t timeout_ms, uint32_t flags);
#define GPUSHM_KILL_STUCK (1u << 14)

/* Lets it run again, as it was. A process that is not parked goes on: 0. Errors: those of
 * gpushm_park() but -ENOTSUP; -EBUSY: another process parks or unparks it. After -EIO it may be
 * tried again. */
int gpushm_unpark(struct gpushm *c, pid_t pid, uint64_t timeout_ms, uint32_t flags);

/* 1: it is suspended. */
int gpushm_buffer_suspended(const struct gpushm_buffer *b);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
