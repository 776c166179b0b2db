/* SPDX-License-Identifier: MIT
 *
 * NVIDIA's NIXL, as a library that is opened at run time: libnixl_capi.so of the packages nixl-cu12
 * and nixl-cu13 of PyPI, or of a system's package. A build needs nothing of it.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* Its handles. */
struct nixl_capi_agent_s;
struct nixl_capi_backend_s;
struct nixl_capi_opt_args_s;
struct nixl_capi_params_s;
struct nixl_capi_mem_list_s;
struct nixl_capi_reg_dlist_s;
struct nixl_capi_xfer_dlist_s;
struct nixl_capi_xfer_req_s;

/* Its numbers. A status below zero is an error. */
enum { NIXL_CAPI_SUCCESS = 0, NIXL_CAPI_IN_PROG = 1 };
enum { NIXL_CAPI_ERROR_INVALID_PARAM = -1, NIXL_CAPI_ERROR_BACKEND = -2 };
enum { NIXL_CAPI_ERROR_INVALID_STATE = -3, NIXL_CAPI_ERROR_EXCEPTION = -4 };
enum { NIXL_CAPI_ERROR_NO_TELEMETRY = -5, NIXL_CAPI_ERROR_NOT_FOUND = -6 };
enum { NIXL_CAPI_MEM_DRAM = 0, NIXL_CAPI_MEM_VRAM = 1 };
enum { NIXL_CAPI_XFER_OP_READ = 0 };

/* Its functions that are used here: name without "nixl_capi_", parameters. All return a status. */
#define NIXL_FUNCTIONS(F)                                                                        \
	F(create_agent, const char *name, struct nixl_capi_agent_s **ret)                        \
	F(destroy_agent, struct nixl_capi_agent_s *)                                             \
	F(get_plugin_params, struct nixl_capi_agent_s *, const char *plugin,                     \
	  struct nixl_capi_mem_list_s **, struct nixl_capi_params_s **)                          \
	F(destroy_mem_list, struct nixl_capi_mem_list_s *)                                       \
	F(params_add, struct nixl_capi_params_s *, const char *key, const char *value)           \
	F(destroy_params, struct nixl_capi_params_s *)                                           \
	F(create_backend, struct nixl_capi_agent_s *, const char *plugin,                        \
	  struct nixl_capi_params_s *, struct nixl_capi_backend_s **)                            \
	F(destroy_backend, struct nixl_capi_backend_s *)                                         \
	F(create_reg_dlist, int memory, struct nixl_capi_reg_dlist_s **)                         \
	F(reg_dlist_add_desc, struct nixl_capi_reg_dlist_s *, uintptr_t address, size_t bytes,   \
	  uint64_t device, const void *metadata, size_t n_metadata)                              \
	F(destroy_reg_dlist, struct nixl_capi_reg_dlist_s *)                                     \
	F(register_mem, struct nixl_capi_agent_s *, struct nixl_capi_reg_dlist_s *,              \
	  struct nixl_capi_opt_args_s *)                                                         \
	F(deregister_mem, struct nixl_capi_agent_s *, struct nixl_capi_reg_dlist_s *,            \
	  struct nixl_capi_opt_args_s *)                                                         \
	F(get_local_md, struct nixl_capi_agent_s *, void **ret_owned, size_t *n)                 \
	F(load_remote_md, struct nixl_capi_agent_s *, const void *, size_t n, char **ret_owned)  \
	F(invalidate_remote_md, struct nixl_capi_agent_s *, const char *peer)                    \
	F(create_xfer_dlist, int memory, struct nixl_capi_xfer_dlist_s **)                       \
	F(xfer_dlist_add_desc, struct nixl_capi_xfer_dlist_s *, uintptr_t address, size_t bytes, \
	  uint64_t device)                                                                       \
	F(destroy_xfer_dlist, struct nixl_capi_xfer_dlist_s *)                                   \
	F(create_xfer_req, struct nixl_capi_agent_s *, int operation,                            \
	  struct nixl_capi_xfer_dlist_s *local, struct nixl_capi_xfer_dlist_s *remote,           \
	  const char *peer, struct nixl_capi_xfer_req_s **, struct nixl_capi_opt_args_s *)       \
	F(post_xfer_req, struct nixl_capi_agent_s *, struct nixl_capi_xfer_req_s *,              \
	  struct nixl_capi_opt_args_s *)                                                         \
	F(get_xfer_status, struct nixl_capi_agent_s *, struct nixl_capi_xfer_req_s *)            \
	F(release_xfer_req, struct nixl_capi_agent_s *, struct nixl_capi_xfer_req_s *)           \
	F(destroy_xfer_req, struct nixl_capi_xfer_req_s *)

struct nixl_library {
	char path[PATH_MAX];
	char version[32]; /* of the Python package that it belongs to; "": it is not known */
#define NIXL_FUNCTION(name, ...) int (*name)(__VA_ARGS__);
	NIXL_FUNCTIONS(NIXL_FUNCTION)
#undef NIXL_FUNCTION
};

/* Finds and opens the library, once in a process; it is never closed, because UCX, which it brings,
 * leaves hooks in the process. It is looked for as $GPUSHM_NIXL, a path of it or a folder of Python
 * packages or a virtual environment that has it; otherwise where ld.so(8) finds libraries, in the
 * folder of Python packages that this code lies in, in $VIRTUAL_ENV, and in the folders of the
 * system's and the user's Python. Blocks for some 0.2 s. 0, or -ENOSYS with gpushm_error() set. */
int nixl_library(const struct nixl_library **ret);

/* "NIXL_CAPI_ERROR_BACKEND" */
const char *nixl_status_word(int status);
