/* SPDX-License-Identifier: MIT
 *
 * One reply at a time, taken from a server as its reader has memory for it: libcurl pushes, and is
 * paused when the memory is full. Connections stay open for the next request of the same server.
 *
 * Redirects are followed here, not by libcurl, so that it is seen at each step who gets
 * credentials.
 */
#pragma once

#include "client/models/web/credentials.h"
#include "client/models/web/head.h"
#include "client/models/web/stop.h"
#include "client/models/web/url.h"

#include <stddef.h>
#include <stdint.h>

#define FETCH_LEAST (16u << 10) /* bytes a second, as a relay's */

struct curl_library;
struct curl_slist;

struct fetch {
	const struct curl_library *curl;
	void *multi;		    /* owned: the connections */
	void *easy;		    /* owned */
	struct curl_slist *headers; /* owned; of the request */
	char why[256];		    /* libcurl's text of an error */
	struct head head;	    /* of the reply */
	uint64_t retry_after_ms;    /* that it asks for; 0: nothing */
	bool active;		    /* there is a reply, or one is waited for */
	bool ended;		    /* all of it has come, or it broke: result */
	bool certified;		    /* with a certificate of ours, if the server wants one */
	bool paused, refused; /* by the memory's end; refused: a line of the head is too much */
	int result;	      /* a CURLcode */
	char *to;	      /* where the body goes; lent during fetch_body() */
	size_t room, eaten; /* eaten: bytes of the chunk that libcurl brings again after a pause */
	uint64_t last_ns;   /* when something has come; CLOCK_MONOTONIC */
	unsigned stall_ms;  /* how long nothing may come */
	uint64_t until_ns;  /* when the reply is given up, even if it comes; 0: never */
	bool leave; /* a body that is slower than FETCH_LEAST is given up: others have it, too */
	uint64_t begun_ns; /* when fetch_body() was called, and for how many bytes: */
	size_t asked;
	struct url at; /* what was asked, after redirects */
	unsigned hops; /* redirects */
};

/* What to ask for. */
struct ask {
	const char *method; /* NULL: GET */
	const struct credentials *credentials;
	const struct url *home; /* credentials go to its origin alone; NULL: to nobody */
	bool ranged;
	uint64_t first, last;		   /* if ranged: bytes of the file */
	const char *if_range;		   /* "": none */
	unsigned wait_s;		   /* Prefer: wait=N; 0: none */
	const char *if_none_match, *relay; /* an ETag; Gpushm-Relay; NULL: none */
	const void *body;		   /* JSON; NULL: none */
	size_t n_body;
	unsigned stall_ms; /* how long nothing may come */
};

/* What to do after a failure. */
enum fate {
	FATE_NEVER,	/* it would fail again, anywhere */
	FATE_ELSEWHERE, /* this server would answer the same again */
	FATE_BUSY,	/* the server asks to come again */
	FATE_AGAIN,	/* a broken connection, or a server that is not there */
};

/* 0, or -ENOSYS, -ENOMEM with gpushm_error() set. */
int fetch_new(struct fetch **ret);
/* NULL is allowed. Returns NULL. Keeps gpushm_error(). */
struct fetch *fetch_free(struct fetch *f);

/* Asks, follows redirects, and waits for the head of the reply, whatever its status. The body is
 * waiting then. An earlier reply is dropped. 0, or a negative errno with gpushm_error() and *ret
 * set. */
int fetch_begin(struct fetch *f, const struct ask *a, const struct url *u, struct load_stop stop,
		enum fate *ret);

/* The next bytes of the body; fewer than n if it ends before. to: NULL drops them. Errors as above;
 * *ret_got counts what came before them. */
int fetch_body(struct fetch *f, void *to, size_t n, size_t *ret_got, struct load_stop stop,
	       enum fate *ret);

/* The rest of the reply is given up after so long: it is of little use. */
void fetch_hurry(struct fetch *f, unsigned ms);

/* Drops the reply. Its connection is kept if the reply was whole. */
void fetch_end(struct fetch *f);
