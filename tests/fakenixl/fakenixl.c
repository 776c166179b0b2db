/* SPDX-License-Identifier: MIT
 *
 * The functions. Each handle begins with a magic word, by which misuse is found. An agent has a
 * thread that serves its registered memory on a socket, and a request has a thread that reads.
 */
#include "tests/fakenixl/fakenixl.h"

#include "client/models/nixl/library.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REGIONS_MAX 16
#define PARTS_MAX 4096
#define API __attribute__((visibility("default")))
#define STATUS(name) int nixl_capi_##name

#define NIXL_FUNCTION(name, ...) API int nixl_capi_##name(__VA_ARGS__);
NIXL_FUNCTIONS(NIXL_FUNCTION)
#undef NIXL_FUNCTION

enum magic { AGENT = 0x4e41, BACKEND, PARAMS, MEM_LIST, REG_LIST, XFER_LIST, REQUEST, FREED };

struct region {
	uint64_t address, bytes, device;
	int memory;
};

struct nixl_capi_reg_dlist_s {
	enum magic magic;
	struct region region;
	bool registered;
};

struct nixl_capi_xfer_dlist_s {
	enum magic magic;
	int memory;
	size_t n;
	struct region parts[PARTS_MAX];
};

/* What an agent's metadata say. */
struct metadata {
	char magic[8], name[64];
	struct sockaddr_un at;
	struct region regions[REGIONS_MAX];
	uint32_t n;
};

struct nixl_capi_agent_s {
	enum magic magic;
	pthread_mutex_t lock;
	struct metadata self, peer;
	struct nixl_capi_backend_s *backend;
	int listener;
	int serving; /* under lock; -1: nobody */
	pthread_t server;
};

struct nixl_capi_xfer_req_s {
	enum magic magic;
	struct nixl_capi_agent_s *agent;
	struct nixl_capi_xfer_dlist_s local, remote;
	struct sockaddr_un at;
	bool posted, released, wrong;
	int fd;
	pthread_t thread;
	atomic_int status;
};

struct nixl_capi_backend_s {
	enum magic magic;
};
struct nixl_capi_params_s {
	enum magic magic;
};
struct nixl_capi_mem_list_s {
	enum magic magic;
};

static atomic_int alive, calls, fail_at, hang_at, reads, wrong_at;

/* ---- misuse, and what goes wrong ---- */

static void misuse(const char *function, const char *what)
{
	fprintf(stderr, "fakenixl: %s: %s\n", function, what);
	abort();
}

#define CHECK(object, is)                                                        \
	do {                                                                     \
		if (!(object) || (object)->magic != (is))                        \
			misuse(__func__, "not a handle of this kind, or freed"); \
	} while (0)
#define MAY_FAIL()                                      \
	do {                                            \
		if (fails())                            \
			return NIXL_CAPI_ERROR_BACKEND; \
	} while (0)

static bool fails(void)
{
	int call = atomic_fetch_add(&calls, 1) + 1;

	while (call == hang_at)
		pause();
	return call == fail_at;
}

API int fakenixl_fail(int n)
{
	fail_at = n;
	return atomic_exchange(&calls, 0);
}

API void fakenixl_wrong(int n)
{
	reads = 0;
	wrong_at = n;
}

API int fakenixl_alive(void)
{
	return alive;
}

static int number_of(const char *name)
{
	const char *value = getenv(name);

	return value ? atoi(value) : 0;
}

__attribute__((constructor)) static void begin(void)
{
	fail_at = number_of("FAKENIXL_FAIL");
	hang_at = number_of("FAKENIXL_HANG");
	wrong_at = number_of("FAKENIXL_WRONG");
}

__attribute__((destructor)) static void end(void)
{
	if (alive != 0)
		misuse("exit", "handles or registrations were not freed");
}

static void *handle_new(size_t bytes, enum magic magic)
{
	enum magic *h = calloc(1, bytes);

	if (!h)
		abort();
	*h = magic;
	alive++;
	return h;
}

static int handle_free(void *h)
{
	*(enum magic *)h = FREED;
	free(h);
	alive--;
	return NIXL_CAPI_SUCCESS;
}

API bool nixl_capi_is_stub(void);
bool nixl_capi_is_stub(void)
{
	return false;
}

/* ---- bytes ---- */

static bool send_all(int fd, const void *from, size_t n)
{
	for (ssize_t k; n > 0; from = (const char *)from + k, n -= (size_t)k) {
		k = send(fd, from, n, MSG_NOSIGNAL);
		if (k <= 0)
			return false;
	}
	return true;
}

