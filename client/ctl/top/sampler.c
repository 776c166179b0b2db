/* SPDX-License-Identifier: MIT
 *
 * After an error the thread connects anew.
 */
#include "client/ctl/top/sampler.h"

#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define RETRY_MS 1000u

struct sampler {
	pthread_t thread;
	pthread_mutex_t lock; /* of all that follows, except what is said to be the thread's */
	pthread_cond_t wake;
	uint64_t delay_ms, next_ms, asked_ms; /* CLOCK_MONOTONIC; asked_ms: 0 between samples */
	bool stop;
	struct sample *fresh; /* owned */
	char error[512];
	int fd; /* owned */

	struct gpushm *connection; /* owned, and the thread's; or NULL */
	const char *socket, *word;
};

static int take(struct sampler *s, struct sample **ret)
{
	int r = s->connection ? 0 : gpushm_connect(s->socket, &s->connection);

	if (r == 0)
		r = sample_take(s->connection, s->word, NULL, ret);
	if (r < 0 && r != -ENOMEM)
		s->connection = gpushm_disconnect(s->connection);
	return r;
}

static void wait_until_due(struct sampler *s)
{
	struct timespec until = { .tv_sec = (time_t)(s->next_ms / 1000),
				  .tv_nsec = (long)(s->next_ms % 1000) * 1000000 };

	while (!s->stop && clock_monotonic_ms() < s->next_ms)
		pthread_cond_timedwait(&s->wake, &s->lock, &until);
}

static void keep(struct sampler *s, int r, struct sample *fresh)
{
	uint64_t now = clock_monotonic_ms();
	const uint64_t one = 1;

	s->next_ms = r == 0 ? sample_due(s->asked_ms, now, s->delay_ms)
			    : now + (s->delay_ms < RETRY_MS ? s->delay_ms : RETRY_MS);
	s->asked_ms = 0;
	if (r == 0) {
		sample_free(s->fresh);
		s->fresh = fresh;
	}
	snprintf(s->error, sizeof(s->error), "%s",
		 r == 0		   ? ""
		 : *gpushm_error() ? gpushm_error()
				   : strerror(-r));
	if (write(s->fd, &one, sizeof(one)) < 0)
		s->stop = true;
}

static void *run(void *arg)
{
	struct sampler *s = arg;

	pthread_mutex_lock(&s->lock);
	for (wait_until_due(s); !s->stop; wait_until_due(s)) {
		struct sample *fresh = NULL;
		int r;

		s->asked_ms = clock_monotonic_ms();
		pthread_mutex_unlock(&s->lock);
		r = take(s, &fresh);
		pthread_mutex_lock(&s->lock);
		keep(s, r, fresh);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void init_locks(struct sampler *s)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static void free_all(struct sampler *s)
{
	gpushm_disconnect(s->connection);
	sample_free(s->fresh);
	close_fd(&s->fd);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int sampler_new(struct gpushm *connection, const char *socket, const char *word, uint64_t delay_ms,
		struct sampler **ret)
{
	struct sampler *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		gpushm_disconnect(connection);
		return -ENOMEM;
	}
	*s = (struct sampler){ .connection = connection,
			       .socket = socket,
			       .word = word,
			       .delay_ms = delay_ms,
			       .next_ms = clock_monotonic_ms() + delay_ms,
			       .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	init_locks(s);
	r = s->fd < 0 ? errno : pthread_create(&s->thread, NULL, run, s);
	if (r) {
		free_all(s);
		return -r;
	}
	*ret = s;
	return 0;
}

int sampler_fd(const struct sampler *s)
{
	return s->fd;
}

struct sample *sampler_take(struct sampler *s, char *error, size_t size, uint64_t *ret_silent_ms)
{
	struct sample *fresh;
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	fresh = take_ptr(s->fresh);
	snprintf(error, size, "%s", s->error);
	*ret_silent_ms = s->asked_ms ? clock_monotonic_ms() - s->asked_ms : 0;
	if (read(s->fd, &n, sizeof(n)) < 0)
		n = 0; /* it was not readable */
	pthread_mutex_unlock(&s->lock);
	return fresh;
}

struct sampler *sampler_free(struct sampler *s)
{
	bool busy;

	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	busy = s->asked_ms != 0;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	if (busy) {
		pthread_detach(s->thread);
		return NULL;
	}
	pthread_join(s->thread, NULL);
	free_all(s);
	return NULL;
}
