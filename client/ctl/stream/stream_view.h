/* SPDX-License-Identifier: MIT
 *
 * What the numbers of a stream mean for people: rates from two looks at it, which reader needs the
 * oldest frame, and sentences about readers that are in the way.
 */
#pragma once

#include "client/ctl/ctl.h"
#include "client/gpushm_stream.h"

/* A reader that has held a frame for so long, while the producer came round to its slot again,
 * seems not to release it. */
#define STREAM_STUCK_MS 1000u

#define STREAM_DELAY_MS 500u /* between two looks */

/* A stream, and the same stream at an earlier look. */
struct stream_view {
	const struct gpushm_stream_info *now;
	const struct gpushm_stream_info *before; /* NULL: this is the first look */
};

/* Frames a second: that were published; that the reader took. Negative: not known. */
double stream_rate(const struct stream_view *v);
double stream_reader_rate(const struct stream_view *v, const struct gpushm_stream_reader *r);

/* How long ago the newest frame was published, in ns. */
uint64_t stream_age(const struct gpushm_stream_info *s);

/* The oldest frame that the reader needs: that it holds, or, with `every`, has not taken. 0: it
 * needs none. */
uint64_t stream_needs(const struct gpushm_stream_info *s, const struct gpushm_stream_reader *r);

/* The reader that needs the oldest frame of all, or NULL. */
const struct gpushm_stream_reader *stream_oldest(const struct gpushm_stream_info *s);

/* Whether the reader keeps the producer from the slot that it would fill next, for so long that it
 * seems to have forgotten it. */
bool stream_is_stuck(const struct gpushm_stream_info *s, const struct gpushm_stream_reader *r);

/* A sentence about a reader that is stuck, was dropped or is ending; r NULL: about the stream
 * itself. malloc'd; NULL: nothing is wrong, or no memory. */
char *stream_note(const struct gpushm_stream_info *s, const struct gpushm_stream_reader *r);

/* "12ms", "3.4s", "12m". */
struct output_text stream_ms(uint64_t ms);

/* "4711 decode", or "-" where the user may not know. */
struct output_text stream_process(pid_t pid, const char *command);

/* streams.c: all facts about a stream, without the object. */
void stream_json_members(struct json *j, const struct stream_view *v);

/* streams.c: the facts that `stat` shows. */
void stream_add_facts(struct table *t, const struct ctl *ctl, const struct stream_view *v);

/* streams.c: looks at all streams with that prefix, twice if `delay` is not 0. *ret and *ret_before
 * are arrays of *ret_n and *ret_n_before. An exit code. */
struct stream_looks {
	struct gpushm_stream_info **now, **before; /* owned */
	size_t n, n_before;
};
int stream_look(struct ctl *ctl, const char *prefix, uint64_t delay_ms, struct stream_looks *ret);
void stream_looks_done(struct stream_looks *l);
/* The i-th of the second look, and the same stream of the first. */
struct stream_view stream_view_at(const struct stream_looks *l, size_t i);
