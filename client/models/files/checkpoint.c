/* SPDX-License-Identifier: MIT
 *
 * From what a user names to files: a safetensors file, an index and its shards, a folder in the
 * layout of the Hugging Face Hub, standard input. All files are opened before the first header is
 * read, so that a download that replaces them meanwhile is noticed (file.c).
 */
#include "client/models/files/checkpoint.h"

#include "client/models/checksum.h"
#include "client/models/fail.h"
#include "client/models/files/file.h"
#include "client/models/files/index.h"
#include "client/models/web/remote.h"
#include "proto/base/own.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#define DATA_SUFFIX ".safetensors"
#define INDEX_SUFFIX ".index.json"

static int make_path(const char *folder, const char *name, char **ret)
{
	const char *slash = url_ends_with(folder, "/") || strcmp(folder, "/") == 0 ? "" : "/";

	return load_format(ret, "%s%s%s", folder, slash, name);
}

/* ---- an index and its shards ---- */

struct indexes {
	struct index *v; /* owned */
	size_t n;
};

static void close_indexes(struct indexes *in)
{
	for (size_t i = 0; i < in->n; i++)
		index_done(&in->v[i]);
	free(in->v);
}

static void free_texts(char **v)
{
	for (char **at = v; at && *at; at++)
		free(*at);
	free(v);
}

/* The paths, or URLs, of an index's shards; NULL ends them. */
static int list_shards(const struct index *index, const char *source, char ***ret)
{
	char **v = calloc(index->n + 1, sizeof(*v));
	int r = v ? 0 : load_no_memory();

	for (size_t i = 0; r == 0 && i < index->n; i++)
		r = url_is(source) ? url_sibling(source, index->shards[i], &v[i])
				   : make_path(index->folder, index->shards[i], &v[i]);
	if (r < 0)
		free_texts(v);
	else
		*ret = v;
	return r;
}

static int read_index(struct checkpoint *cp, const char *url, struct index *ret)
{
	const struct remote_request q = { .url = url,
					  .max_bytes = INDEX_BYTES_MAX,
					  .options = cp->files.options,
					  .stop = cp->files.stop };
	_cleanup_(remote_reply_clear) struct remote_reply reply = { 0 };
	_cleanup_(url_clear) struct url shown = { 0 };
	int r = url_parse(url, &shown);

	if (r == 0)
		r = remote_request(&q, &reply);
	return r < 0 ? r : index_parse(shown.name, reply.body, reply.n_body, ret);
}

static int add_index(struct checkpoint *cp, struct indexes *indexes, const char *source)
{
	struct index *index = &indexes->v[indexes->n];
	bool url = url_is(source);
	char **shards = NULL;
	int r = url ? read_index(cp, source, index) : index_open(source, index);

	if (r < 0)
		return r;
	indexes->n++;
	index->first = cp->files.n;
	r = list_shards(index, source, &shards);
	if (r == 0 && url)
		r = load_files_add_urls(&cp->files, shards, index->n);
	for (size_t i = 0; !url && i < index->n && r == 0; i++)
		r = load_files_add(&cp->files, shards[i]);
	free_texts(shards);
	return r;
}

/* ---- a folder ---- */

struct listing {
	struct dirent **v; /* owned, each of them, too */
	int n;
};

