/* SPDX-License-Identifier: MIT
 *
 * What the shape of the loader's ring does (client/models/copy/ring.h): threads that read a file,
 * hash it, and copy it to the GPU through slots of one block of 4 MiB or of several, without a
 * daemon and a buffer.
 *
 *	models_ring FILE [--rounds N] [--threads N] [--device-mib N] [--json FILE]
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
#include <sys/stat.h>
#include <unistd.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define PIECE (512 * KIB) /* that is read and hashed at a time */
#define COPY (16 * MIB)	  /* of the floor */
#define ROUNDS_MAX 16

struct shape {
	unsigned blocks, slots; /* blocks of a slot */
};
static const struct shape shapes[] = { { 1, 24 }, { 1, 16 }, { 1, 36 }, { 2, 12 }, { 3, 8 },
				       { 4, 5 },  { 4, 6 },  { 4, 8 },	{ 4, 10 } };
#define MEMORY (40 * SLOT_BYTES) /* of the largest */

#define CALLS(X) X(mem_alloc, cuMemAlloc_v2) X(mem_free, cuMemFree_v2)
struct cuda {
	CALLS(LIBCUDA_MEMBER)
};
static struct cuda cuda;

static const char *path;
static unsigned rounds = 3, only_threads;
static FILE *json;
static struct gpu *gpu;
static int file;
static uint64_t bytes; /* whole blocks of the file */
static CUdeviceptr device;
static uint64_t device_bytes = 512 * MIB; /* which the copies go to again and again */

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

static void read_and_hash(char *to, uint64_t block, const struct block_hash_code *code,
			  struct block_hash *hash)
{
	code->begin(hash);
	for (size_t done = 0; done < BLOCK_BYTES; done += PIECE) {
		read_all(to + done, PIECE, block * BLOCK_BYTES + done);
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
			read_and_hash(s->memory + block % ring.blocks * BLOCK_BYTES, block, code,
				      hash);
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
	if (only_threads > 0)
		measure(only_threads, memory, floor);
	for (size_t i = 0; only_threads == 0 && i < array_size(counts); i++)
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
	bytes = (uint64_t)st.st_size / (3 * COPY) * (3 * COPY); /* whole groups of any shape */
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
		errx(2, "usage: models_ring FILE [--rounds N] [--threads N] [--device-mib N] "
			"[--json FILE]");
	path = argv[1];
	for (int i = 2; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--threads") == 0)
			only_threads = (unsigned)atoi(argv[i + 1]);
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
