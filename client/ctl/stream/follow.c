/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl follow` is a reader of a stream: it prints a line for each frame, and writes an array
 * of each to a file. By default it takes the newest frame, so that nobody waits for it.
 *
 * A line is printed after the frame was released: a terminal that is slow, or stopped, holds none.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/stream/cbor.h"
#include "client/ctl/stream/frame_file.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/utf8.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#define STEP_MS 200u /* between two looks for a signal, and whether the output is closed */

struct options {
	bool every, latest, share, raw;
	uint64_t count, timeout; /* 0: no limit, and no wait for the name */
	const char *out, *array;
};

struct follower {
	struct ctl *ctl;
	const struct options *options;
	struct gpushm_stream *stream;
	struct frame_file file;
	uint64_t timeout;    /* ms, for a frame */
	uint64_t n;	     /* frames that were taken, and whole */
	uint64_t deadline;   /* of the next frame: clock_deadline() */
	uint64_t realtime;   /* ns: CLOCK_REALTIME - CLOCK_MONOTONIC */
	bool orphaned, done; /* the producer's death was told; nothing follows */
};

/* What is printed of a frame. */
struct line {
	uint64_t seq, time_ns, age_ns, skipped;
	uint32_t slot;
	bool broken;
	size_t n;
	char meta[GPUSHM_META_MAX];
};

/* ---- output ---- */

static bool is_text(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
			return false;
	return utf8_valid(p, n);
}

static void json_meta(struct json *j, const struct line *l)
{
	_cleanup_(free_ptr) char *map = cbor_to_json(l->meta, l->n);

	if (l->n == 0)
		json_null(j, "meta");
	else if (map)
		json_value(j, "meta", "%s", map);
	else if (is_text(l->meta, l->n))
		json_bytes(j, "meta", l->meta, l->n);
	else
		json_base64(j, "meta", l->meta, l->n);
}

static void print_json(struct json *j, const struct follower *f, const struct line *l)
{
	json_open(j, NULL, '{');
	json_uint(j, "frame", l->seq);
	json_time(j, "time", l->time_ns + f->realtime);
	json_value(j, "age_ms", "%.3f", (double)l->age_ns / 1e6);
	json_uint(j, "slot", l->slot);
	json_uint(j, "skipped", l->skipped);
	json_bool(j, "ok", !l->broken);
	json_meta(j, l);
	json_close(j, '}');
}

/* Metadata that are text, a map of Python's as JSON, or hexadecimal digits. */
static void print_text(const struct follower *f, const struct line *l)
{
	_cleanup_(free_ptr) char *map = cbor_to_json(l->meta, l->n);
	char meta[2 * GPUSHM_META_MAX + 1] = "", skipped[48] = "";

	for (size_t i = 0; i < l->n; i++)
		snprintf(meta + 2 * i, 3, "%02x", (unsigned char)l->meta[i]);
	if (is_text(l->meta, l->n))
		snprintf(meta, sizeof(meta), "%.*s", (int)l->n, l->meta);
	if (l->skipped)
		snprintf(skipped, sizeof(skipped), ", %" PRIu64 " skipped", l->skipped);
	output_line(stdout, "%s frame %" PRIu64 ", slot %u, %.1f ms old%s%s%s%s",
		    output_time(l->time_ns + f->realtime).text, l->seq, l->slot,
		    (double)l->age_ns / 1e6, skipped, l->broken ? ", broken" : "",
		    l->n ? ", meta " : "", map ? map : meta);
}

static int print_line(const struct follower *f, const struct line *l)
{
	struct json j;

	if (f->ctl->quiet || output_is_file(f->options->out))
		return CTL_OK;
	if (ctl_json(f->ctl, &j))
		print_json(&j, f, l);
	else
		print_text(f, l);
	return ctl_flush();
}

/* ---- frames ---- */

static struct line line_of(const struct gpushm_frame *frame)
{
	struct line l = { .seq = gpushm_frame_seq(frame),
			  .time_ns = gpushm_frame_time(frame),
			  .skipped = gpushm_frame_skipped(frame),
			  .slot = gpushm_frame_slot(frame),
			  .broken = gpushm_frame_ok(frame) < 0 };
	const void *meta = gpushm_frame_meta(frame, &l.n);
	uint64_t now = clock_monotonic_ns();

	l.age_ns = now > l.time_ns ? now - l.time_ns : 0;
	if (l.n > sizeof(l.meta))
		l.n = sizeof(l.meta);
	if (l.n)
		memcpy(l.meta, meta, l.n);
	return l;
}

static int use(struct follower *f, struct gpushm_frame *frame)
{
	struct line l = line_of(frame);
	int r = CTL_OK, released;

	if (f->options->out && !l.broken)
		r = frame_file_add(&f->file, frame);
	released = gpushm_frame_release(frame, GPUSHM_ON_HOST);
	l.broken = l.broken || released < 0;
	f->n += !l.broken && r == CTL_OK;
	f->deadline = clock_deadline(f->timeout);
	f->orphaned = false;
	f->done = f->options->count && f->n >= f->options->count;
	return r ? r : print_line(f, &l);
}

/* The producer has closed the stream. */
static int ended(struct follower *f)
{
	f->done = true;
	if (f->n >= f->options->count)
		return CTL_OK;
	return ctl_error(CTL_FAILED, "the stream ended after %" PRIu64 " of %" PRIu64 " frames",
			 f->n, f->options->count);
}

static int no_frame(struct follower *f, int why)
{
	switch (-why) {
	case EAGAIN:
	case ETIMEDOUT:
	case EINTR:
		return CTL_OK;
	case EPIPE:
		return ended(f);
	case EOWNERDEAD:
		if (!f->orphaned && !f->ctl->quiet)
			ctl_error(CTL_OK, "the producer died; another one may continue the stream");
		f->orphaned = true;
		poll(NULL, 0, STEP_MS);
		return CTL_OK;
	default:
		return ctl_refused(why);
	}
}

/* How long to wait for a frame now; 0: the time is over. */
static uint64_t time_left(const struct follower *f)
{
	uint64_t left = clock_left_ms(f->deadline);

	return left < STEP_MS ? left : STEP_MS;
}

static int follow(struct follower *f)
{
	int r = CTL_OK;

	f->realtime = clock_realtime_ns() - clock_monotonic_ns();
	f->deadline = clock_deadline(f->timeout);
	while (r == CTL_OK && !f->done && !ctl_interrupted() && !output_is_closed(STDOUT_FILENO)) {
		struct gpushm_frame *frame = NULL;
		uint64_t left = time_left(f);

		if (left == 0)
			return ctl_error(CTL_TIMED_OUT, "no frame came");
		r = gpushm_frame_next(f->stream, GPUSHM_ON_HOST, left, &frame);
		r = r < 0 ? no_frame(f, r) : use(f, frame);
	}
	return r;
}

/* The frames of the file are kept whatever ended the command, if they could be written. */
static int record(struct follower *f)
{
	const struct options *o = f->options;
	int r, finished;

	f->file = (struct frame_file){ .raw = o->raw, .wanted = o->count };
	r = frame_file_open(&f->file, f->stream, o->out, o->array);
	if (r == CTL_OK) {
		r = follow(f);
		finished = frame_file_finish(&f->file);
		r = r ? r : finished;
	}
	if (r == CTL_OK && !output_is_file(o->out) && !f->ctl->quiet && !f->ctl->json)
		output_line(stdout, "%s: %" PRIu64 " %s", o->out, OUTPUT_COUNT(f->file.n, "frame"));
	frame_file_close(&f->file);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct follower f = { .ctl = ctl,
			      .options = o,
			      .timeout = o->timeout ? o->timeout : GPUSHM_WAIT_FOREVER };
	enum gpushm_follow how = o->every ? GPUSHM_EVERY : o->share ? GPUSHM_SHARE : GPUSHM_LATEST;
	int r;

	if (o->every + o->latest + o->share > 1)
		return ctl_error(CTL_USAGE, "follow: --every, --latest and --share: choose one");
	if (!o->out && (o->array || o->raw))
		return ctl_error(CTL_USAGE, "follow: --array and --raw are for --out");
	r = gpushm_stream_open(ctl->connection, words[0], how, 1, o->timeout, NULL, &f.stream);
	if (r < 0)
		return ctl_refused(r);
	ctl_catch_signals();
	r = o->out ? record(&f) : follow(&f);
	gpushm_stream_close(f.stream);
	return r;
}

const struct command command_follow = {
	.name = "follow",
	.synopsis = "[--every | --latest | --share] [OPTIONS] NAME",
	.about = "read a stream, and print a line for each frame",
	.more = "Prints the time, the number and the slot of each frame, how many frames were\n"
		"skipped before it, and its metadata. It ends when the producer closes the\n"
		"stream. Without an option it takes the newest frame, and nobody waits for it.",
	OPTIONS(options,
		FLAG(options, every, "every", 'e',
		     "take each frame; the producer waits for this reader"),
		FLAG(options, latest, "latest", 'l', "take the newest frame (the default)"),
		FLAG(options, share, "share", 0,
		     "take frames that no other reader with --share gets"),
		ARG(options, count, "count", ARG_COUNT, 'c', "N",
		    "end after this number of frames"),
		ARG(options, timeout, "timeout", ARG_TIME, 't', "TIME",
		    "give up if NAME or a frame does not come in this time, with exit status 5"),
		ARG(options, out, "out", ARG_TEXT, 'o', "FILE",
		    "write an array of each frame to this file, \"-\" for standard output"),
		ARG(options, array, "array", ARG_TEXT, 'A', "ARRAY",
		    "the array; without it, the only one"),
		FLAG(options, raw, "raw", 'r', "write the elements without a NumPy header")),
	.words = { 1, 1 },
	.run = run,
};