static bool recv_all(int fd, void *to, size_t n)
{
	for (ssize_t k; n > 0; to = (char *)to + k, n -= (size_t)k) {
		k = recv(fd, to, n, 0);
		if (k <= 0)
			return false;
	}
	return true;
}

static bool is_in(const struct metadata *m, const struct region *part)
{
	for (uint32_t i = 0; i < m->n; i++) {
		const struct region *r = &m->regions[i];

		if (part->memory == r->memory && part->device == r->device &&
		    part->address >= r->address && part->bytes <= r->bytes &&
		    part->address - r->address <= r->bytes - part->bytes)
			return true;
	}
	return false;
}

static void set_serving(struct nixl_capi_agent_s *a, int fd)
{
	pthread_mutex_lock(&a->lock);
	a->serving = fd;
	pthread_mutex_unlock(&a->lock);
}

/* One reader after the other. */
static void serve_one(struct nixl_capi_agent_s *a, int fd)
{
	struct region part;
	bool good = true;

	set_serving(a, fd);
	while (good && recv_all(fd, &part, sizeof(part))) {
		pthread_mutex_lock(&a->lock);
		good = is_in(&a->self, &part);
		pthread_mutex_unlock(&a->lock);
		good = good && send_all(fd, (const void *)(uintptr_t)part.address, part.bytes);
	}
	set_serving(a, -1);
	close(fd);
}

static void *serve(void *arg)
{
	struct nixl_capi_agent_s *a = arg;
	int fd;

	while ((fd = accept(a->listener, NULL, NULL)) >= 0)
		serve_one(a, fd);
	return NULL;
}

/* ---- agents ---- */

STATUS(create_agent)(const char *name, struct nixl_capi_agent_s **ret)
{
	const char *folder = getenv("FAKENIXL_DIR");
	struct nixl_capi_agent_s *a;

	MAY_FAIL();
	a = handle_new(sizeof(*a), AGENT);
	pthread_mutex_init(&a->lock, NULL);
	memcpy(a->self.magic, "fakenixl", 8);
	snprintf(a->self.name, sizeof(a->self.name), "%s", name);
	a->self.at.sun_family = AF_UNIX;
	snprintf(a->self.at.sun_path, sizeof(a->self.at.sun_path), "%s/%s.sock",
		 folder ? folder : "/tmp", name);
	a->serving = -1;
	a->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(a->listener, (struct sockaddr *)&a->self.at, sizeof(a->self.at)) < 0 ||
	    listen(a->listener, 64) < 0 || pthread_create(&a->server, NULL, serve, a) != 0)
		misuse("create_agent", strerror(errno));
	*ret = a;
	return NIXL_CAPI_SUCCESS;
}

STATUS(destroy_agent)(struct nixl_capi_agent_s *a)
{
	CHECK(a, AGENT);
	if (a->self.n > 0)
		misuse("destroy_agent", "it has registered memory");
	shutdown(a->listener, SHUT_RDWR);
	pthread_mutex_lock(&a->lock);
	if (a->serving >= 0)
		shutdown(a->serving, SHUT_RDWR);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->server, NULL);
	close(a->listener);
	unlink(a->self.at.sun_path);
	pthread_mutex_destroy(&a->lock);
	return handle_free(a);
}

STATUS(get_plugin_params)
(struct nixl_capi_agent_s *a, const char *plugin, struct nixl_capi_mem_list_s **memories,
 struct nixl_capi_params_s **params)
{
	CHECK(a, AGENT);
	MAY_FAIL();
	*memories = handle_new(sizeof(**memories), MEM_LIST);
	*params = handle_new(sizeof(**params), PARAMS);
	return NIXL_CAPI_SUCCESS;
}

STATUS(destroy_mem_list)(struct nixl_capi_mem_list_s *list)
{
	CHECK(list, MEM_LIST);
	return handle_free(list);
}

STATUS(params_add)(struct nixl_capi_params_s *params, const char *key, const char *value)
{
	CHECK(params, PARAMS);
	MAY_FAIL();
	return NIXL_CAPI_SUCCESS;
}

STATUS(destroy_params)(struct nixl_capi_params_s *params)
{
	CHECK(params, PARAMS);
	return handle_free(params);
}

STATUS(create_backend)
(struct nixl_capi_agent_s *a, const char *plugin, struct nixl_capi_params_s *params,
 struct nixl_capi_backend_s **ret)
{
	CHECK(a, AGENT);
	CHECK(params, PARAMS);
	MAY_FAIL();
	*ret = a->backend = handle_new(sizeof(**ret), BACKEND);
	return NIXL_CAPI_SUCCESS;
}

STATUS(destroy_backend)(struct nixl_capi_backend_s *b)
{
	CHECK(b, BACKEND);
	return handle_free(b);
}

/* ---- memory ---- */

