/* SPDX-License-Identifier: MIT
 *
 * A file that is being written: there in whole under its name, or not at all.
 */
#ifndef GPUSHM_CLIENT_CTL_SINK_H
#define GPUSHM_CLIENT_CTL_SINK_H

struct sink {
	const char *file; /* borrowed; for messages */
	char *target;	 /* owned; what file is, where links are followed; NULL: written in place */
	char *temporary; /* owned; until it takes the target's name */
	int fd;		 /* owned */
};

/* "-": standard output. What is no regular file (a pipe, /dev/null) is written in place, all else
 * beside its name first. An exit code. */
int sink_open(struct sink *s, const char *file);

/* Gives the file its name. An exit code. */
int sink_commit(struct sink *s);

/* Takes away what was not committed. For a zeroed sink, too. */
void sink_close(struct sink *s);

#endif
