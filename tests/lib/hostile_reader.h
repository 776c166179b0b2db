/* SPDX-License-Identifier: MIT
 *
 * With HOSTILE_READER=1 each stream of the tests has one reader more, in a process of its own: it
 * writes rubbish to all words of its page for as long as the stream lives. Of the claims it writes
 * those that hold no slot: what a reader does that holds one is not rubbish, and the producer's
 * limit is for it.
 */
#pragma once

/* Behind the creation of a stream: it has joined and wiped its page when this returns. It leaves
 * when the stream ends, the daemon goes, or this thread ends. */
void hostile_reader_join(const char *socket, const char *name);

/* None joins in the rest of this test, also not in its roles. why: what one seat more would
 * change. */
void hostile_reader_stays_away(const char *why);
