/* SPDX-License-Identifier: MIT
 *
 * Any bytes as what says of a model's files which tensors and which sums they have: the index of a
 * checkpoint ('i' first), with whose map a shard's header is compared; and a file of checksums
 * ('s' first).
 */
#include "client/models/checksum.h"
#include "client/models/files/index.h"
#include "proto/base/own.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* ---- an index ---- */

static bool leaves_folder(const char *shard)
{
	return shard[0] == '/' || strcmp(shard, "..") == 0 || strncmp(shard, "../", 3) == 0 ||
	       strstr(shard, "/../") ||
	       (strlen(shard) >= 3 && strcmp(shard + strlen(shard) - 3, "/..") == 0);
}

static void check_index(const struct index *index)
{
	const char *tensor;
	json_t *shard;

	assert(index->n > 0 && index->n <= json_object_size(index->map));
	assert(strcmp(index->folder, "folder") == 0);
	for (size_t i = 0; i < index->n; i++) {
		assert(index->shards[i][0] && !leaves_folder(index->shards[i]));
		assert(i == 0 || strcmp(index->shards[i - 1], index->shards[i]) < 0);
	}
	json_object_foreach(index->map, tensor, shard)
	{
		size_t i = 0;

		while (i < index->n && strcmp(index->shards[i], json_string_value(shard)) != 0)
			i++;
		assert(i < index->n);
	}
}

/* Headers that have what the map says: all of it, or all but the last tensor. */
static void check_headers(struct index *index, bool all)
{
	_cleanup_(free_ptr) struct header *headers = calloc(index->n, sizeof(*headers));
	size_t size = json_object_size(index->map), left = all ? size : size - 1;
	const char *tensor;
	json_t *shard;

	assert(headers);
	for (size_t i = 0; i < index->n; i++)
		headers[i].tensors = calloc(size, sizeof(*headers[i].tensors));
	json_object_foreach(index->map, tensor, shard)
	{
		size_t i = 0;

		while (strcmp(index->shards[i], json_string_value(shard)) != 0)
			i++;
		if (left-- > 0)
			headers[i].tensors[headers[i].n++].name = (char *)(uintptr_t)tensor;
		else
			break;
	}
	assert(index_check(index, headers) == (all ? 0 : -EBADMSG));
	for (size_t i = 0; i < index->n; i++)
		free(headers[i].tensors);
}

static void fuzz_index(const char *text, size_t n)
{
	_cleanup_(index_done) struct index index = { 0 };
	int r = index_parse("folder/model.safetensors.index.json", text, n, &index);

	assert(r == 0 || r == -EBADMSG || r == -ENOMEM);
	if (r < 0) {
		assert(!index.json && gpushm_error()[0]);
		return;
	}
	check_index(&index);
	check_headers(&index, true);
	check_headers(&index, false); /* it drops what it knows of the map */
}

/* ---- a file of checksums ---- */

static unsigned hex(const char *text, size_t at)
{
	char byte[3] = { text[at], text[at + 1], 0 };

	return (unsigned)strtoul(byte, NULL, 16);
}

/* A sum that a file has got stands in the text, before the file's name. */
static bool stands_in(const char *text, size_t n, const uint8_t sum[SHA256_DIGEST_SIZE])
{
	for (size_t at = 0; at + 2 * SHA256_DIGEST_SIZE <= n; at++) {
		size_t i = 0;

		while (i < SHA256_DIGEST_SIZE && hex(text, at + 2 * i) == sum[i])
			i++;
		if (i == SHA256_DIGEST_SIZE)
			return true;
	}
	return false;
}

static void fuzz_sums(const char *text, size_t n)
{
	_cleanup_(close_fd) int fd = memfd_create("sums", MFD_CLOEXEC);
	static char first[] = "there/a.safetensors", second[] = "b\nb\\", input[] = "-";
	struct load_file list[] = { { .path = first },
				    { .path = second },
				    { .path = input, .standard_input = true } };
	/* The first byte says which of them there are. */
	struct load_files files = { .files = list + (n ? (unsigned char)text[0] % 3 : 0), .n = 1 };
	char path[32];
	int r;

	if (n == 0)
		return;
	if (text[0] & 64)
		files = (struct load_files){ .files = list, .n = 3 };
	assert(fd >= 0 && write(fd, text + 1, n - 1) == (ssize_t)n - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = checksum_read(path, &files);
	assert(r == 0 || (r == -EINVAL && gpushm_error()[0]));
	for (size_t i = 0; i < files.n; i++) {
		assert(r < 0 || files.files[i].has_sha256);
		assert(!files.files[i].has_sha256 ||
		       stands_in(text + 1, n - 1, files.files[i].sha256));
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	/* A copy of its exact size, so that ASan finds a read past its end. */
	_cleanup_(free_ptr) char *text = malloc(size + !size);

	assert(text);
	if (size == 0)
		return 0;
	memcpy(text, data + 1, size - 1);
	if (data[0] == 'i')
		fuzz_index(text, size - 1);
	else if (data[0] == 's')
		fuzz_sums(text, size - 1);
	return 0;
}
