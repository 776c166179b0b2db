/* SPDX-License-Identifier: MIT
 *
 * All numbers are what the processes of a stream have written, also those of a process that lies:
 * no number here is trusted to fit another one.
 */
#include "client/ctl/stream/stream_view.h"

#include "proto/base/own.h"
#include "proto/words.h"

#include <string.h>

#define SECOND 1000000000.0

static double per_second(uint64_t n, uint64_t ns)
{
	return ns ? (double)n * SECOND / (double)ns : -1;
}

/* Between two frames the time of both is known exactly; so a short look at a slow stream is exact,
 * too. */
double stream_rate(const struct stream_view *v)
{
	const struct gpushm_stream_info *now = v->now, *before = v->before;

	if (!before || now->newest < before->newest)
		return -1;
	if (now->newest == before->newest)
		return 0;
	if (before->newest && now->newest_ns > before->newest_ns)
		return per_second(now->newest - before->newest, now->newest_ns - before->newest_ns);
	return now->now_ns > before->now_ns
		       ? per_second(now->newest - before->newest, now->now_ns - before->now_ns)
		       : -1;
}

static const struct gpushm_stream_reader *find(const struct gpushm_stream_info *s,
					       const struct gpushm_stream_reader *r)
{
	for (size_t i = 0; s && i < s->n_readers; i++)
		if (s->readers[i]->index == r->index && s->readers[i]->joined_ns == r->joined_ns)
			return s->readers[i];
	return NULL;
}

double stream_reader_rate(const struct stream_view *v, const struct gpushm_stream_reader *r)
{
	const struct gpushm_stream_reader *old = find(v->before, r);

	if (!old || r->taken < old->taken || v->now->now_ns <= v->before->now_ns)
		return -1;
	return per_second(r->taken - old->taken, v->now->now_ns - v->before->now_ns);
}

uint64_t stream_age(const struct gpushm_stream_info *s)
{
	return s->newest && s->now_ns > s->newest_ns ? s->now_ns - s->newest_ns : 0;
}

uint64_t stream_needs(const struct gpushm_stream_info *s, const struct gpushm_stream_reader *r)
{
	uint64_t next = r->lag && r->lag <= s->newest ? s->newest - r->lag + 1 : 0;

	if (r->dropped)
		return 0;
	if (r->held && r->oldest)
		return r->oldest;
	return r->follow == GPUSHM_EVERY ? next : 0;
}

const struct gpushm_stream_reader *stream_oldest(const struct gpushm_stream_info *s)
{
	const struct gpushm_stream_reader *oldest = NULL;
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < s->n_readers; i++) {
		uint64_t frame = stream_needs(s, s->readers[i]);

		if (frame && frame < least) {
			least = frame;
			oldest = s->readers[i];
		}
	}
	return oldest;
}

static bool holds(const struct gpushm_stream_reader *r)
{
	return r->held && r->oldest;
}

bool stream_is_stuck(const struct gpushm_stream_info *s, const struct gpushm_stream_reader *r)
{
	uint64_t frame = stream_needs(s, r);

	if (!frame || frame > s->newest || s->newest - frame + 1 < s->slots)
		return false;
	return (holds(r) ? r->oldest_ms : s->waiting_ms) >= STREAM_STUCK_MS;
}

/* ---- text ---- */

struct output_text stream_ms(uint64_t ms)
{
	struct output_text ret;

	if (ms >= 120000)
		return output_age(ms > UINT64_MAX / 1000000 ? UINT64_MAX : ms * 1000000);
	if (ms < 1000)
		snprintf(ret.text, sizeof(ret.text), "%" PRIu64 "ms", ms);
	else
		snprintf(ret.text, sizeof(ret.text), "%.1fs", (double)ms / 1000);
	return ret;
}

struct output_text stream_process(pid_t pid, const char *command)
{
	struct output_text ret = { "-" };

	if (pid)
		snprintf(ret.text, sizeof(ret.text), "%d %.15s", (int)pid, command);
	return ret;
}

static void write_reader(FILE *out, const struct gpushm_stream_reader *r)
{
	fprintf(out, "reader %u", r->index);
	if (r->pid)
		fprintf(out, " (%s, %s)", stream_process(r->pid, r->command).text,
			output_user(r->uid));
}

/* drops: the producer waits for a reader. */
static void write_waiting(FILE *out, const struct gpushm_stream_info *s, bool drops)
{
	if (!s->waiting_ms)
		return;
	fprintf(out, "; the producer has waited for %s", stream_ms(s->waiting_ms).text);
	if (drops && s->limit_ms != GPUSHM_WAIT_FOREVER)
		fprintf(out, ", and drops a reader after %s", stream_ms(s->limit_ms).text);
}

static void write_stuck(FILE *out, const struct gpushm_stream_info *s,
			const struct gpushm_stream_reader *r)
{
	write_reader(out, r);
	if (holds(r))
		fprintf(out, " has held frame %" PRIu64 " for %s; %" PRIu64 " frames are newer",
			r->oldest, stream_ms(r->oldest_ms).text, s->newest - r->oldest);
	else
		fprintf(out, " takes no frame: %" PRIu64 " wait for it", r->lag);
	if (r == stream_oldest(s))
		write_waiting(out, s, true);
}

static void write_about(FILE *out, const struct gpushm_stream_info *s,
			const struct gpushm_stream_reader *r)
{
	if (r->dropped) {
		write_reader(out, r);
		fputs(" was dropped, because it held up the producer", out);
	} else if (stream_is_stuck(s, r)) {
		write_stuck(out, s, r);
	} else if (r->suspect) {
		write_reader(out, r);
		fputs(" is ending: its socket is closed, its process lives", out);
	}
}

static void write_stream(FILE *out, const struct gpushm_stream_info *s)
{
	if (s->state == GPUSHM_STREAM_ORPHANED)
		fputs("the producer died, and another one may continue the stream", out);
	else if (s->waiting_ms >= STREAM_STUCK_MS && s->queued + 1 >= s->slots) {
		fprintf(out, "no `share` reader takes the %" PRIu64 " frames that are queued",
			s->queued);
		write_waiting(out, s, false);
	}
}

char *stream_note(const struct gpushm_stream_info *s, const struct gpushm_stream_reader *r)
{
	_cleanup_(free_ptr) char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	if (r)
		write_about(out, s, r);
	else
		write_stream(out, s);
	return fclose(out) == 0 && len ? take_ptr(text) : NULL;
}
