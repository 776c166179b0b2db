/* SPDX-License-Identifier: MIT
 *
 * What the shape of the loader's ring does (client/models/copy/ring.h): threads that read a file,
 * hash it, and copy it to the GPU through slots of one block of 4 MiB or of several, without a
 * daemon and a buffer.
 *
 *	models_ring FILE [--plain] [--gib N] [--rounds N] [--threads N] [--device-mib N]
 *		    [--json FILE]
 *
 * --plain: without the ring. Each thread has a stream and slots of its own, which it fills and
 * copies in turn, with and without hashes; or it registers parts of the file's mapping, which the
 * GPU reads where they are. --gib: of the file's start.
 *
 * What fits into the processor's cache is not read from memory by the copies; large slots need
 * fewer copies, each of which costs the GPU some microseconds. The shapes take turns; each row is
 * the best and the median of its rounds, "alone" the best of the same copies without reading a
 *file, "floor" a copy of as many bytes from one piece of pinned memory.
 */
#include "client/gpushm_private.h"
#include "client/models/copy/blocks.h"
#include "client/models/copy/ring.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"
#include "tests/bench/sample.h"

#include <cuda.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define PIECE (512 * KIB) /* that is read and hashed at a time */
#define COPY (16 * MIB)	  /* of the floor */
#define WHOLE (768 * MIB) /* groups of any shape, and chunks */
#define ROUNDS_MAX 16

struct shape {
	unsigned blocks, slots; /* blocks of a slot */
};
static const struct shape shapes[] = { { 1, 24 }, { 1, 16 }, { 1, 36 }, { 2, 12 }, { 3, 8 },
				       { 4, 5 },  { 4, 6 },  { 4, 8 },	{ 4, 10 } };
#define MEMORY (40 * SLOT_BYTES) /* of the largest; plain ones have less */

#define CALLS(X)                               \
	X(mem_alloc, cuMemAlloc_v2)            \
	X(mem_free, cuMemFree_v2)              \
	X(host_register, cuMemHostRegister_v2) \
	X(host_unregister, cuMemHostUnregister)
struct cuda {
	CALLS(LIBCUDA_MEMBER)
};
static struct cuda cuda;

static const char *path;
static unsigned rounds = 3, only_threads;
static bool plainly;
static FILE *json;
static struct gpu *gpu;
static int file;
static uint64_t bytes; /* whole blocks of the file */
static CUdeviceptr device;
static uint64_t device_bytes = 512 * MIB; /* which the copies go to again and again */
static uint64_t most_bytes = UINT64_MAX;

static void must(int r)
{
	if (r < 0)
		errx(1, "%s", gpushm_error());
}

/* ---- one round ---- */

struct round {
	bool reads;	       /* the file; else the slots are copied as they are */
	_Atomic uint64_t next; /* block */
	pthread_t threads[RING_THREADS_MAX];
};

static struct ring ring;

static void read_all(char *to, size_t n, uint64_t at)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = pread(file, to + done, n - done, (off_t)(at + done));

		if (r <= 0)
			errx(1, "%s: it can't be read, or has become shorter", path);
		done += (size_t)r;
	}
}

static void read_and_hash(char *to, size_t n, uint64_t at, const struct block_hash_code *code,
			  struct block_hash *hash)
{
	code->begin(hash);
	for (size_t done = 0; done < n; done += PIECE) {
		read_all(to + done, PIECE, at + done);
		code->add(hash, to + done, PIECE);
	}
	code->end(hash);
}

static void copy(struct slot *s)
{
	const size_t n = ring.blocks * (size_t)BLOCK_BYTES;

	must(gpu_copy_to_device(ring.queue, device + s->group * n % (device_bytes - n), s->memory,
				n));
	must(ring_mark(&ring, s));
	ring_give(&ring, s);
}

