/* SPDX-License-Identifier: MIT
 *
 * Capture, instantiation and launch. A graph is a list here, since only one stream at a time is
 * captured into it: events that would join another stream are refused.
 *
 * An instantiated graph has copies of the nodes, and finds one by the node that it was made from.
 */
#include "tests/fakecuda/fake_graph.h"

#include "tests/fakecuda/fake_context.h"
#include "tests/fakecuda/fake_stream.h"
#include "tests/fakecuda/fake_word.h"

#include <stdlib.h>
#include <string.h>

/* A node of a graph or of an instantiated one: an operation or a batch. */
struct node {
	struct list link;	      /* graph::nodes */
	const struct node *made_from; /* of an instantiated graph's */
	struct op *op;		      /* owned; NULL: a batch */
	unsigned int n;
	CUstreamBatchMemOpParams *params; /* owned */
};

struct graph {
	struct list link; /* graphs */
	struct list nodes;
	struct context *context;
	bool is_exec;
	struct queue *launched_on; /* a reference; the next launch is behind it */
	uint64_t launched_count;
};

static struct list graphs = { &graphs, &graphs };

/* ---- nodes ---- */

static void node_free(struct node *node)
{
	if (node->op)
		op_free(node->op);
	free(node->params);
	list_drop(&node->link);
	free(node);
}

static struct node *node_new(struct graph *g, struct op *op, unsigned int n,
			     const CUstreamBatchMemOpParams *params)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->op = op;
	node->n = n;
	node->params = n ? calloc(n, sizeof(*params)) : NULL;
	list_insert(&g->nodes, &node->link);
	if (n && !node->params) {
		node_free(node);
		return NULL;
	}
	if (n)
		memcpy(node->params, params, n * sizeof(*params));
	return node;
}

