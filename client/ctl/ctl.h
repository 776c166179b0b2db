/* SPDX-License-Identifier: MIT
 *
 * What all commands of gpushmctl share: the options that each of them takes, the connection, the
 * exit codes of gpushmctl(1), and how an error is printed.
 *
 * Functions that return an exit code have printed the error on stderr.
 */
#pragma once

#include "client/ctl/json.h"
#include "client/ctl/output.h"
#include "client/ctl/table.h"
#include "client/gpushm_load_private.h"
#include "client/gpushm_query.h"
#include "proto/base/args.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exit_code {
	CTL_OK = 0,
	CTL_FAILED = 1,	   /* refused by the daemon, or an input or output failed */
	CTL_USAGE = 2,	   /* the command line is wrong */
	CTL_NOT_FOUND = 3, /* no buffer, array or pool of that name */
	CTL_NO_DAEMON = 4, /* no daemon can be reached, or it went away, or does not reply */
	CTL_TIMED_OUT = 5,
	CTL_DIFFERS = 6, /* a buffer's contents differ from their digest */
};

struct ctl {
	const char *socket; /* --socket; NULL: the library's rule */
	const char *json;   /* --json: NULL, "short" or "pretty" */
	bool bytes;	    /* --bytes: sizes as exact numbers */
	bool quiet;
	bool wide;   /* --wide, of the commands that print tables */
	bool colour; /* stdout is a terminal that knows colours */
	struct gpushm *connection;
};

struct command {
	const char *name;
	const char *synopsis; /* what follows the name; one line for each form */
	const char *about;    /* one line */
	const char *more;     /* paragraphs for --help; NULL */
	/* Option tables, NULL or ended by a NULL name. All store into one struct. */
	const struct arg *args, *more_args[2];
	size_t options_size;  /* of that struct */
	const void *defaults; /* of that struct; NULL: zeros */
	struct {
		size_t min, max;
	} words;
	bool connects_itself; /* else the connection stands when run() is called */
	/* One of both: all at once, or each word by itself, also after one has failed. */
	int (*run)(struct ctl *ctl, const void *options, size_t n, char **words);
	int (*each)(struct ctl *ctl, const void *options, const char *word);
	bool loads; /* the memory of evicted buffers: the library that loads models is offered */
};

/* Members of a struct command: the options of its own, and the struct that they are stored in. */
#define OPTIONS(of, ...) .args = ARGS(__VA_ARGS__), .options_size = sizeof(struct of)

extern const struct command command_status, command_pools, command_ls, command_stat, command_create,
	command_put, command_get, command_load, command_save, command_verify, command_wait,
	command_watch, command_events, command_hold, command_rm, command_mv, command_clean,
	command_flush, command_restart, command_doctor, command_help, command_top, command_metrics,
	command_streams, command_follow, command_pull, command_evict, command_demote,
	command_promote, command_keep, command_wanted, command_suspend, command_resume,
	command_park, command_unpark;

/* All commands; ends with NULL. */
extern const struct command *const commands[];
extern const struct arg ctl_args[];

/* The command of that name, or NULL. */
const struct command *command_find(const char *name);

/* The name of the command that was probably meant, or NULL. */
const char *command_suggest(const char *typed);

/* --timeout of the commands that open a buffer. */
#define ARG_TIMEOUT(of)                                    \
	ARG(of, timeout, "timeout", ARG_TIME, 't', "TIME", \
	    "wait up to this time until NAME is published")

/* --wide of the commands that print tables; run() copies it to ctl->wide. */
#define ARG_WIDE(of) FLAG(of, wide, "wide", 'w', "print whole names and all columns on a terminal")

/* Connects, once. An exit code. */
int ctl_connect(struct ctl *ctl);

/* After -ECONNRESET: libgpushm connects again where a daemon keeps buffers; here any daemon is
 * good. An exit code. */
int ctl_connect_again(struct ctl *ctl);

