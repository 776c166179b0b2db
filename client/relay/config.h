/* SPDX-License-Identifier: MIT
 *
 * gpushm-relay.conf: the form is that of gpushmd.conf. gpushm-relay(8) describes the keys.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_DEFAULT_LISTEN "127.0.0.1:19401"

struct strings {
	char **items; /* owned */
	size_t n;
};

/* [allow CERTIFICATE]: whose certificate has such a name may read these buffers. */
struct config_allow {
	char *certificate; /* owned: a glob of names */
	struct strings offer;
};

/* [pull NAME]: a buffer that the relay itself gets from another machine. */
struct config_pull {
	char *name, *source, *pool; /* owned; pool: NULL is the daemon's default */
	uint32_t mode;		    /* of the buffer; 0: as gpushm_create() */
	bool follow;
};

/* It never changes once it is read; a reload makes another one. */
struct config {
	atomic_uint refs;
	bool found;	       /* there was a file */
	struct strings listen; /* ADDRESS:PORT */
	char *socket;	       /* owned; NULL: as libgpushm finds it */
	/* owned: PEM files, for serving and for pulls alike; cert: NULL: no TLS. ca: who signs the
	 * certificates of clients and of other relays; NULL: clients need none. */
	char *cert, *key, *ca;
	char *advertise; /* owned: "https://HOST:PORT"; NULL: nothing */
	bool nixl;	 /* POST /v1/nixl/NAME */
	bool nixl_gpu;	 /* network cards read GPUs */
	bool insecure;	 /* other addresses than loopback without mutual TLS */
	uint32_t max_connections, max_connections_per_address;
	uint32_t max_transfers;	     /* addresses times buffers; 0: no limit */
	uint32_t fan_out;	     /* the same for machines that pull, if others have the
					file; 0: no limit */
	uint64_t max_rate;	     /* bytes a second in all; 0: no limit */
	uint64_t gpu_memory;	     /* bytes that are pinned for transfers from GPUs */
	struct strings offer, hide;  /* globs of names */
	struct config_allow *allows; /* owned */
	size_t n_allows;
	struct config_pull *pulls; /* owned */
	size_t n_pulls;
};

/* Reads a file; path NULL: /etc/gpushm/gpushm-relay.conf, which may be missing. Writes each fault
 * to `errors`. listen: instead of the file's; NULL: none. *ret is a reference. 0; -EINVAL (faults
 * were written); -ENOMEM.
 */
int config_read(const char *path, const char *listen, FILE *errors, struct config **ret);
struct config *config_ref(struct config *c);
/* NULL is allowed. Returns NULL. */
struct config *config_release(struct config *c);

/* Whether a relay that was started with `started` can go on with `next`: -EINVAL, with the reason
 * in `out`, or 0. `out` also names the keys that have changed and need another start. */
int config_check_reload(const struct config *started, const struct config *next, FILE *out);

/* The one that requests are served by: a reference, from any thread. config_use() takes one. */
struct config *config_current(void);
void config_use(struct config *c);

/* Whether a buffer of that name is offered at all. */
bool config_offers(const struct config *c, const char *name);
/* Adds a text of n bytes, if there is memory; and frees all of them. */
void strings_add(struct strings *s, const char *text, size_t n);
void strings_clear(void *s);
/* Whether one of the globs fits the name. */
bool strings_match(const struct strings *globs, const char *name);
