/* SPDX-License-Identifier: MIT
 *
 * The index of the Hugging Face Hub: a JSON object whose "weight_map" has the shard of each tensor.
 * "metadata" has sums, which are not needed and not read.
 */
#include "client/models/files/index.h"

#include "client/models/fail.h"
#include "client/models/files/file.h"
#include "client/models/web/json_text.h"
#include "client/models/web/url.h"
#include "proto/base/own.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <string.h>

#define INDEX_VALUES_MAX (2 * ARRAYS_MAX) /* a shard for each tensor, and what "metadata" has */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_map(const struct index *index)
{
	const char *tensor;
	json_t *shard;

	if (json_object_size(index->map) == 0)
		return load_fail(EBADMSG, "%s: it has no \"weight_map\" with tensors", index->path);
	json_object_foreach(index->map, tensor, shard)
	{
		const char *name = json_string_value(shard);

		if (!name)
			return load_fail(EBADMSG,
					 "%s: the shard of tensor \"%.100s\" is not a string",
					 index->path, tensor);
		/* A stranger's index opens nothing outside its folder. */
		if (!url_is_inside(name))
			return load_fail(
				EBADMSG,
				"%s: the shard of tensor \"%.100s\" is \"%.100s\": a shard "
				"lies in the folder of its index",
				index->path, tensor, name);
	}
	return 0;
}

/* The names of the shards, each once. */
static int collect_shards(struct index *index)
{
	size_t n = 0;
	const char *tensor;
	json_t *shard;

	index->shards = calloc(json_object_size(index->map), sizeof(*index->shards));
	if (!index->shards)
		return load_no_memory();
	json_object_foreach(index->map, tensor, shard)
	{
		const char *name = json_string_value(shard);

		/* Tensors of one shard mostly follow each other. */
		if (n == 0 || strcmp(index->shards[n - 1], name) != 0)
			index->shards[n++] = name;
	}
	qsort(index->shards, n, sizeof(*index->shards), by_text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(index->shards[i], index->shards[i - 1]) != 0)
			index->shards[index->n++] = index->shards[i];
	return 0;
}

static int set_paths(struct index *index, const char *path)
{
	const char *slash = strrchr(path, '/');

	index->path = strdup(path);
	index->folder =
		slash ? strndup(path, slash > path ? (size_t)(slash - path) : 1) : strdup(".");
	return index->path && index->folder ? 0 : load_no_memory();
}

static int parse(struct index *index, const char *text, size_t n)
{
	json_error_t e;
	int r;

	if (json_text_values(text, n) > INDEX_VALUES_MAX)
		return load_fail(EBADMSG, "%s has more than %u values", index->path,
				 INDEX_VALUES_MAX);
	index->json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	if (!index->json)
		return json_error_code(&e) == json_error_out_of_memory
			       ? load_no_memory()
			       : load_fail(EBADMSG, "%s is not valid JSON: line %d: %s",
					   index->path, e.line, e.text);
	index->map = json_object_get(index->json, "weight_map");
	r = check_map(index);
	return r < 0 ? r : collect_shards(index);
}

int index_open(const char *path, struct index *ret)
{
	_cleanup_(load_files_done) struct load_files files = { 0 };
	_cleanup_(free_ptr) char *text = NULL;
	int r = load_files_add(&files, path);
	struct load_file *f = files.files;

	if (r < 0)
		return r;
	if (f->stream || f->size > INDEX_BYTES_MAX)
		return load_fail(EBADMSG,
				 "%s is not an index: it is not a file of at most %u bytes", path,
				 INDEX_BYTES_MAX);
	text = malloc(f->size + 1);
	if (!text)
		return load_no_memory();
	r = load_file_read(f, text, f->size, 0);
	return r < 0 ? r : index_parse(path, text, f->size, ret);
}

int index_parse(const char *path, const char *text, size_t n, struct index *ret)
{
	_cleanup_(index_done) struct index index = { 0 };
	int r = set_paths(&index, path);

	if (r == 0)
		r = parse(&index, text, n);
	if (r < 0)
		return r;
	*ret = index;
	index = (struct index){ 0 };
	return 0;
}

static int check_shard(struct index *index, const char *shard, const struct header *h)
{
	for (size_t i = 0; i < h->n; i++) {
		const char *tensor = h->tensors[i].name;
		const char *where = json_string_value(json_object_get(index->map, tensor));

		if (!where)
			return load_fail(
				EBADMSG,
				"%s: shard %.100s has a tensor \"%.100s\", which the index "
				"does not list; name the shards themselves to load them",
				index->path, shard, tensor);
		if (strcmp(where, shard) != 0)
			return load_fail(
				EBADMSG,
				"%s: tensor \"%.100s\" is to be in shard %.100s, and is in "
				"%.100s",
				index->path, tensor, where, shard);
	}
	return 0;
}

/* The map keeps what no shard has. The shards' names lie in what is deleted. */
static int fail_missing(struct index *index, const struct header *headers)
{
	void *first;

	for (size_t i = 0; i < index->n; i++)
		for (size_t k = 0; k < headers[i].n; k++)
			json_object_del(index->map, headers[i].tensors[k].name);
	first = json_object_iter(index->map);
	return load_fail(EBADMSG, "%s: shard %.100s has no tensor \"%.100s\"", index->path,
			 json_string_value(json_object_iter_value(first)),
			 json_object_iter_key(first));
}

int index_check(struct index *index, const struct header *headers)
{
	size_t n = 0;

	for (size_t i = 0; i < index->n; i++) {
		int r = check_shard(index, index->shards[i], &headers[i]);

		if (r < 0)
			return r;
		n += headers[i].n;
	}
	/* Each of them is in the map, under one shard: so if there are as many, these are all. */
	return n == json_object_size(index->map) ? 0 : fail_missing(index, headers);
}

void index_done(struct index *index)
{
	free(index->path);
	free(index->folder);
	free(index->shards);
	json_decref(index->json);
	*index = (struct index){ 0 };
}