/* Prints "gpushmctl: ..." on stderr, escaped, with users' names. Returns code. */
int ctl_error(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints gpushm_error(), and returns the exit code for the library's -errno. */
int ctl_refused(int error);

/* CTL_OK for 0 or more, else as ctl_refused(). */
int ctl_result(int r);

/* The exit code for a -errno of the library, after the connection stands. */
enum exit_code ctl_exit_code(int error);

/* Whether --json was given; then *ret is a writer for stdout. */
bool ctl_json(const struct ctl *ctl, struct json *ret);

/* A size as --bytes asks for it: ctl_size(ctl, n).text. */
static inline struct output_text ctl_size(const struct ctl *ctl, uint64_t bytes)
{
	return output_size(bytes, ctl->bytes);
}

/* Prints the table on stdout and frees it. An exit code. */
int ctl_print(const struct ctl *ctl, struct table *t);

/* Calls it for each word, also after one has failed. The first exit code but CTL_OK. */
int ctl_each(struct ctl *ctl, const void *options, size_t n, char **words,
	     int (*one)(struct ctl *ctl, const void *options, const char *word));

/* Flushes standard output, so that a pipe's reader gets each line. Returns an exit code, and prints
 * no error if the pipe is closed. */
int ctl_flush(void);

/* help.c: prints what the command does and its options; without one (NULL), the list of them. */
void help_print(const struct command *c, FILE *out);

/* help.c: prints what is wrong with a command line, and where help is. c: NULL if no command is
 * known. CTL_USAGE. */
int help_usage_error(const struct command *c, const char *text);
int help_unknown_command(const char *typed);

/* hold.c: drops standard input until it ends, or until the daemon is gone. An exit code. */
int hold_until_eof(struct ctl *ctl);

/* stat.c: all facts about a buffer, as an object. key is as for json_open(). */
void stat_json(struct json *j, const char *key, const struct gpushm_stat *s, bool with_holders);

/* The same without the object around it. */
void stat_json_members(struct json *j, const struct gpushm_stat *s, bool with_holders);

/* pools.c, status.c: all facts about a pool, a user's account or the daemon, without the object. */
void pool_json_members(struct json *j, const struct gpushm_pool *p);
void usage_json_members(struct json *j, const struct gpushm_usage *u);
void status_json_members(struct json *j, const struct gpushm_status *s);

/* ls.c, pools.c, status.c: the first cells of a buffer's row (name, pool, state and size), and
 * those of a pool or a user; exact is as for output_size(). of: the name of the buffer whose twin
 * it is, if that is known. */
void stat_cells(struct table *t, const struct gpushm_stat *s, const char *of, bool exact);
void pool_cells(struct table *t, const struct gpushm_pool *p, bool exact);
void usage_cells(struct table *t, const struct gpushm_usage *u, bool exact);

/* memory.c: reads "0", a time, or "forever". An exit code, with an error that names the command. */
int ctl_keep_time(const char *command, const char *text, uint64_t *ret_ms);

/* driver.c: makes the driver's calls that gpushm_park() asks for on standard input. */
int ctl_drive(char **words);

/* stat.c: its state: "sealed, away 3/8" where processes have suspended it, of all its leases;
 * "evicted (twin)" or "evicted (source)" where it has no memory. */
struct stat_state {
	char text[96];
} stat_state(const struct gpushm_stat *s);

/* The colour of a buffer's state. */
enum table_style stat_style(const struct gpushm_stat *s);

/* ---- signals: SIGINT, SIGTERM and SIGHUP ---- */

/* From now on a signal makes blocking calls return EINTR; the second one kills. An ignored signal
 * stays ignored. */
void ctl_catch_signals(void);

/* From now on signals kill again. */
void ctl_release_signals(void);

/* From now on signals have no effect, nor has one that came: what was asked for is done, and the
 * exit status says so. */
void ctl_ignore_signals(void);

/* Whether a signal came during a transfer. */
bool ctl_interrupted(void);

/* Dies of the signal that came during a transfer, as the shell expects; returns if none came. */
void ctl_obey_signal(void);
