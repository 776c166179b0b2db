/* SPDX-License-Identifier: MIT
 *
 * The certificate is checked here rather than in the handshake, so that a client learns why it is
 * refused: it gets a reply, where a handshake could only break off.
 *
 * A handshake may still use the certificate that it got from retrieve(), so one that was replaced
 * is kept: a few KiB for each renewal.
 */
#include "client/relay/serve/tls.h"

#include "proto/base/clock.h"
#include "proto/base/fnv.h"
#include "proto/base/own.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHAIN_MAX 16u
#define RECHECK_NS 5000000000ull /* between two looks at the files */

struct identity {
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned n;
	gnutls_privkey_t key;
};

static struct {
	pthread_rwlock_t lock; /* of all that follows */
	struct identity *identity;
	gnutls_x509_trust_list_t trust;
	char *ca;		     /* the first one that was read */
	uint64_t cert_ends, ca_ends; /* seconds since 1970 */
	uint64_t told[2];	     /* of the main thread: those ends that the log has */
	uint64_t version;   /* of the files, as look_at_files() has it; of the main thread */
	uint64_t looked_ns; /* of the main thread */
} tls = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static atomic_uint generation;

static int complain(const char *file, int r)
{
	fprintf(stderr, "gpushm-relay: %s: %s\n", file, gnutls_strerror(r));
	return -1;
}

/* GnuTLS does not say why it can't read a file; errno does. */
static int load_file(const char *file, gnutls_datum_t *ret)
{
	int r;

	errno = 0;
	r = gnutls_load_file(file, ret);
	if (r != GNUTLS_E_FILE_ERROR || errno == 0)
		return r < 0 ? complain(file, r) : 0;
	fprintf(stderr, "gpushm-relay: %s: can't be read: %s\n", file, strerror(errno));
	return -1;
}

/* ---- files ---- */

/* A number that tells one version of the files from another. */
static uint64_t look_at_files(const struct config *c)
{
	const char *const files[] = { c->cert, c->key, c->ca };
	uint64_t hash = FNV1A_BASIS;
	struct stat st;

	for (size_t i = 0; i < array_size(files); i++)
		if (files[i] && stat(files[i], &st) == 0) {
			const uint64_t what[] = { (uint64_t)st.st_ctim.tv_sec,
						  (uint64_t)st.st_ctim.tv_nsec, st.st_ino,
						  (uint64_t)st.st_size, i };

			hash = fnv1a(hash, what, sizeof(what));
		}
	return hash;
}

/* ---- reading ---- */

static void free_identity(struct identity *id)
{
	for (unsigned i = 0; i < id->n; i++)
		gnutls_pcert_deinit(&id->chain[i]);
	if (id->key)
		gnutls_privkey_deinit(id->key);
	free(id);
}

/* When the first of these certificates ends; 0: not known. */
static uint64_t first_end(const gnutls_datum_t *pem)
{
	gnutls_x509_crt_t *list = NULL;
	uint64_t first = 0;
	unsigned n = 0;

	if (gnutls_x509_crt_list_import2(&list, &n, pem, GNUTLS_X509_FMT_PEM, 0) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		time_t end = gnutls_x509_crt_get_expiration_time(list[i]);

		if (end > 0 && (first == 0 || (uint64_t)end < first))
			first = (uint64_t)end;
		gnutls_x509_crt_deinit(list[i]);
	}
	gnutls_free(list);
	return first;
}

static int read_chain(struct identity *id, const char *file, const gnutls_datum_t *pem)
{
	int r;

	id->n = CHAIN_MAX;
	r = gnutls_pcert_list_import_x509_raw(id->chain, &id->n, pem, GNUTLS_X509_FMT_PEM, 0);
	if (r >= 0)
		return 0;
	id->n = 0;
	return complain(file, r);
}

static int read_key(struct identity *id, const char *file, const gnutls_datum_t *pem)
{
	int r = gnutls_privkey_init(&id->key);

	if (r >= 0)
		r = gnutls_privkey_import_x509_raw(id->key, pem, GNUTLS_X509_FMT_PEM, NULL, 0);
	return r < 0 ? complain(file, r) : 0;
}

