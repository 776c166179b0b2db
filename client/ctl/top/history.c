/* SPDX-License-Identifier: MIT
 *
 * Batches stay as the library made them: events point into them.
 */
#include "client/ctl/top/history.h"

#include "proto/base/own.h"

#include <string.h>

static void drop_oldest(struct history *h)
{
	h->n -= h->batches[0]->n_events;
	gpushm_free(h->batches[0]);
	memmove(h->batches, h->batches + 1, --h->n_batches * sizeof(*h->batches));
}

int history_add(struct history *h, struct gpushm_events *batch)
{
	struct gpushm_events **grown;

	if (!batch->n_events) {
		gpushm_free(batch);
		return 0;
	}
	while (h->n_batches && h->n - h->batches[0]->n_events + batch->n_events >= HISTORY_EVENTS)
		drop_oldest(h);
	grown = reallocarray(h->batches, h->n_batches + 1, sizeof(*grown));
	if (!grown) {
		gpushm_free(batch);
		return -ENOMEM;
	}
	h->batches = grown;
	h->batches[h->n_batches++] = batch;
	h->n += batch->n_events;
	return 0;
}

int history_move(struct history *h, struct history *from)
{
	int r = 0;

	for (size_t i = 0; i < from->n_batches; i++)
		if (history_add(h, from->batches[i]) < 0)
			r = -ENOMEM;
	free(from->batches);
	*from = (struct history){ 0 };
	return r;
}

void history_prepend(struct history *h, struct history *from)
{
	history_move(from, h);
	*h = *from;
	*from = (struct history){ 0 };
}

void history_done(struct history *h)
{
	for (size_t i = 0; i < h->n_batches; i++)
		gpushm_free(h->batches[i]);
	free(h->batches);
	*h = (struct history){ 0 };
}