STATUS(create_reg_dlist)(int memory, struct nixl_capi_reg_dlist_s **ret)
{
	MAY_FAIL();
	*ret = handle_new(sizeof(**ret), REG_LIST);
	(*ret)->region.memory = memory;
	return NIXL_CAPI_SUCCESS;
}

STATUS(reg_dlist_add_desc)
(struct nixl_capi_reg_dlist_s *list, uintptr_t address, size_t bytes, uint64_t device,
 const void *metadata, size_t n_metadata)
{
	CHECK(list, REG_LIST);
	MAY_FAIL();
	list->region = (struct region){ address, bytes, device, list->region.memory };
	return NIXL_CAPI_SUCCESS;
}

STATUS(destroy_reg_dlist)(struct nixl_capi_reg_dlist_s *list)
{
	CHECK(list, REG_LIST);
	if (list->registered)
		misuse("destroy_reg_dlist", "its memory is registered");
	return handle_free(list);
}

static bool overlap(const struct region *a, const struct region *b)
{
	return a->memory == b->memory && a->device == b->device &&
	       a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

STATUS(register_mem)
(struct nixl_capi_agent_s *a, struct nixl_capi_reg_dlist_s *list, struct nixl_capi_opt_args_s *args)
{
	struct metadata *m;

	CHECK(a, AGENT);
	CHECK(list, REG_LIST);
	MAY_FAIL();
	m = &a->self;
	for (uint32_t i = 0; i < m->n; i++)
		if (overlap(&m->regions[i], &list->region))
			misuse("register_mem", "it is registered already");
	if (!a->backend || m->n == REGIONS_MAX || list->region.bytes == 0)
		misuse("register_mem", "no backend, no space, or no bytes");
	pthread_mutex_lock(&a->lock);
	m->regions[m->n++] = list->region;
	pthread_mutex_unlock(&a->lock);
	list->registered = true;
	alive++;
	return NIXL_CAPI_SUCCESS;
}

STATUS(deregister_mem)
(struct nixl_capi_agent_s *a, struct nixl_capi_reg_dlist_s *list, struct nixl_capi_opt_args_s *args)
{
	struct metadata *m;
	uint32_t i = 0;

	CHECK(a, AGENT);
	CHECK(list, REG_LIST);
	m = &a->self;
	while (i < m->n && memcmp(&m->regions[i], &list->region, sizeof(list->region)) != 0)
		i++;
	if (i == m->n)
		misuse("deregister_mem", "it is not registered");
	pthread_mutex_lock(&a->lock);
	m->regions[i] = m->regions[--m->n];
	pthread_mutex_unlock(&a->lock);
	list->registered = false;
	alive--;
	return NIXL_CAPI_SUCCESS;
}

/* ---- peers ---- */

STATUS(get_local_md)(struct nixl_capi_agent_s *a, void **ret, size_t *n)
{
	CHECK(a, AGENT);
	MAY_FAIL();
	*n = sizeof(a->self);
	*ret = malloc(*n);
	memcpy(*ret, &a->self, *n);
	return NIXL_CAPI_SUCCESS;
}

STATUS(load_remote_md)(struct nixl_capi_agent_s *a, const void *data, size_t n, char **ret)
{
	CHECK(a, AGENT);
	MAY_FAIL();
	if (n != sizeof(a->peer) || memcmp(data, "fakenixl", 8) != 0)
		return NIXL_CAPI_ERROR_BACKEND;
	memcpy(&a->peer, data, n);
	*ret = strdup(a->peer.name);
	return NIXL_CAPI_SUCCESS;
}

STATUS(invalidate_remote_md)(struct nixl_capi_agent_s *a, const char *peer)
{
	CHECK(a, AGENT);
	memset(&a->peer, 0, sizeof(a->peer));
	return NIXL_CAPI_SUCCESS;
}

/* ---- reads ---- */

STATUS(create_xfer_dlist)(int memory, struct nixl_capi_xfer_dlist_s **ret)
{
	MAY_FAIL();
	*ret = handle_new(sizeof(**ret), XFER_LIST);
	(*ret)->memory = memory;
	return NIXL_CAPI_SUCCESS;
}

STATUS(xfer_dlist_add_desc)
(struct nixl_capi_xfer_dlist_s *list, uintptr_t address, size_t bytes, uint64_t device)
{
	CHECK(list, XFER_LIST);
	MAY_FAIL();
	if (list->n == PARTS_MAX)
		misuse("xfer_dlist_add_desc", "too many parts");
	list->parts[list->n++] = (struct region){ address, bytes, device, list->memory };
	return NIXL_CAPI_SUCCESS;
}

STATUS(destroy_xfer_dlist)(struct nixl_capi_xfer_dlist_s *list)
{
	CHECK(list, XFER_LIST);
	return handle_free(list);
}

STATUS(create_xfer_req)
(struct nixl_capi_agent_s *a, int operation, struct nixl_capi_xfer_dlist_s *local,
 struct nixl_capi_xfer_dlist_s *remote, const char *peer, struct nixl_capi_xfer_req_s **ret,
 struct nixl_capi_opt_args_s *args)
{
	struct nixl_capi_xfer_req_s *r;

	CHECK(a, AGENT);
	CHECK(local, XFER_LIST);
	CHECK(remote, XFER_LIST);
	MAY_FAIL();
	if (local->n != remote->n || local->n == 0)
		misuse("create_xfer_req", "lists of different lengths, or empty");
	for (size_t i = 0; i < local->n; i++) {
		if (!is_in(&a->self, &local->parts[i]) ||
		    local->parts[i].bytes != remote->parts[i].bytes)
			misuse("create_xfer_req", "local memory that is not registered");
		if (!is_in(&a->peer, &remote->parts[i]))
			return NIXL_CAPI_ERROR_BACKEND;
	}
	if (strcmp(peer, a->peer.name) != 0)
		return NIXL_CAPI_ERROR_BACKEND;
	r = *ret = handle_new(sizeof(*r), REQUEST);
	r->agent = a;
	r->local = *local;
	r->remote = *remote;
	r->at = a->peer.at;
	r->fd = -1;
	return NIXL_CAPI_SUCCESS;
}

static int read_parts(struct nixl_capi_xfer_req_s *r)
{
	if (connect(r->fd, (struct sockaddr *)&r->at, sizeof(r->at)) < 0)
		return NIXL_CAPI_ERROR_BACKEND;
	for (size_t i = 0; i < r->local.n; i++) {
		char *to = (char *)(uintptr_t)r->local.parts[i].address;

		if (!send_all(r->fd, &r->remote.parts[i], sizeof(r->remote.parts[i])) ||
		    !recv_all(r->fd, to, r->local.parts[i].bytes))
			return NIXL_CAPI_ERROR_BACKEND;
		if (r->wrong)
			to[0] ^= 1;
		r->wrong = false;
	}
	return NIXL_CAPI_SUCCESS;
}

static void *read_all(void *arg)
{
	struct nixl_capi_xfer_req_s *r = arg;
	char byte;

	/* Until release_xfer_req() shuts it down. */
	if (number_of("FAKENIXL_STALL") &&
	    connect(r->fd, (struct sockaddr *)&r->at, sizeof(r->at)) == 0)
		recv(r->fd, &byte, 1, 0);
	usleep((unsigned)number_of("FAKENIXL_DELAY_MS") * 1000);
	atomic_store(&r->status, read_parts(r));
	return NULL;
}

STATUS(post_xfer_req)
(struct nixl_capi_agent_s *a, struct nixl_capi_xfer_req_s *r, struct nixl_capi_opt_args_s *args)
{
	CHECK(a, AGENT);
	CHECK(r, REQUEST);
	MAY_FAIL();
	if (r->posted || r->agent != a)
		misuse("post_xfer_req", "it is posted already, or of another agent");
	r->wrong = atomic_fetch_add(&reads, 1) + 1 == wrong_at || wrong_at < 0;
	r->status = NIXL_CAPI_IN_PROG;
	r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->fd < 0 || pthread_create(&r->thread, NULL, read_all, r) != 0)
		misuse("post_xfer_req", strerror(errno));
	r->posted = true;
	return NIXL_CAPI_IN_PROG;
}

STATUS(get_xfer_status)(struct nixl_capi_agent_s *a, struct nixl_capi_xfer_req_s *r)
{
	CHECK(a, AGENT);
	CHECK(r, REQUEST);
	MAY_FAIL();
	if (!r->posted)
		misuse("get_xfer_status", "it is not posted");
	return r->status;
}

STATUS(release_xfer_req)(struct nixl_capi_agent_s *a, struct nixl_capi_xfer_req_s *r)
{
	CHECK(a, AGENT);
	CHECK(r, REQUEST);
	if (r->released)
		misuse("release_xfer_req", "it is released already");
	if (r->posted) {
		shutdown(r->fd, SHUT_RDWR);
		pthread_join(r->thread, NULL);
	}
	if (r->fd >= 0)
		close(r->fd);
	r->released = true;
	return NIXL_CAPI_SUCCESS;
}

STATUS(destroy_xfer_req)(struct nixl_capi_xfer_req_s *r)
{
	CHECK(r, REQUEST);
	if (!r->released)
		misuse("destroy_xfer_req", "it is not released");
	return handle_free(r);
}
