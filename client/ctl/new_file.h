/* SPDX-License-Identifier: MIT
 *
 * A file that a command writes. The bytes go to a temporary file in the same folder, which gets the
 * name and the mode of the old file when it is complete: readers of the old file are not disturbed,
 * and an interrupted command leaves the old file as it was. Only SIGKILL leaves the temporary file
 * behind.
 */
#pragma once

struct new_file {
	const char *file; /* borrowed; for messages */
	char *target;	  /* owned; the file's name, links followed; NULL: written in place */
	char *temporary;  /* owned; until it is renamed to target */
	int fd;		  /* owned; -1 before new_file_open() */
};

/* "-" is standard output. A file that is not regular (a pipe, /dev/null) is written in place.
 * Whatever this returns, new_file_close() is to be called. An exit code. */
int new_file_open(struct new_file *f, const char *file);

/* Gives the file its name. An exit code. */
int new_file_commit(struct new_file *f);

/* Removes the file unless it was committed. */
void new_file_close(struct new_file *f);

/* Prints errno. An exit code. */
int new_file_failed(const struct new_file *f);
