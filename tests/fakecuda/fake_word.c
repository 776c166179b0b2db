/* SPDX-License-Identifier: MIT
 *
 * cuStreamWaitValue, cuStreamWriteValue, cuStreamBatchMemOp. The words are this process's memory,
 * read and written with atomic operations, so that other processes and other threads of this one
 * may do the same.
 */
#include "tests/fakecuda/fake_word.h"

#include "tests/fakecuda/fake_graph.h"
#include "tests/fakecuda/fake_range.h"
#include "tests/fakecuda/fake_stream.h"

#define BATCH_MAX 256 /* CUDA C: at most that many in a batch */

CUresult word_check(const struct word *word, bool write, unsigned int gpu)
{
	size_t bytes = word->wide ? 8 : 4;
	struct range *r = range_find(word->address);

	if (word->address % bytes)
		return misuse("the word at %#llx is not aligned to %zu", word->address, bytes);
	if (!r)
		return misuse("the word at %#llx is in no memory that the driver knows",
			      word->address);
	if (r->kind == RANGE_POINTER)
		return CUDA_ERROR_INVALID_VALUE;
	if (range_allows(word->address, bytes, gpu, write))
		return CUDA_SUCCESS;
	return misuse("a %s of the word at %#llx, which GPU %u may not %s: a driver ends the "
		      "context",
		      write ? "write" : "wait for", word->address, gpu, write ? "write" : "read");
}

static void *word_at(const struct word *word)
{
	size_t run;

	if (!range_find(word->address)) {
		misuse("the word at %#llx was unmapped while it was queued", word->address);
		abort();
	}
	return range_at(word->address, &run);
}

bool word_is_reached(const struct word *word)
{
	void *at = word_at(word);
	uint64_t is = word->wide ? __atomic_load_n((uint64_t *)at, __ATOMIC_SEQ_CST)
				 : __atomic_load_n((uint32_t *)at, __ATOMIC_SEQ_CST);

	switch (word->flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return word->wide ? (int64_t)(is - word->value) >= 0
				  : (int32_t)(uint32_t)(is - word->value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return is == word->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return is & word->value;
	default:
		return word->wide ? ~(is | word->value) : (uint32_t) ~(is | word->value);
	}
}

void word_write(const struct word *word)
{
	void *at = word_at(word);

	if (word->wide)
		__atomic_store_n((uint64_t *)at, word->value, __ATOMIC_SEQ_CST);
	else
		__atomic_store_n((uint32_t *)at, (uint32_t)word->value, __ATOMIC_SEQ_CST);
}

static CUresult put(struct queue *q, const struct word *word, bool write)
{
	struct op *op = op_new(write ? OP_WRITE : OP_WAIT, NULL, 0);

	if (op)
		op->word = *word;
	return queue_put(q, op);
}

CUresult word_parse(const CUstreamBatchMemOpParams *p, struct word *ret, bool *ret_write)
{
	*ret = (struct word){ 0 };
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		*ret_write = false;
		ret->address = p->waitValue.address;
		ret->flags = p->waitValue.flags;
		ret->wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
		ret->value = ret->wide ? p->waitValue.value64 : p->waitValue.value;
		return CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		*ret_write = true;
		ret->address = p->writeValue.address;
		ret->wide = p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
		ret->value = ret->wide ? p->writeValue.value64 : p->writeValue.value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult word_put_batch(struct queue *q, unsigned int n, const CUstreamBatchMemOpParams *params)
{
	CUresult result = CUDA_SUCCESS;
	struct word word;
	bool write;

	for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++) {
		result = word_parse(&params[i], &word, &write);
		if (result == CUDA_SUCCESS)
			result = put(q, &word, write);
	}
	return result;
}

/* All are checked before one is queued. */
static CUresult check_batch(unsigned int n, const CUstreamBatchMemOpParams *params,
			    unsigned int gpu)
{
	CUresult result = n && n <= BATCH_MAX && params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	struct word word;
	bool write;

	for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++) {
		result = word_parse(&params[i], &word, &write);
		if (result == CUDA_SUCCESS)
			result = word_check(&word, write, gpu);
	}
	return result;
}

static CUresult batch(CUstream stream, unsigned int n, const CUstreamBatchMemOpParams *params,
		      unsigned int flags)
{
	struct queue *q;
	unsigned int gpu;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result == CUDA_SUCCESS)
		result = flags ? CUDA_ERROR_INVALID_VALUE : check_batch(n, params, gpu);
	if (result)
		return result;
	return q->capture && !q->capture_failed ? graph_add_batch(q->capture, n, params)
						: word_put_batch(q, n, params);
}

static CUresult wait_value(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address,
			   uint64_t value, unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .waitValue = { .operation = operation } };

	p.waitValue.address = address;
	p.waitValue.value64 = value;
	p.waitValue.flags = flags;
	return batch(stream, 1, &p, 0);
}

static CUresult write_value(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address,
			    uint64_t value, unsigned int flags)
{
	CUstreamBatchMemOpParams p = { .writeValue = { .operation = operation } };

	p.writeValue.address = address;
	p.writeValue.value64 = value;
	p.writeValue.flags = flags;
	return batch(stream, 1, &p, 0);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
			     unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN,
			 wait_value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags));
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
			     unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN,
			 wait_value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags));
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
			      unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, write_value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address,
						 value, flags));
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
			      unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, write_value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address,
						 value, flags));
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params,
			    unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, batch(stream, count, params, flags));
}