/* Whether the key is the certificate's. */
static int compare(const struct identity *id, const char *file)
{
	unsigned char a[64], b[64];
	size_t n = sizeof(a), m = sizeof(b);
	gnutls_pubkey_t public;
	int r = gnutls_pubkey_init(&public);

	if (r >= 0)
		r = gnutls_pubkey_import_privkey(public, id->key, 0, 0);
	if (r >= 0)
		r = gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, a, &n);
	if (r >= 0)
		r = gnutls_pubkey_get_key_id(id->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, b, &m);
	gnutls_pubkey_deinit(public);
	if (r < 0)
		return complain(file, r);
	if (n == m && memcmp(a, b, n) == 0)
		return 0;
	fprintf(stderr, "gpushm-relay: %s: this is not the key of the certificate\n", file);
	return -1;
}

static int read_identity(const struct config *c, struct identity **ret, uint64_t *ret_ends)
{
	struct identity *id = calloc(1, sizeof(*id));
	gnutls_datum_t cert = { 0 }, key = { 0 };
	int r = id ? load_file(c->cert, &cert) : complain(c->cert, GNUTLS_E_MEMORY_ERROR);

	if (r < 0)
		return free(id), r;
	r = load_file(c->key, &key);
	if (r == 0)
		r = read_chain(id, c->cert, &cert);
	if (r == 0)
		r = read_key(id, c->key, &key);
	if (r == 0)
		r = compare(id, c->key);
	*ret_ends = r == 0 ? first_end(&cert) : 0;
	gnutls_free(cert.data);
	if (key.data)
		gnutls_memset(key.data, 0, key.size);
	gnutls_free(key.data);
	if (r < 0)
		free_identity(id);
	else
		*ret = id;
	return r;
}

static int read_trust(const char *file, gnutls_x509_trust_list_t *ret, char **ret_text,
		      uint64_t *ret_ends)
{
	gnutls_x509_trust_list_t list;
	gnutls_datum_t pem = { 0 };
	int r = load_file(file, &pem), n;

	if (r < 0)
		return r;
	r = gnutls_x509_trust_list_init(&list, 0);
	if (r < 0)
		return gnutls_free(pem.data), complain(file, r);
	n = gnutls_x509_trust_list_add_trust_mem(list, &pem, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
	*ret_text = n > 0 ? strndup((char *)pem.data, pem.size) : NULL;
	*ret_ends = first_end(&pem);
	gnutls_free(pem.data);
	if (*ret_text) {
		*ret = list;
		return 0;
	}
	gnutls_x509_trust_list_deinit(list, 1);
	if (n < 0)
		return complain(file, n);
	fprintf(stderr, "gpushm-relay: %s: it has no certificate\n", file);
	return -1;
}

int tls_read(const struct config *c)
{
	gnutls_x509_trust_list_t trust = NULL, old = NULL;
	_cleanup_(free_ptr) char *ca = NULL;
	uint64_t cert_ends = 0, ca_ends = 0, version = look_at_files(c);
	struct identity *id = NULL;

	if (!c->cert)
		return 0;
	if (c->ca && read_trust(c->ca, &trust, &ca, &ca_ends) < 0)
		return -1;
	if (read_identity(c, &id, &cert_ends) < 0) {
		if (trust)
			gnutls_x509_trust_list_deinit(trust, 1);
		return -1;
	}
	pthread_rwlock_wrlock(&tls.lock);
	old = tls.trust;
	tls.identity = id;
	tls.trust = trust;
	if (!tls.ca)
		tls.ca = take_ptr(ca);
	tls.cert_ends = cert_ends;
	tls.ca_ends = ca_ends;
	tls.version = version;
	generation++;
	pthread_rwlock_unlock(&tls.lock);
	if (old)
		gnutls_x509_trust_list_deinit(old, 1);
	return 0;
}

/* Others see that a certificate has ended; here it would be seen by nobody. */
static void tell_end(const char *file, uint64_t ends, uint64_t *told)
{
	if (ends == 0 || ends == *told || clock_realtime_ns() / 1000000000u <= ends)
		return;
	*told = ends;
	fprintf(stderr, "gpushm-relay: %s: a certificate of this file has ended\n", file);
}

void tls_refresh(const struct config *c)
{
	uint64_t now = clock_monotonic_ns(), version;

	if (!c->cert || now - tls.looked_ns < RECHECK_NS)
		return;
	tls.looked_ns = now;
	version = look_at_files(c);
	if (version != tls.version) {
		/* Report a bad certificate once, not every few seconds. */
		tls.version = version;
		if (tls_read(c) == 0)
			fprintf(stderr, "gpushm-relay: the certificates were read again\n");
	}
	tell_end(c->cert, tls.cert_ends, &tls.told[0]);
	tell_end(c->ca, tls.ca_ends, &tls.told[1]);
}

unsigned tls_generation(void)
{
	return generation;
}

void tls_ends(uint64_t *ret_cert, uint64_t *ret_ca)
{
	pthread_rwlock_rdlock(&tls.lock);
	*ret_cert = tls.cert_ends;
	*ret_ca = tls.ca_ends;
	pthread_rwlock_unlock(&tls.lock);
}

const char *tls_ca(void)
{
	return tls.ca;
}

static int retrieve(gnutls_session_t session, const gnutls_datum_t *names, int n,
		    const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
		    gnutls_pcert_st **ret_chain, unsigned *ret_n, gnutls_privkey_t *ret_key)
{
	/* The names of the authorities that libmicrohttpd was given at the start may be old, and a
	 * client that goes by them would show nothing. */
	gnutls_certificate_send_x509_rdn_sequence(session, 1);
	pthread_rwlock_rdlock(&tls.lock);
	*ret_chain = tls.identity->chain;
	*ret_n = tls.identity->n;
	*ret_key = tls.identity->key;
	pthread_rwlock_unlock(&tls.lock);
	return 0;
}

const void *const tls_retrieve = (const void *)retrieve;

/* ---- clients ---- */

/* A host name has no NUL. */
static void find_names(gnutls_x509_crt_t cert, struct strings *ret)
{
	char name[1024];
	size_t n = sizeof(name);
	int type;

	for (unsigned i = 0; n = sizeof(name),
		      (type = gnutls_x509_crt_get_subject_alt_name(cert, i, name, &n, NULL)) >= 0;
	     i++)
		if (type == GNUTLS_SAN_DNSNAME && !memchr(name, '\0', n))
			strings_add(ret, name, n);
	n = sizeof(name);
	if (ret->n == 0 &&
	    gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n) >= 0 &&
	    !memchr(name, '\0', n))
		strings_add(ret, name, n);
}