CUresult graph_add(struct graph *g, struct op *op)
{
	if (node_new(g, op, 0, NULL))
		return CUDA_SUCCESS;
	op_free(op);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult graph_add_batch(struct graph *g, unsigned int n, const CUstreamBatchMemOpParams *params)
{
	return node_new(g, NULL, n, params) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct node *node_find(const void *handle, struct graph **ret)
{
	struct graph *g;
	struct node *node;

	list_foreach (g, &graphs, link) {
		if (g->is_exec)
			continue;
		list_foreach (node, &g->nodes, link) {
			if (node != handle)
				continue;
			*ret = g;
			return node;
		}
	}
	return NULL;
}

/* ---- graphs ---- */

static struct graph *graph_find(const void *handle, bool is_exec)
{
	struct graph *g;

	list_foreach (g, &graphs, link)
		if (g == handle && g->is_exec == is_exec)
			return g;
	return NULL;
}

static struct graph *graph_new(struct context *context, bool is_exec)
{
	struct graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->context = context;
	g->is_exec = is_exec;
	list_init(&g->nodes);
	list_insert(&graphs, &g->link);
	return g;
}

static void graph_free(struct graph *g)
{
	struct node *node;

	list_foreach (node, &g->nodes, link)
		node_free(node);
	if (g->launched_on)
		queue_unref(g->launched_on);
	list_drop(&g->link);
	free(g);
}

unsigned long graph_alive(void)
{
	unsigned long n = 0;
	struct graph *g;

	list_foreach (g, &graphs, link)
		n++;
	return n;
}

static CUresult graph_destroy(const void *handle, bool is_exec)
{
	struct graph *g = graph_find(handle, is_exec);

	if (!g)
		return misuse("%p, to be destroyed, is no graph (any more)", handle);
	graph_free(g);
	return CUDA_SUCCESS;
}

/* ---- capture ---- */

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void look_at_capture(struct queue *q, void *argument)
{
	bool is_own = pthread_equal(q->captured_by, pthread_self());

	if (!q->capture || q->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
	    (!is_own && (q->capture_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
			 thread_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)))
		return;
	q->capture_failed = true;
	*(bool *)argument = true;
}

CUresult graph_check_safe(void)
{
	bool unsafe = false;

	if (thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		queue_each(look_at_capture, &unsafe);
	return unsafe ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

static CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
	struct context *context;
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result == CUDA_SUCCESS)
		result = context_current(&context);
	if (result)
		return result;
	if (q->kind == QUEUE_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (q->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	q->capture = graph_new(context, false);
	q->capture_failed = false;
	q->capture_mode = mode;
	q->captured_by = pthread_self();
	return q->capture ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult capture_end(CUstream stream, CUgraph *ret)
{
	unsigned int gpu;
	struct queue *q;
	struct graph *g;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result)
		return result;
	g = q->capture;
	if (!g)
		return CUDA_ERROR_ILLEGAL_STATE;
	q->capture = NULL;
	if (q->capture_failed) {
		graph_free(g);
		*ret = NULL;
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	*ret = (CUgraph)g;
	return CUDA_SUCCESS;
}

static CUresult capture_status(CUstream stream, CUstreamCaptureStatus *ret, struct queue **ret_q)
{
	unsigned int gpu;
	CUresult result = stream_queue(stream, ret_q, &gpu);

	if (result)
		return result;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = CU_STREAM_CAPTURE_STATUS_NONE;
	if ((*ret_q)->capture)
		*ret = (*ret_q)->capture_failed ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						: CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

/* The last node is the only one that the next one will depend on. */
static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
			     CUgraph *graph, const CUgraphNode **last, size_t *n_last)
{
	static _Thread_local CUgraphNode tail;
	struct queue *q;
	CUresult result = capture_status(stream, status, &q);

	if (result || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return result;
	if (id)
		*id = (uintptr_t)q->capture;
	if (graph)
		*graph = (CUgraph)q->capture;
	tail = list_empty(&q->capture->nodes)
		       ? NULL
		       : (CUgraphNode)container_of(q->capture->nodes.prev, struct node, link);
	if (last)
		*last = &tail;
	if (n_last)
		*n_last = tail != NULL;
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	struct queue *q;

	return capture_status(stream, status, &q);
}

/* ---- looking at a graph ---- */

static CUresult graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	struct graph *g = graph_find(graph, false);
	struct node *node;
	size_t found = 0;

	if (!g || !n)
		return CUDA_ERROR_INVALID_VALUE;
	list_foreach (node, &g->nodes, link) {
		if (nodes && found < *n)
			nodes[found] = (CUgraphNode)node;
		found++;
	}
	if (!nodes || found < *n)
		*n = found;
	return CUDA_SUCCESS;
}

static CUresult node_type(CUgraphNode handle, CUgraphNodeType *ret)
{
	struct graph *g;
	struct node *node = node_find(handle, &g);

	if (!node)
		return misuse("%p is no node of a graph (any more)", (void *)handle);
	if (!node->op)
		*ret = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	else
		*ret = node->op->kind == OP_HOST ? CU_GRAPH_NODE_TYPE_HOST
						 : CU_GRAPH_NODE_TYPE_MEMCPY;
	return CUDA_SUCCESS;
}

static CUresult batch_get(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret)
{
	struct graph *g;
	struct node *node = node_find(handle, &g);

	if (!node)
		return misuse("%p is no node of a graph (any more)", (void *)handle);
	if (!node->n || !ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUDA_BATCH_MEM_OP_NODE_PARAMS){ .ctx = (CUcontext)g->context,
						.count = node->n,
						.paramArray = node->params };
	return CUDA_SUCCESS;
}

/* ---- instantiated graphs ---- */

static CUresult node_clone(struct graph *to, const struct node *from)
{
	struct op *op = from->op ? op_clone(from->op) : NULL;
	struct node *node = NULL;

	if (!from->op || op)
		node = node_new(to, op, from->n, from->params);
	if (node)
		node->made_from = from;
	else if (op)
		op_free(op);
	return node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult instantiate(CUgraphExec *ret, CUgraph handle)
{
	struct graph *g = graph_find(handle, false), *exec;
	CUresult result = CUDA_SUCCESS;
	struct node *node;

	if (!g || !ret)
		return CUDA_ERROR_INVALID_VALUE;
	exec = graph_new(g->context, true);
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	list_foreach (node, &g->nodes, link) {
		result = node_clone(exec, node);
		if (result)
			break;
	}
	if (result)
		graph_free(exec);
	else
		*ret = (CUgraphExec)exec;
	return result;
}

static CUresult launch_nodes(const struct graph *g, struct queue *q)
{
	CUresult result = CUDA_SUCCESS;
	struct node *node;

	list_foreach (node, &g->nodes, link) {
		result = node->op ? queue_put(q, op_clone(node->op))
				  : word_put_batch(q, node->n, node->params);
		if (result)
			break;
	}
	return result;
}

/* Launches of one instantiated graph are in order, also on several streams. */
static CUresult launch(CUgraphExec handle, CUstream stream)
{
	struct graph *g = graph_find(handle, true);
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result)
		return result;
	if (q->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!g)
		return misuse("%p, to be launched, is no graph (any more)", (void *)handle);
	if (g->launched_on) {
		result = queue_put_after(q, g->launched_on, g->launched_count);
		queue_unref(g->launched_on);
		g->launched_on = NULL;
	}
	if (result == CUDA_SUCCESS)
		result = launch_nodes(g, q);
	g->launched_on = queue_ref(q);
	g->launched_count = q->queued;
	return result;
}

static bool is_same_operation(const CUstreamBatchMemOpParams *a, const CUstreamBatchMemOpParams *b)
{
	struct word word_a, word_b;
	bool write;

	return a->operation == b->operation && word_parse(a, &word_a, &write) == CUDA_SUCCESS &&
	       word_parse(b, &word_b, &write) == CUDA_SUCCESS &&
	       !((word_a.flags ^ word_b.flags) & CU_STREAM_WAIT_VALUE_FLUSH);
}

static CUresult check_params(const struct graph *g, const struct node *node,
			     const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	CUresult result = CUDA_SUCCESS;
	struct word word;
	bool write;

	if (!params || params->count != node->n || params->ctx != (CUcontext)g->context ||
	    params->flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < node->n && result == CUDA_SUCCESS; i++) {
		if (!is_same_operation(&node->params[i], &params->paramArray[i]))
			return CUDA_ERROR_INVALID_VALUE;
		word_parse(&params->paramArray[i], &word, &write);
		result = word_check(&word, write, stream_context_gpu(g->context));
	}
	return result;
}

static CUresult exec_batch_set(CUgraphExec handle, CUgraphNode made_from,
			       const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct graph *g = graph_find(handle, true), *source;
	struct node *node;
	CUresult result;

	if (!g || !node_find(made_from, &source))
		return misuse("%p is no graph or %p none of its nodes (any more)", (void *)handle,
			      (void *)made_from);
	list_foreach (node, &g->nodes, link) {
		if (node->made_from != (void *)made_from)
			continue;
		result = node->n ? check_params(g, node, params) : CUDA_ERROR_INVALID_VALUE;
		if (result == CUDA_SUCCESS)
			memcpy(node->params, params->paramArray, node->n * sizeof(*node->params));
		return result;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* ---- the driver's calls ---- */

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	return FAKE_CALL(CALL_PLAIN, capture_begin(stream, mode));
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	return FAKE_CALL(CALL_PLAIN, exchange_mode(mode));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	return FAKE_CALL(CALL_PLAIN, capture_end(stream, graph));
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	return FAKE_CALL(CALL_PLAIN, is_capturing(stream, status));
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **last,
				   const CUgraphEdgeData **edges, size_t *n_last)
{
	return FAKE_CALL(CALL_PLAIN, capture_info(stream, status, id, graph, last, n_last));
}

/* Newer headers do not declare it. */
__attribute__((visibility("default"))) CUresult cuStreamGetCaptureInfo_v2(
	CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	const CUgraphNode **last, size_t *n_last);

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **last, size_t *n_last)
{
	return FAKE_CALL(CALL_PLAIN, capture_info(stream, status, id, graph, last, n_last));
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	return FAKE_CALL(CALL_PLAIN, graph_nodes(graph, nodes, n));
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	return FAKE_CALL(CALL_PLAIN, node_type(node, type));
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	return FAKE_CALL(CALL_PLAIN, batch_get(node, params));
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
					    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	return FAKE_CALL(CALL_PLAIN, exec_batch_set(exec, node, params));
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	return FAKE_CALL(CALL_PLAIN, instantiate(exec, graph));
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, launch(exec, stream));
}

CUresult cuGraphDestroy(CUgraph graph)
{
	return FAKE_CALL(CALL_GIVES_BACK, graph_destroy(graph, false));
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	return FAKE_CALL(CALL_GIVES_BACK, graph_destroy(exec, true));
}
