/* SPDX-License-Identifier: MIT
 *
 * Stream memory operations: waits for words and writes of words.
 */
#pragma once

#include "tests/fakecuda/fake_queue.h"

/* Whether such an operation may be queued on that GPU. What a driver punishes with the loss of the
 * context is misuse; mempool memory is INVALID_VALUE. */
CUresult word_check(const struct word *word, bool write, unsigned int gpu);
bool word_is_reached(const struct word *word);
void word_write(const struct word *word);

/* The operation of a batch; another kind than the four is INVALID_VALUE. */
CUresult word_parse(const CUstreamBatchMemOpParams *params, struct word *ret, bool *ret_write);
/* Queues a batch that was checked. */
CUresult word_put_batch(struct queue *q, unsigned int n, const CUstreamBatchMemOpParams *params);
