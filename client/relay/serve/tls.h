/* SPDX-License-Identifier: MIT
 *
 * Certificates: the relay's own, and those of its clients. The files are read again when they
 * change, so that certificates of a day can be renewed while the relay runs; a new connection gets
 * the new one. A process has one set of files.
 */
#pragma once

#include "client/relay/config.h"
#include "client/relay/serve/allow.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

/* Cipher suites in our order: AES-128-GCM is the fastest, and strong enough for everybody. */
#define TLS_PRIORITIES                                                                     \
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM" \
	":+CHACHA20-POLY1305:%SERVER_PRECEDENCE"

/* Reads the files that the configuration names. 0; or -1, with the reason on stderr, and then
 * nothing has changed. Without files it does nothing. */
int tls_read(const struct config *c);

/* Reads them again if one has changed since. A file that is wrong leaves what was there, and a line
 * on stderr; a certificate that has ended is a line, too. Call it each second. */
void tls_refresh(const struct config *c);

/* How often they were read: what was checked before may be wrong now. */
unsigned tls_generation(void);

/* When the relay's own certificate ends, and the first one of ca=: seconds since 1970; 0: there is
 * none. */
void tls_ends(uint64_t *ret_cert, uint64_t *ret_ca);

/* The text of the file ca=, for MHD_OPTION_HTTPS_MEM_TRUST; lives as long as the process. With it
 * libmicrohttpd asks clients for their certificates. */
const char *tls_ca(void);

/* Of type gnutls_certificate_retrieve_function2, for MHD_OPTION_HTTPS_CERT_CALLBACK. */
extern const void *const tls_retrieve;

/* Checks the certificate that a connection's client has shown, and writes its names: those of hosts
 * (SAN), else its common name. False: why it is not accepted is in `why`. Without ca= every client
 * is accepted. ret->names is empty before. */
bool tls_check_peer(const struct config *c, struct MHD_Connection *connection, struct peer *ret,
		    char *why, size_t size);
