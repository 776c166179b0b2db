/* SPDX-License-Identifier: MIT
 *
 * An index ("*.index.json") says which shard has which tensor.
 */
#pragma once

#include "client/models/files/header.h"

#define INDEX_BYTES_MAX HEADER_BYTES_MAX

struct index {
	char *path;	     /* owned */
	char *folder;	     /* owned; where its shards are */
	json_t *json;	     /* owned */
	json_t *map;	     /* in json: tensor to shard */
	const char **shards; /* owned, and in json; n of them, sorted */
	size_t n;
	size_t first; /* position of its first shard among the files of a checkpoint */
};

/* Reads and checks the file; the shards need not exist. Errors of open(2); -EBADMSG, also if a
 * shard's path would leave the folder; -ENOMEM; with gpushm_error() set. */
int index_open(const char *path, struct index *ret);

/* The same of a text, which is at `path`. */
int index_parse(const char *path, const char *text, size_t n, struct index *ret);

/* Whether the shards have the tensors that the index says, and no others. headers: one for each
 * shard. -EBADMSG. */
int index_check(struct index *index, const struct header *headers);

void index_done(struct index *index);
