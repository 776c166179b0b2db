/* SPDX-License-Identifier: MIT
 *
 * The calls of NIXL, one at a time for each agent: as nixl_capi_create_agent() makes them, agents
 * are not made for several threads, and its other form has a struct that changes with versions.
 */
#include "client/models/nixl/agent.h"

#include "client/models/fail.h"
#include "client/models/locks.h"
#include "client/models/nixl/library.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Of UCX over TCP: its own 8 KiB are half as fast (0.18 and 0.31 GB/s on the same machine). What is
 * in the environment (UCX_TCP_TX_SEG_SIZE) is stronger. */
#define ENGINE "TCP_TX_SEG_SIZE=256k,TCP_RX_SEG_SIZE=256k"
#define BACKEND "UCX"

struct nixl_agent {
	const struct nixl_library *library;
	pthread_mutex_t lock; /* held for each call */
	struct nixl_capi_agent_s *agent;
	struct nixl_capi_backend_s *backend;
	struct nixl_capi_reg_dlist_s *registered; /* owned; NULL: nothing yet */
	char *peer;				  /* owned: its name; NULL: not met yet */
};

struct nixl_read {
	struct nixl_agent *agent;
	struct nixl_capi_xfer_req_s *request;
};

static int fail(const char *function, int status)
{
	return load_fail(EIO, "NIXL: nixl_capi_%s: %s", function, nixl_status_word(status));
}

/* ---- birth and death ---- */

static int create_backend(struct nixl_agent *a)
{
	const struct nixl_library *l = a->library;
	struct nixl_capi_mem_list_s *memories;
	struct nixl_capi_params_s *params;
	int status = l->get_plugin_params(a->agent, BACKEND, &memories, &params);

	if (status < 0)
		return load_fail(EIO,
				 "NIXL: its plug-in " BACKEND " can't be loaded (%s; "
				 "NIXL_PLUGIN_DIR says where it is)",
				 nixl_status_word(status));
	status = l->params_add(params, "engine_config", ENGINE);
	if (status >= 0)
		status = l->create_backend(a->agent, BACKEND, params, &a->backend);
	l->destroy_mem_list(memories);
	l->destroy_params(params);
	return status < 0 ? fail("create_backend(\"" BACKEND "\")", status) : 0;
}

static int create_agent(struct nixl_agent *a)
{
	char name[48];
	uint64_t number;
	int status;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return load_fail(EIO, "NIXL: getrandom: %s", strerror(errno));
	snprintf(name, sizeof(name), "gpushm-%016" PRIx64, number);
	status = a->library->create_agent(name, &a->agent);
	return status < 0 ? fail("create_agent", status) : create_backend(a);
}

int gpushm_private_nixl_new(struct nixl_agent **ret)
{
	const struct nixl_library *library;
	struct nixl_agent *a;
	int r = nixl_library(&library);

	if (r < 0)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a)
		return load_no_memory();
	a->library = library;
	pthread_mutex_init(&a->lock, NULL);
	r = create_agent(a);
	if (r < 0)
		a = gpushm_private_nixl_free(a);
	else
		*ret = a;
	return r;
}

struct nixl_agent *gpushm_private_nixl_free(struct nixl_agent *a)
{
	if (!a)
		return NULL;
	if (a->peer)
		a->library->invalidate_remote_md(a->agent, a->peer);
	if (a->registered) {
		a->library->deregister_mem(a->agent, a->registered, NULL);
		a->library->destroy_reg_dlist(a->registered);
	}
	if (a->backend)
		a->library->destroy_backend(a->backend);
	if (a->agent)
		a->library->destroy_agent(a->agent);
	free(a->peer);
	pthread_mutex_destroy(&a->lock);
	free(a);
	return NULL;
}

/* ---- memory ---- */

static int memory_type(const struct nixl_memory *m)
{
	return m->gpu ? NIXL_CAPI_MEM_VRAM : NIXL_CAPI_MEM_DRAM;
}

static uint64_t device_id(const struct nixl_memory *m)
{
	return m->gpu ? (uint64_t)m->device : 0;
}

static int register_list(struct nixl_agent *a, const struct nixl_memory *m,
			 struct nixl_capi_reg_dlist_s *list)
{
	int status =
		a->library->reg_dlist_add_desc(list, m->address, m->bytes, device_id(m), NULL, 0);

	if (status < 0)
		return fail("reg_dlist_add_desc", status);
	status = a->library->register_mem(a->agent, list, NULL);
	return status < 0 ? fail("register_mem", status) : 0;
}

int gpushm_private_nixl_register(struct nixl_agent *a, const struct nixl_memory *m)
{
	struct nixl_capi_reg_dlist_s *list;
	int r;

	lock_guard(&a->lock, LOCK_NIXL_AGENT);
	r = a->library->create_reg_dlist(memory_type(m), &list);
	if (r < 0)
		return fail("create_reg_dlist", r);
	r = register_list(a, m, list);
	if (r < 0)
		a->library->destroy_reg_dlist(list);
	else
		a->registered = list;
	return r;
}

