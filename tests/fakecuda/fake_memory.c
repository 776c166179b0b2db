/* SPDX-License-Identifier: MIT
 *
 * The memfds that stand for memory of a GPU or of the host. A mapping of one keeps its open file,
 * and with that the claim on the GPU, so what is imported needs no fd here: the caller may close
 * its own, as with the real driver.
 *
 * The mappings are marked MADV_DONTFORK: a forked child has no access to the parent's GPU memory,
 * and must not keep it alive.
 */
#include "tests/fakecuda/fake_memory.h"

#include "proto/base/own.h"
#include "tests/fakecuda/fake_checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#define MAGIC "fakecuda"
#define TAG_PAGE 4096

static size_t extra_bytes(const struct memory_tag *tag)
{
	return tag->kind == MEMORY_POOL ? MEMORY_EXTRA : 0;
}

static void *map_part(int fd, off_t from, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTFORK);
	madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

static CUresult memory_map(int fd, const struct memory_tag *tag, struct memory **ret)
{
	struct memory *m = calloc(1, sizeof(*m));

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->refs = 1;
	m->fd = -1;
	m->tag = *tag;
	m->alias = map_part(fd, 0, tag->bytes);
	if (m->alias && extra_bytes(tag))
		m->extra = map_part(fd, tag->bytes, extra_bytes(tag));

	if (!m->alias || (extra_bytes(tag) && !m->extra)) {
		memory_unref(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = m;
	return CUDA_SUCCESS;
}

/* The memfd is sealed: a test that truncates it gets EPERM, and we get no SIGBUS. */
static int memfd_new(const struct memory_tag *tag)
{
	_cleanup_(close_fd) int fd = -1;
	off_t end = (off_t)(tag->bytes + extra_bytes(tag));
	char name[64];

	snprintf(name, sizeof(name), "fakecuda:%s:%s%d", tag->kind == MEMORY_POOL ? "pool" : "vmm",
		 tag->location == CU_MEM_LOCATION_TYPE_DEVICE ? "gpu" : "host", tag->id);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, end + TAG_PAGE) < 0)
		return -1;
	if (pwrite(fd, tag, sizeof(*tag), end) != sizeof(*tag))
		return -1;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -1;
	return take_fd(&fd);
}

static uint32_t epoch(void)
{
	return (uint32_t)env_bytes("FAKECUDA_EPOCH", 0);
}

CUresult memory_new(struct memory_tag tag, struct memory **ret)
{
	_cleanup_(close_fd) int fd = -1;
	struct memory *m;
	CUresult result;

	memcpy(tag.magic, MAGIC, sizeof(tag.magic));
	tag.epoch = epoch();
	tag.maker = getpid();
	if (getrandom(&tag.serial, sizeof(tag.serial), 0) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	fd = memfd_new(&tag);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	result = memory_map(fd, &tag, &m);
	if (result)
		return result;

	m->fd = take_fd(&fd);
	m->claim.gpu = tag.location == CU_MEM_LOCATION_TYPE_DEVICE ? (unsigned int)tag.id : 0;
	*ret = m;
	return CUDA_SUCCESS;
}

static bool read_tag(int fd, struct memory_tag *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= TAG_PAGE)
		return false;
	if (pread(fd, ret, sizeof(*ret), st.st_size - TAG_PAGE) != sizeof(*ret))
		return false;
	return !memcmp(ret->magic, MAGIC, sizeof(ret->magic)) &&
	       ret->bytes + extra_bytes(ret) + TAG_PAGE == (uint64_t)st.st_size;
}

static bool is_lost(const struct memory_tag *tag)
{
	return is_broken("kept") && (!tag->maker || kill(tag->maker, 0) < 0);
}

CUresult memory_import(int fd, enum memory_kind kind, struct memory **ret)
{
	struct memory_tag tag;
	CUresult result;

	if (!read_tag(fd, &tag))
		return CUDA_ERROR_UNKNOWN;
	if (tag.kind != (uint32_t)kind)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (tag.epoch < epoch() || is_lost(&tag))
		return CUDA_ERROR_INVALID_HANDLE;
	result = memory_map(fd, &tag, ret);
	if (result == CUDA_SUCCESS) {
		(*ret)->imported = true;
		checkpoint_count_imports(1);
	}
	return result;
}

struct memory *memory_ref(struct memory *m)
{
	m->refs++;
	return m;
}

void memory_unref(struct memory *m)
{
	if (!m || --m->refs)
		return;
	if (m->alias)
		munmap(m->alias, m->tag.bytes);
	if (m->extra)
		munmap(m->extra, extra_bytes(&m->tag));
	close_fd(&m->fd);
	if (m->imported)
		checkpoint_count_imports(-1);
	free(m);
}

void memory_give_back(struct memory *m)
{
	if (m->imported || m->fd < 0 || !is_broken("kept"))
		return;
	m->tag.maker = 0;
	if (pwrite(m->fd, &m->tag, sizeof(m->tag), m->tag.bytes + extra_bytes(&m->tag)) < 0)
		abort();
}

void memory_seclude(struct memory *m)
{
	close_fd(&m->fd);
}

/* mremap(2): an old size of 0 makes a second mapping of the same pages of a shared mapping. */
unsigned char *memory_place(struct memory *m, void *address)
{
	int flags = MREMAP_MAYMOVE | (address ? MREMAP_FIXED : 0);
	void *p = mremap(m->alias, 0, m->tag.bytes, flags, address);

	if (p == MAP_FAILED)
		return NULL;
	mprotect(p, m->tag.bytes, PROT_NONE);
	madvise(p, m->tag.bytes, MADV_DONTFORK);
	madvise(p, m->tag.bytes, MADV_DONTDUMP);
	return p;
}

unsigned char *memory_reserve(void *address, size_t bytes, size_t alignment)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (address ? MAP_FIXED : 0);
	size_t spare = address ? 0 : alignment, before;
	unsigned char *p = mmap(address, bytes + spare, PROT_NONE, flags, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (!spare)
		return p;

	before = -(uintptr_t)p & (alignment - 1);
	if (before)
		munmap(p, before);
	munmap(p + before + bytes, spare - before);
	return p + before;
}