/* Why a chain is refused, as a sentence of GnuTLS. */
static bool explain(unsigned status, char *why, size_t size)
{
	gnutls_datum_t text = { 0 };

	if (status == 0)
		return true;
	gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
	snprintf(why, size, "your certificate is not accepted: %s",
		 text.data ? (char *)text.data : "");
	gnutls_free(text.data);
	return false;
}

static bool check_chain(gnutls_x509_crt_t *chain, unsigned n, char *why, size_t size)
{
	gnutls_typed_vdata_st purpose = { .type = GNUTLS_DT_KEY_PURPOSE_OID,
					  .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT };
	unsigned status = 0;
	int r = -1;

	pthread_rwlock_rdlock(&tls.lock);
	if (tls.trust)
		r = gnutls_x509_trust_list_verify_crt2(tls.trust, chain, n, &purpose, 1, 0, &status,
						       NULL);
	pthread_rwlock_unlock(&tls.lock);
	if (r < 0) {
		snprintf(why, size, "your certificate can't be checked: %s", gnutls_strerror(r));
		return false;
	}
	return explain(status, why, size);
}

bool tls_check_peer(const struct config *c, struct MHD_Connection *connection, struct peer *ret,
		    char *why, size_t size)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	gnutls_x509_crt_t chain[CHAIN_MAX];
	const gnutls_datum_t *shown;
	unsigned n = 0, imported = 0;
	bool good = true;

	if (!c->ca || !c->cert)
		return true;
	shown = info ? gnutls_certificate_get_peers(info->tls_session, &n) : NULL;
	if (!shown || n == 0 || n > CHAIN_MAX) {
		snprintf(why, size,
			 "show a certificate: this relay serves clients that have one of its own "
			 "authority alone");
		return false;
	}
	for (; good && imported < n; imported++) {
		gnutls_x509_crt_init(&chain[imported]);
		good = gnutls_x509_crt_import(chain[imported], &shown[imported],
					      GNUTLS_X509_FMT_DER) >= 0;
	}
	if (good)
		good = check_chain(chain, n, why, size);
	else
		snprintf(why, size, "your certificate can't be read");
	if (good)
		find_names(chain[0], &ret->names);
	for (unsigned i = 0; i < imported; i++)
		gnutls_x509_crt_deinit(chain[i]);
	return good;
}
