/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl pull`: makes a buffer of one that another machine's relay offers. With --follow it
 * stays, and replaces the buffer by each that the name has there later. It outlives the relay's and
 * the daemon's absence: what is wrong is said once, and tried again.
 */
#include "client/ctl/model/model.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#define AGAIN_MS 1000u /* after something went wrong */
#define AGAIN_MAX 5u   /* doublings of that, for a relay that sends what is wrong */
#define LOOK_MS 1000u  /* between two looks whether the buffer is still there */
#define STEP_MS 100

struct options {
	struct model_fetch fetch; /* first: model_fetch_args */
	const char *via;
	bool follow;
};

struct pull {
	struct ctl *ctl;
	const struct options *options;
	const char *source, *name; /* name: NULL is that of the source */
	struct model_library library;
	struct new_buffer_options new_buffer;
	struct gpushm_remote_options remote;

	/* --follow */
	struct gpushm_buffer *kept; /* owned: with --transient the lease that keeps it */
	char *here;		    /* owned: the buffer's name */
	uint64_t id;		    /* its id; 0: nothing was pulled yet */
	char etag[128];		    /* of its contents; "" */
	unsigned failures;	    /* one after the other, of pulls that cost a transfer */
	uint64_t look;		    /* ms, CLOCK_MONOTONIC: of the next look */
	char *said;		    /* owned: the last complaint; NULL: all is well */
	bool away;		    /* it is that the relay does not reply to a wait */
	bool ended;
};

/* ---- once ---- */

/* A -errno of the library. */
static int pull(struct pull *p, struct model_fetching *f)
{
	const struct options *o = p->options;
	int r;

	model_fetch_begin(f, p->ctl, &o->fetch, p->name ? p->name : p->source);
	if (o->follow)
		f->load.flags |= GPUSHM_LOAD_IF_MISSING | GPUSHM_LOAD_REPLACE;
	if (o->via && !strcmp(o->via, "nixl"))
		f->load.flags |= GPUSHM_LOAD_NIXL;
	r = p->library.pull(p->ctl->connection, p->source, p->name, &p->new_buffer.options,
			    &f->load, &f->buffer);
	model_fetch_end(f, r, o->fetch.new_buffer.transient || o->follow);
	return r;
}

/* Whether the daemon is away, rather than the relay. */
static bool is_daemon_away(const struct ctl *ctl)
{
	_cleanup_(free_result) struct gpushm_status *status = NULL;

	return gpushm_status(ctl->connection, &status) < 0;
}

/* The exit code for an error of the library. */
static int pull_result(const struct pull *p, int r)
{
	if (r == -ECANCELED && ctl_interrupted())
		return ctl_error(CTL_FAILED, "interrupted");
	if (r == -EEXIST && !p->options->fetch.replace)
		return model_fetch_taken(&p->options->fetch);
	return ctl_error(ctl_exit_code(r), "%s", gpushm_error());
}

static int pull_once(struct pull *p)
{
	struct model_fetching f;
	int r = ctl_connect(p->ctl);

	if (r)
		return r;
	r = pull(p, &f);
	return r < 0 ? pull_result(p, r) : model_fetch_finish(p->ctl, &p->options->fetch, &f);
}

/* ---- following ---- */

/* On stderr, once for each thing that is wrong. */
static void complain(struct pull *p, const char *text, const char *then)
{
	if (p->said && !strcmp(p->said, text))
		return;
	free(p->said);
	p->said = strdup(text);
	if (!p->ctl->quiet)
		ctl_error(CTL_OK, "%s; %s", text, then);
}

static void calm_down(struct pull *p)
{
	if (p->said && !p->ctl->quiet)
		ctl_error(CTL_OK, "%s: %s", p->source,
			  p->away ? "it can be reached again" : "that has passed");
	free(p->said);
	p->said = NULL;
	p->away = false;
}

/* Whether the buffer may be gone here: the daemon has died, or the name is free. */
static bool is_gone(struct pull *p)
{
	_cleanup_(free_result) struct gpushm_stat *st = NULL;
	int r;

	if (!p->here || clock_monotonic_ms() < p->look)
		return false;
	p->look = clock_monotonic_ms() + LOOK_MS;
	r = gpushm_stat(p->ctl->connection, p->here, 0, 0, &st);
	return r == -ENOENT || r == -ECONNRESET || r == -ECONNREFUSED;
}

/* A gpushm_load_progress_fn of the wait for another generation. It begins as if the relay replied,
 * and what was wrong with a pull, a full pool for example, is not over when the relay does. */
static int on_wait(void *user, const struct gpushm_load_progress *progress)
{
	struct pull *p = user;

	if (!progress->file) {
		complain(p, gpushm_error(), "waiting for it");
		p->away = true;
	} else if (p->away) {
		calm_down(p);
	}
	p->ended = output_is_closed(STDOUT_FILENO);
	return p->ended || is_gone(p);
}

/* Errors that end with what they are about: a relay or a daemon that is away, a pool that is full,
 * a relay's file that is broken. */
static bool is_passing(int r)
{
	const char *code = gpushm_error_code();
	bool daemon = *code && strcmp(code, "NO_REPLY");

	switch (-r) {
	case ENOENT: /* the daemon means the pool, the relay the name */
	case ETIMEDOUT:
		return !daemon;
	case ENOSPC:
	case EBUSY:
	case EAGAIN:
	case ESTALE:
	case EBADMSG:
	case EREMOTEIO:
	case ENOTSUP:
	case EPIPE:
	case ECONNRESET:
	case ECONNREFUSED:
	case ENETRESET:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EIO:
		return true;
	default:
		return false;
	}
}

/* Remembers the generation, and keeps its lease for --transient. */
static int note(struct pull *p, struct gpushm_buffer *b)
{
	const void *value;
	size_t size;

	p->etag[0] = '\0';
	if (gpushm_buffer_attr(b, "gpushm.etag", &value, &size) < 0 &&
	    gpushm_buffer_attr(b, "gpushm.content", &value, &size) < 0)
		size = 0;
	snprintf(p->etag, sizeof(p->etag), "%.*s", (int)size, size ? (const char *)value : "");
	p->id = gpushm_buffer_id(b);
	free(p->here);
	p->here = strdup(gpushm_buffer_name(b));
	p->look = clock_monotonic_ms() + LOOK_MS;
	gpushm_close(p->kept);
	p->kept = p->options->fetch.new_buffer.transient ? b : NULL;
	if (!p->kept)
		gpushm_close(b);
	return p->here ? CTL_OK : ctl_error(CTL_FAILED, "out of memory");
}

/* A connection does not outlive a daemon that keeps nothing. */
static int reach_daemon(struct ctl *ctl)
{
	int r;

	if (ctl->connection && is_daemon_away(ctl))
		ctl->connection = gpushm_disconnect(ctl->connection);
	r = ctl->connection ? 0 : gpushm_connect(ctl->socket, &ctl->connection);
	/* There is no socket: another ENOENT than that of a pool. */
	return r == -ENOENT ? -ECONNREFUSED : r;
}

/* 0, or a -errno. */
static int pull_generation(struct pull *p)
{
	struct model_fetching f;
	int r = reach_daemon(p->ctl);

	if (r == 0)
		r = pull(p, &f);
	if (r < 0)
		return r;
	calm_down(p);
	p->failures = 0;
	/* What it has seen already is no news; what another process has pulled is. */
	if (gpushm_buffer_id(f.buffer) != p->id)
		model_fetch_report(p->ctl, &f);
	return note(p, f.buffer);
}

static int wait_for_generation(struct pull *p)
{
	int r = p->library.pull_wait(p->source, p->etag[0] ? p->etag : NULL, &p->remote,
				     GPUSHM_WAIT_FOREVER, on_wait, p);

	return r == -ECANCELED ? 0 : r;
}

/* A pull that was whole and wrong is not tried each second: it costs both machines a transfer. */
static void nap(struct pull *p, int r)
{
	bool wrong = r == -EBADMSG || r == -EREMOTEIO || r == -ENOTSUP || r == -ESTALE;

	p->failures = wrong ? p->failures + 1 : 0;
	for (unsigned ms = 0, end = AGAIN_MS << (p->failures < AGAIN_MAX ? p->failures : AGAIN_MAX);
	     ms < end; ms += STEP_MS)
		poll(NULL, 0, STEP_MS);
}

static int follow(struct pull *p)
{
	int r = 0;

	while (!p->ended) {
		r = pull_generation(p);
		if (ctl_interrupted())
			return ctl_error(CTL_FAILED, "interrupted");
		if (r < 0 && !is_passing(r))
			return pull_result(p, r);
		if (r > 0)
			return r;
		if (r < 0) {
			complain(p, gpushm_error(), "trying again");
			p->away = false;
			nap(p, r);
		}
		r = wait_for_generation(p);
		if (r < 0)
			return pull_result(p, r);
	}
	return CTL_OK;
}

/* ---- the command ---- */

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct pull p = { .ctl = ctl,
			  .options = o,
			  .source = words[0],
			  .name = n > 1 ? words[1] : NULL,
			  .remote = model_remote_options(&o->fetch) };
	int r = new_buffer_options(&o->fetch.new_buffer, &p.new_buffer);

	if (r == CTL_OK)
		r = model_library_open(&p.library);
	if (r == CTL_OK)
		r = o->follow ? follow(&p) : pull_once(&p);
	gpushm_close(p.kept);
	new_buffer_options_free(&p.new_buffer);
	free(p.here);
	free(p.said);
	return r;
}

const struct command command_pull = {
	.name = "pull",
	.synopsis = "[OPTIONS] HOST[:PORT]/NAME [NEW]",
	.about = "load a buffer that another machine has, from its gpushm-relay",
	.more = "Makes a sealed buffer NEW, or NAME, with the arrays and attributes that NAME\n"
		"has there. Each block is compared with its digest. The buffer appears when all\n"
		"of it is here. The relay is asked by HTTPS at port 19401; an http:// or\n"
		"https:// URL is taken as it is.",
	OPTIONS(options,
		FLAG(options, follow, "follow", 'f',
		     "stay, and replace NEW by each buffer that NAME becomes there"),
		ARG(options, via, "via", ARG_CHOICE, 0, "https|nixl",
		    "how the bytes come: nixl uses RDMA where there is some (https)")),
	.more_args = { model_fetch_args, new_buffer_args },
	.defaults = &(const struct options){ .fetch.new_buffer.wait = NEW_BUFFER_NO_WAIT },
	.words = { 1, 2 },
	.connects_itself = true,
	.run = run,
};