static void *work(void *arg)
{
	const struct block_hash_code *code = digest_code();
	struct block_hash *hash = code->new ();
	struct round *round = arg;
	struct slot *s;
	uint64_t block;

	must(gpu_enter(gpu));
	/* Whole groups: the file is cut at a multiple of them. */
	while ((block = atomic_fetch_add(&round->next, 1)) < bytes / BLOCK_BYTES) {
		must(ring_join(&ring, block / ring.blocks, &s));
		if (round->reads)
			read_and_hash(s->memory + block % ring.blocks * BLOCK_BYTES, BLOCK_BYTES,
				      block * BLOCK_BYTES, code, hash);
		if (ring_filled(&ring, s, ring.blocks))
			copy(s);
	}
	must(ring_drain(&ring));
	gpu_leave();
	code->free(hash);
	return NULL;
}

/* Cuts just as many slots as the shape says. */
static void cut(struct shape shape, char *memory)
{
	const struct ring_piece piece = {
		.memory = memory,
		.bytes = shape.slots * (shape.blocks == 1 ? (size_t)SLOT_BYTES
							  : shape.blocks * (size_t)BLOCK_BYTES),
	};

	must(gpu_enter(gpu));
	must(ring_cut(&ring, &piece, 1, 1, shape.blocks));
	gpu_leave();
	if (ring.blocks != shape.blocks || ring.n != shape.slots)
		errx(1, "the ring was cut into %u slots of %u blocks", ring.n, ring.blocks);
}

static double run_round(struct shape shape, bool reads, unsigned threads, char *memory)
{
	struct round round = { .reads = reads };
	double start;

	cut(shape, memory);
	start = now_us();
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&round.threads[i], NULL, work, &round) != 0)
			errx(1, "no thread could be started");
	for (unsigned i = 0; i < threads; i++)
		pthread_join(round.threads[i], NULL);
	return now_us() - start;
}

static double copy_alone(char *memory)
{
	double start;

	must(gpu_enter(gpu));
	start = now_us();
	for (uint64_t at = 0; at < bytes; at += COPY)
		must(gpu_copy_to_device(ring.queue, device + at % device_bytes, memory, COPY));
	must(ring_drain(&ring));
	start = now_us() - start;
	gpu_leave();
	return start;
}

/* ---- without the ring ---- */

enum way { READ, READ_AND_HASH, REGISTER };
static const char *const way_names[] = { "read", "read and hash", "register" };

struct plain_shape {
	enum way way;
	unsigned threads, slots;
	size_t chunk;
};

struct plain {
	struct plain_shape shape;
	char *memory; /* the slots; or the file's mapping */
	_Atomic uint64_t next;
	_Atomic unsigned started;
};

static void fill_and_copy(struct plain *p, char *slots, const struct block_hash_code *code,
			  struct block_hash *hash, struct gpu_queue *queue)
{
	uint64_t at;

	for (unsigned slot = 0; (at = p->shape.chunk * p->next++) < bytes;
	     slot = (slot + 1) % p->shape.slots) {
		char *to = slots + slot * p->shape.chunk;

		must(gpu_wait(queue, slot));
		if (p->shape.way == READ)
			read_all(to, p->shape.chunk, at);
		else
			read_and_hash(to, p->shape.chunk, at, code, hash);
		must(gpu_copy_to_device(queue, device + at % device_bytes, to, p->shape.chunk));
		must(gpu_mark(queue, slot));
	}
}

static void register_and_copy(struct plain *p, struct gpu_queue *queue)
{
	uint64_t at;

	while ((at = p->shape.chunk * p->next++) < bytes) {
		if (cuda.host_register(p->memory + at, p->shape.chunk,
				       CU_MEMHOSTREGISTER_PORTABLE |
					       CU_MEMHOSTREGISTER_READ_ONLY) != CUDA_SUCCESS)
			errx(1, "%s: its mapping can't be registered", path);
		must(gpu_copy_to_device(queue, device + at % device_bytes, p->memory + at,
					p->shape.chunk));
		must(gpu_drain(queue));
		cuda.host_unregister(p->memory + at);
	}
}