static void free_listing(struct listing *l)
{
	for (int i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

/* Downloads that are not complete have names that begin with '.', or other endings. */
static int is_data(const struct dirent *e)
{
	return e->d_name[0] != '.' && url_ends_with(e->d_name, DATA_SUFFIX);
}

static int is_index(const struct dirent *e)
{
	return e->d_name[0] != '.' && url_ends_with(e->d_name, DATA_SUFFIX INDEX_SUFFIX);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int list(const char *folder, int (*filter)(const struct dirent *), struct listing *ret)
{
	ret->n = scandir(folder, &ret->v, filter, by_name);
	if (ret->n >= 0)
		return 0;
	*ret = (struct listing){ 0 };
	return load_fail(errno, "%s: %s", folder, strerror(errno));
}

static bool has(const struct listing *l, const char *name)
{
	for (int i = 0; i < l->n; i++)
		if (strcmp(l->v[i]->d_name, name) == 0)
			return true;
	return false;
}

/* The one that the Hub's tools write, or the only one; NULL if the folder has no index. */
static int choose_index(const char *folder, const struct listing *l, const char **ret)
{
	static const char usual[] = "model" DATA_SUFFIX INDEX_SUFFIX;

	if (l->n > 1 && !has(l, usual))
		return load_fail(EINVAL,
				 "%s has more than one index (%s, %s): name the one to load",
				 folder, l->v[0]->d_name, l->v[1]->d_name);
	*ret = l->n == 0 ? NULL : l->n == 1 ? l->v[0]->d_name : usual;
	return 0;
}

static int add_files(struct checkpoint *cp, const char *folder)
{
	static const char usual[] = "model" DATA_SUFFIX;
	_cleanup_(free_listing) struct listing l = { 0 };
	int r = list(folder, is_data, &l);

	if (r < 0)
		return r;
	if (l.n == 0)
		return load_fail(ENOENT,
				 "%s has no file *" DATA_SUFFIX
				 " and no index *" DATA_SUFFIX INDEX_SUFFIX,
				 folder);
	for (int i = 0; i < l.n && r == 0; i++) {
		_cleanup_(free_ptr) char *path = NULL;

		if (has(&l, usual) && strcmp(l.v[i]->d_name, usual) != 0)
			continue;
		r = make_path(folder, l.v[i]->d_name, &path);
		if (r == 0)
			r = load_files_add(&cp->files, path);
	}
	return r;
}

static int add_folder(struct checkpoint *cp, struct indexes *indexes, const char *folder)
{
	_cleanup_(free_listing) struct listing l = { 0 };
	_cleanup_(free_ptr) char *path = NULL;
	const char *index = NULL;
	int r = list(folder, is_index, &l);

	if (r == 0)
		r = choose_index(folder, &l, &index);
	if (r < 0 || !index)
		return r < 0 ? r : add_files(cp, folder);
	r = make_path(folder, index, &path);
	return r < 0 ? r : add_index(cp, indexes, path);
}

/* ---- URLs ---- */

static int add_file_url(struct checkpoint *cp, const char *url)
{
	char *const urls[] = { (char *)url };

	return load_files_add_urls(&cp->files, urls, 1);
}

/* A server can't be asked what is in a folder: it has the Hub's names. */
static int add_folder_url(struct checkpoint *cp, struct indexes *indexes, const char *url)
{
	_cleanup_(free_ptr) char *index = NULL;
	_cleanup_(free_ptr) char *file = NULL;
	int r = url_sibling(url, "model" DATA_SUFFIX INDEX_SUFFIX, &index);

	if (r == 0)
		r = url_sibling(url, "model" DATA_SUFFIX, &file);
	if (r < 0)
		return r;
	r = add_index(cp, indexes, index);
	if (r != -ENOENT || indexes->n > 0)
		return r;
	r = add_file_url(cp, file);
	return r == -ENOENT ? load_fail(ENOENT, "%.400s; nor is there an index beside it",
					gpushm_error())
			    : r;
}

static int add_url(struct checkpoint *cp, struct indexes *indexes, const char *url)
{
	_cleanup_(url_clear) struct url u = { 0 };
	int r = url_parse(url, &u);
	bool folder = r == 0 && url_ends_with(u.name, "/");
	bool index = r == 0 && url_ends_with(u.name, INDEX_SUFFIX);

	return r < 0	? r
	       : folder ? add_folder_url(cp, indexes, url)
	       : index	? add_index(cp, indexes, url)
			: add_file_url(cp, url);
}

/* ---- a name of the Hub ---- */

static bool is_hub_name(const char *source)
{
	const char *slash = strchr(source, '/');

	return slash && slash > source && slash[1] && !strchr(slash + 1, '/') &&
	       !strchr(".~", source[0]) && !url_ends_with(source, DATA_SUFFIX) &&
	       !url_ends_with(source, INDEX_SUFFIX);
}

static int fail_hub_name(const char *source)
{
	int organisation = (int)strcspn(source, "/");

	return load_fail(ENOENT,
			 "%s: no such file or folder; the Hugging Face Hub's model of this name is "
			 "https://huggingface.co/%s/resolve/main/, and what its tools have "
			 "downloaded is in ~/.cache/huggingface/hub/models--%.*s--%s/snapshots/",
			 source, source, organisation, source, source + organisation + 1);
}

/* ---- sources ---- */

static int add_source(struct checkpoint *cp, struct indexes *indexes, const char *source)
{
	struct stat st;

	if (!source || source[0] == '\0')
		return load_fail(EINVAL, "a source needs a path, or \"-\" for standard input");
	if (url_is(source))
		return add_url(cp, indexes, source);
	if (is_hub_name(source) && stat(source, &st) < 0 && errno == ENOENT)
		return fail_hub_name(source);
	if (strcmp(source, "-") != 0 && stat(source, &st) == 0 && S_ISDIR(st.st_mode))
		return add_folder(cp, indexes, source);
	if (url_ends_with(source, INDEX_SUFFIX))
		return add_index(cp, indexes, source);
	return load_files_add(&cp->files, source);
}

static int add_sources(struct checkpoint *cp, struct indexes *indexes, const char *const *sources,
		       size_t n)
{
	int r = 0;

	indexes->v = calloc(n + 1, sizeof(*indexes->v));
	if (!indexes->v)
		return load_no_memory();
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_source(cp, indexes, sources[i]);
	for (size_t i = 0, standard = 0; i < cp->files.n && r == 0; i++) {
		standard += cp->files.files[i].standard_input;
		if (standard > 1)
			r = load_fail(EINVAL, "standard input can be read once only");
	}
	return r;
}

static int read_header(struct load_file *f, struct header *ret)
{
	_cleanup_(free_ptr) char *text = NULL;
	uint64_t data_bytes = 0;
	size_t length = 0;
	int r = load_file_header(f, &text, &length, &data_bytes);

	if (r == 0)
		r = header_parse(f->path, text, length, data_bytes, ret);
	if (r == 0 && f->stream)
		f->size = f->data + (ret->n ? ret->tensors[ret->n - 1].end : 0);
	return r;
}

static int read_headers(struct checkpoint *cp)
{
	int r = 0;

	cp->headers = calloc(cp->files.n + 1, sizeof(*cp->headers));
	if (!cp->headers)
		return load_no_memory();
	for (size_t i = 0; i < cp->files.n && r == 0; i++)
		r = read_header(&cp->files.files[i], &cp->headers[i]);
	return r;
}

static int open_all(struct checkpoint *cp, struct indexes *indexes, const char *const *sources,
		    size_t n, const char *sha256)
{
	int r = add_sources(cp, indexes, sources, n);

	if (r == 0 && sha256)
		r = checksum_read(sha256, &cp->files);
	/* A hash takes the bytes in their order; two downloads for it would be one too many. */
	for (size_t i = 0; r == 0 && i < cp->files.n; i++)
		cp->files.files[i].stream |=
			cp->files.files[i].remote && cp->files.files[i].has_sha256;
	if (r == 0)
		r = read_headers(cp);
	for (size_t i = 0; i < indexes->n && r == 0; i++)
		r = index_check(&indexes->v[i], &cp->headers[indexes->v[i].first]);
	return r;
}

static int give(struct checkpoint *cp, int r, struct checkpoint *ret)
{
	if (r < 0)
		checkpoint_close(cp);
	else
		*ret = *cp;
	return r;
}

int checkpoint_open(const char *const *sources, size_t n, const char *sha256,
		    const struct gpushm_remote_options *remote, struct load_stop stop,
		    struct checkpoint *ret)
{
	_cleanup_(close_indexes) struct indexes indexes = { 0 };
	struct checkpoint cp = { .files = { .stop = stop, .options = remote } };
	int r = n == 0 || !sources ? load_fail(EINVAL, "there is no source to load")
				   : open_all(&cp, &indexes, sources, n, sha256);

	return give(&cp, r, ret);
}

int checkpoint_open_file(const char *url, const struct gpushm_remote_options *remote,
			 struct load_stop stop, struct checkpoint *ret)
{
	struct checkpoint cp = { .files = { .stop = stop, .options = remote } };
	int r = add_file_url(&cp, url);

	if (r == 0)
		r = read_headers(&cp);
	return give(&cp, r, ret);
}

void checkpoint_close(struct checkpoint *cp)
{
	for (size_t i = 0; cp->headers && i < cp->files.n; i++)
		header_done(&cp->headers[i]);
	free(cp->headers);
	load_files_done(&cp->files);
	*cp = (struct checkpoint){ 0 };
}

bool checkpoint_is_stream(const struct checkpoint *cp)
{
	for (size_t i = 0; i < cp->files.n; i++)
		if (cp->files.files[i].stream)
			return true;
	return false;
}

bool checkpoint_is_slow(const struct checkpoint *cp)
{
	for (size_t i = 0; i < cp->files.n; i++)
		if (cp->files.files[i].remote)
			return true;
	return checkpoint_is_stream(cp);
}

int checkpoint_finish(struct checkpoint *cp)
{
	int r = 0;

	for (size_t i = 0; i < cp->files.n && r == 0; i++)
		r = load_file_finish(&cp->files.files[i]);
	return r;
}
