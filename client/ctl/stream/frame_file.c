/* SPDX-License-Identifier: MIT
 *
 * The first header has room for any number of frames. The last one has as many bytes, so it can be
 * written over the first.
 */
#include "client/ctl/stream/frame_file.h"

#include "client/ctl/arrays.h"
#include "client/ctl/ctl.h"
#include "proto/base/own.h"

#include <unistd.h>

/* Whether bytes that were written can be changed later. */
static bool is_patched(const struct frame_file *f)
{
	return f->file.temporary != NULL;
}

int frame_file_open(struct frame_file *f, struct gpushm_stream *s, const char *name,
		    const char *array)
{
	int r = arrays_find(gpushm_stream_buffer(s), array, &f->all);

	f->file.fd = -1;
	f->failed = true;
	if (r == CTL_OK)
		r = new_file_open(&f->file, name);
	if (r)
		return r;
	if (!is_patched(f) && !f->raw && !f->wanted)
		return ctl_error(CTL_USAGE,
				 "follow: %s: the header has the number of frames, and can't be "
				 "changed later there: give --count or --raw",
				 f->file.file);
	f->failed = false;
	transfer_begin(&f->transfer, name, 0, true);
	return CTL_OK;
}

/* What stands before the first frame. */
static int write_header(struct frame_file *f, const struct gpushm_array *a)
{
	_cleanup_(free_ptr) char *header = NULL;
	int64_t frames = is_patched(f) ? INT64_MAX : (int64_t)f->wanted;
	int r;

	f->frame_bytes = gpushm_array_nbytes(a);
	if (f->raw)
		return CTL_OK;
	r = arrays_npy_header(a, frames, 0, &header, &f->header);
	return r ? r : transfer_write(f->file.fd, f->file.file, header, f->header);
}

static int write_frame(struct frame_file *f, const struct gpushm_array *a)
{
	int r = f->n ? CTL_OK : write_header(f, a);

	if (r == CTL_OK)
		r = transfer_dump_c(&f->transfer, a, f->file.fd, f->file.file);
	/* The frames before one that a signal interrupts are whole, and so are those before one for
	 * which a disk has no space: the file is cut behind them. */
	f->failed = r != CTL_OK && !is_patched(f) && !ctl_interrupted();
	return r;
}

int frame_file_add(struct frame_file *f, struct gpushm_frame *frame)
{
	_cleanup_(free_array) struct gpushm_array *a = NULL;
	int r = gpushm_frame_array(frame, gpushm_array_name(f->all), &a);

	if (r < 0)
		return ctl_refused(r);
	r = write_frame(f, a);
	if (r)
		return r;
	if (gpushm_frame_ok(frame) < 0)
		return ctl_error(CTL_FAILED, "frame %" PRIu64 " was lost while it was written",
				 gpushm_frame_seq(frame));
	f->n++;
	return CTL_OK;
}

/* Takes the array of all slots for a frame's: the first dimension is what differs. */
static int write_last_header(struct frame_file *f)
{
	_cleanup_(free_ptr) char *header = NULL;
	_cleanup_(free_array) struct gpushm_array *one = NULL;
	size_t len;
	int r = gpushm_array_index(f->all, 0, 0, &one);

	if (r < 0)
		return ctl_refused(r);
	r = arrays_npy_header(one, (int64_t)f->n, f->header, &header, &len);
	/* Not by transfer_write(), which stops after a signal. */
	if (r == CTL_OK && pwrite(f->file.fd, header, len, 0) != (ssize_t)len)
		r = new_file_failed(&f->file);
	return r;
}

int frame_file_finish(struct frame_file *f)
{
	/* Of a frame that was lost there may be a part. */
	off_t end = (off_t)(f->header + f->n * f->frame_bytes);
	int r = CTL_OK;

	if (f->failed || f->n == 0)
		return CTL_OK;
	if (is_patched(f) && ftruncate(f->file.fd, end) < 0)
		return new_file_failed(&f->file);
	if (is_patched(f) && !f->raw)
		r = write_last_header(f);
	else if (!f->raw && f->n < f->wanted)
		return ctl_error(CTL_FAILED, "%s: it has %" PRIu64 " of %" PRIu64 " frames",
				 f->file.file, f->n, f->wanted);
	return r ? r : new_file_commit(&f->file);
}

void frame_file_close(struct frame_file *f)
{
	if (f->transfer.started)
		transfer_end(&f->transfer);
	new_file_close(&f->file);
	f->all = gpushm_array_free(f->all);
}