static void *work_plainly(void *arg)
{
	struct plain *p = arg;
	const struct block_hash_code *code = digest_code();
	struct block_hash *hash = code->new ();
	struct gpu_queue *queue;

	must(gpu_enter(gpu));
	must(gpu_queue_new(p->shape.slots, &queue));
	if (p->shape.way == REGISTER)
		register_and_copy(p, queue);
	else
		fill_and_copy(p, p->memory + p->started++ * p->shape.slots * p->shape.chunk, code,
			      hash, queue);
	must(gpu_drain(queue));
	gpu_queue_free(gpu, queue);
	gpu_leave();
	code->free(hash);
	return NULL;
}

static void print_plain(const struct plain_shape *p, struct sample *s)
{
	struct figures f = sample_figures(s);

	printf("%2u threads, %u slots of %5.1f MiB each, %-14s %6.1f GB/s (median %5.1f)\n",
	       p->threads, p->slots, (double)p->chunk / (double)MIB, way_names[p->way],
	       (double)bytes / f.min / 1e3, (double)bytes / f.median / 1e3);
	if (json)
		fprintf(json,
			"{\"row\": \"plain\", \"way\": \"%s\", \"threads\": %u, \"slots\": %u, "
			"\"mib\": %.1f, \"best_gbs\": %.3f, \"median_gbs\": %.3f}\n",
			way_names[p->way], p->threads, p->slots, (double)p->chunk / (double)MIB,
			(double)bytes / f.min / 1e3, (double)bytes / f.median / 1e3);
	fflush(stdout);
}

static double run_plain(struct plain *p)
{
	pthread_t threads[RING_THREADS_MAX];
	double start = now_us();

	p->started = 0;
	p->next = 0;
	for (unsigned i = 0; i < p->shape.threads; i++)
		if (pthread_create(&threads[i], NULL, work_plainly, p) != 0)
			errx(1, "no thread could be started");
	for (unsigned i = 0; i < p->shape.threads; i++)
		pthread_join(threads[i], NULL);
	return now_us() - start;
}

/* load_sweep's shapes that were the best somewhere. */
static void measure_plain(char *memory)
{
	char *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
	static const struct plain_shape p[] = {
		{ READ, 12, 2, MIB },
		{ READ, 12, 2, 2 * MIB },
		{ READ, 12, 2, 4 * MIB },
		{ READ, 12, 3, 2 * MIB },
		{ READ, 16, 2, 2 * MIB },
		{ READ, 16, 2, 4 * MIB },
		{ READ, 16, 3, MIB },
		{ READ_AND_HASH, 12, 2, 2 * MIB },
		{ READ_AND_HASH, 12, 2, 4 * MIB },
		{ READ_AND_HASH, 16, 2, 2 * MIB },
		{ REGISTER, 1, 1, 256 * MIB },
		{ REGISTER, 2, 1, 128 * MIB },
		{ REGISTER, 4, 1, 64 * MIB },
		{ REGISTER, 8, 1, 64 * MIB },
	};
	struct sample samples[array_size(p)] = { 0 };

	if (mapped == MAP_FAILED)
		err(1, "%s", path);
	for (unsigned r = 0; r < rounds; r++)
		for (size_t i = 0; i < array_size(p); i++) {
			struct plain round = { .shape = p[i],
					       .memory = p[i].way == REGISTER ? mapped : memory };

			sample_add(&samples[i], run_plain(&round));
		}
	for (size_t i = 0; i < array_size(p); i++) {
		print_plain(&p[i], &samples[i]);
		sample_done(&samples[i]);
	}
	munmap(mapped, bytes);
}

/* ---- all of them ---- */

static double rate(double us)
{
	return (double)bytes / us / 1e3;
}

static void print(unsigned threads, struct shape shape, struct sample *s, struct sample *alone,
		  double floor)
{
	struct figures f = sample_figures(s);
	double copies = rate(sample_figures(alone).min);

	printf("%2u threads, %2u slots of %u x 4 MiB %6.1f GB/s (median %5.1f)   %.2f of the "
	       "floor; "
	       "alone %.1f\n",
	       threads, shape.slots, shape.blocks, rate(f.min), rate(f.median), rate(f.min) / floor,
	       copies);
	fflush(stdout);
	if (json)
		fprintf(json,
			"{\"row\": \"ring\", \"threads\": %u, \"slots\": %u, \"blocks\": %u, "
			"\"best_gbs\": %.3f, \"median_gbs\": %.3f, \"alone_gbs\": %.3f, "
			"\"floor_gbs\": %.3f}\n",
			threads, shape.slots, shape.blocks, rate(f.min), rate(f.median), copies,
			floor);
}