/* ---- peers ---- */

int gpushm_private_nixl_metadata(struct nixl_agent *a, void **ret, size_t *ret_n)
{
	int status;

	lock_guard(&a->lock, LOCK_NIXL_AGENT);
	status = a->library->get_local_md(a->agent, ret, ret_n);
	return status < 0 ? fail("get_local_md", status) : 0;
}

int nixl_agent_meet(struct nixl_agent *a, const void *metadata, size_t n)
{
	int status;

	lock_guard(&a->lock, LOCK_NIXL_AGENT);
	status = a->library->load_remote_md(a->agent, metadata, n, &a->peer);
	if (status >= 0)
		return 0;
	a->peer = NULL;
	return load_fail(EIO,
			 "NIXL: the relay's metadata can't be loaded (%s); are both "
			 "sides' versions the same?",
			 nixl_status_word(status));
}

/* ---- reads ---- */

static int make_list(struct nixl_agent *a, const struct nixl_memory *m,
		     const struct nixl_part *parts, size_t n, bool remote,
		     struct nixl_capi_xfer_dlist_s **ret)
{
	int status = a->library->create_xfer_dlist(memory_type(m), ret);

	if (status < 0) {
		*ret = NULL;
		return fail("create_xfer_dlist", status);
	}
	for (size_t i = 0; status >= 0 && i < n; i++)
		status = a->library->xfer_dlist_add_desc(*ret,
							 remote ? parts[i].remote : parts[i].local,
							 parts[i].bytes, device_id(m));
	return status < 0 ? fail("xfer_dlist_add_desc", status) : 0;
}

/* A request that is made and not posted is released as one that is under way. */
static void release(struct nixl_read *r)
{
	const struct nixl_library *l = r->agent->library;

	/* What can't be released belongs to the agent's end; then destroying it is refused. */
	if (r->request && l->release_xfer_req(r->agent->agent, r->request) >= 0)
		l->destroy_xfer_req(r->request);
	r->request = NULL;
}

static int post(struct nixl_read *r, struct nixl_capi_xfer_dlist_s *local,
		struct nixl_capi_xfer_dlist_s *remote)
{
	struct nixl_agent *a = r->agent;
	int status = a->library->create_xfer_req(a->agent, NIXL_CAPI_XFER_OP_READ, local, remote,
						 a->peer, &r->request, NULL);

	if (status < 0) {
		r->request = NULL;
		return fail("create_xfer_req", status);
	}
	status = a->library->post_xfer_req(a->agent, r->request, NULL);
	if (status < 0)
		release(r);
	return status < 0 ? fail("post_xfer_req", status) : 0;
}

static int begin_locked(struct nixl_read *r, const struct nixl_memory *local,
			const struct nixl_memory *remote, const struct nixl_part *parts, size_t n)
{
	const struct nixl_library *l = r->agent->library;
	struct nixl_capi_xfer_dlist_s *here = NULL, *there = NULL;
	int result = make_list(r->agent, local, parts, n, false, &here);

	if (result == 0)
		result = make_list(r->agent, remote, parts, n, true, &there);
	if (result == 0)
		result = post(r, here, there);
	if (here)
		l->destroy_xfer_dlist(here);
	if (there)
		l->destroy_xfer_dlist(there);
	return result;
}

int nixl_read_begin(struct nixl_agent *a, const struct nixl_memory *local,
		    const struct nixl_memory *remote, const struct nixl_part *parts, size_t n,
		    struct nixl_read **ret)
{
	_cleanup_(free_ptr) struct nixl_read *r = calloc(1, sizeof(*r));
	int result;

	if (!r)
		return load_no_memory();
	r->agent = a;
	lock_guard(&a->lock, LOCK_NIXL_AGENT);
	result = begin_locked(r, local, remote, parts, n);
	if (result == 0)
		*ret = take_ptr(r);
	return result;
}

int nixl_read_poll(struct nixl_read *r)
{
	struct nixl_agent *a = r->agent;
	int status;

	lock_guard(&a->lock, LOCK_NIXL_AGENT);
	status = a->library->get_xfer_status(a->agent, r->request);
	if (status < 0)
		return load_fail(EIO, "NIXL: the connection to the relay broke (%s)",
				 nixl_status_word(status));
	return status == NIXL_CAPI_SUCCESS;
}

struct nixl_read *nixl_read_end(struct nixl_read *r)
{
	struct nixl_agent *a = r ? r->agent : NULL;

	if (!r)
		return NULL;
	lock_take(&a->lock, LOCK_NIXL_AGENT);
	release(r);
	lock_drop(&a->lock);
	free(r);
	return NULL;
}