static void measure(unsigned threads, char *memory, double floor)
{
	struct sample samples[array_size(shapes)] = { 0 }, alone[array_size(shapes)] = { 0 };

	for (unsigned r = 0; r < rounds; r++)
		for (size_t i = 0; i < array_size(shapes); i++) {
			sample_add(&samples[i], run_round(shapes[i], true, threads, memory));
			sample_add(&alone[i], run_round(shapes[i], false, threads, memory));
		}
	for (size_t i = 0; i < array_size(shapes); i++) {
		print(threads, shapes[i], &samples[i], &alone[i], floor);
		sample_done(&samples[i]);
		sample_done(&alone[i]);
	}
}

static void measure_all(void)
{
	static const unsigned counts[] = { 8, 12 };
	struct sample alone = { 0 };
	double floor;
	void *memory;

	must(gpu_pin(gpu, MEMORY, &memory));
	for (unsigned r = 0; r < rounds; r++)
		sample_add(&alone, copy_alone(memory));
	floor = rate(sample_figures(&alone).min);
	printf("%-32s %6.1f GB/s\n", "pinned memory to GPU, alone", floor);
	sample_done(&alone);
	if (plainly)
		measure_plain(memory);
	else if (only_threads > 0)
		measure(only_threads, memory, floor);
	for (size_t i = 0; !plainly && only_threads == 0 && i < array_size(counts); i++)
		measure(counts[i], memory, floor);
	gpu_unpin(gpu, memory, MEMORY);
}

static void open_all(void)
{
	static const struct libcuda_symbol symbols[] = { CALLS(LIBCUDA_SYMBOL) };
	struct stat st;
	char why[256];

	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &st) < 0)
		err(1, "%s", path);
	bytes = (uint64_t)st.st_size < most_bytes ? (uint64_t)st.st_size : most_bytes;
	bytes = bytes / WHOLE * WHOLE;
	if (bytes == 0)
		errx(1, "%s: wanted is a file of some GiB", path);
	must(gpu_open(0, &gpu));
	if (!libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why)))
		errx(1, "%s", why);
	must(gpu_enter(gpu));
	must(ring_open(&ring, gpu));
	if (cuda.mem_alloc(&device, device_bytes) != CUDA_SUCCESS)
		errx(1, "the GPU has no %llu MiB left", (unsigned long long)(device_bytes / MIB));
	gpu_leave();
}

static void close_all(void)
{
	must(gpu_enter(gpu));
	cuda.mem_free(device);
	gpu_leave();
	ring_close(&ring);
	gpu_close(gpu);
	close(file);
	if (json)
		fclose(json);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		errx(2, "usage: models_ring FILE [--plain] [--gib N] [--rounds N] [--threads N] "
			"[--device-mib N] [--json FILE]");
	path = argv[1];
	plainly = argc > 2 && strcmp(argv[2], "--plain") == 0;
	for (int i = plainly ? 3 : 2; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--threads") == 0)
			only_threads = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--gib") == 0)
			most_bytes = strtoull(argv[i + 1], NULL, 10) << 30;
		else if (strcmp(argv[i], "--device-mib") == 0)
			device_bytes = strtoull(argv[i + 1], NULL, 10) * MIB;
		else if (strcmp(argv[i], "--json") == 0)
			json = fopen(argv[i + 1], "we");
	}
	if (rounds < 1 || rounds > ROUNDS_MAX || only_threads > RING_THREADS_MAX ||
	    device_bytes == 0 || device_bytes % COPY != 0)
		errx(2, "wanted: 1 to %u rounds, at most %u threads, and a multiple of %llu MiB",
		     ROUNDS_MAX, RING_THREADS_MAX, COPY / MIB);
	open_all();
	measure_all();
	close_all();
	return 0;
}
