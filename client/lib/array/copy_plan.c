/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of strided copies, and the copy where the CPU does it.
 *
 * Where no two elements of the destination share memory, the order of the elements is free: axes
 * are sorted by the destination's strides and reversed so that these are positive. Then axes that
 * both sides step over alike are merged, and the innermost one becomes a run of bytes. Where
 * elements may share memory, they are copied in C order, so that the last one wins. A comparison of
 * strides decides that; if this is not certain, it assumes that they share memory.
 */
#include "client/lib/array/copy_plan.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#define PART_MIN (4u << 20) /* bytes that a thread copies at least */
#define PARTS_MAX 8u
#define FRESH_PIECE (16u << 20)

static uint64_t distance(int64_t stride)
{
	return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

/* Whether the distance from the lowest to the highest byte fits the address space. */
static bool reach_fits(int ndim, const int64_t *shape, const int64_t *strides, size_t itemsize)
{
	uint64_t total = itemsize, reach;

	for (int i = 0; i < ndim; i++)
		if (shape[i] > 1 &&
		    (__builtin_mul_overflow((uint64_t)shape[i], distance(strides[i]), &reach) ||
		     __builtin_add_overflow(total, reach, &total) || total > INT64_MAX))
			return false;
	return true;
}

/* The largest destination stride first; equal ones keep their order. */
static void sort_axes(struct copy_plan *plan)
{
	for (int i = 1; i < plan->n_axes; i++) {
		struct copy_plan_axis moved = plan->axes[i];
		int j = i;

		for (; j > 0 && distance(plan->axes[j - 1].dst) < distance(moved.dst); j--)
			plan->axes[j] = plan->axes[j - 1];
		plan->axes[j] = moved;
	}
}

/* Whether each stride of the sorted axes steps over all bytes of the axes inside. */
static bool is_nested(const struct copy_plan *plan)
{
	uint64_t covered = plan->run;

	for (int i = plan->n_axes - 1; i >= 0; i--) {
		if (distance(plan->axes[i].dst) < covered)
			return false;
		covered += (uint64_t)(plan->axes[i].n - 1) * distance(plan->axes[i].dst);
	}
	return true;
}

/* Reverses an axis: the same pairs of elements, in another order. */
static void reverse(struct copy_plan *plan, struct copy_plan_axis *axis)
{
	plan->dst_at += (axis->n - 1) * axis->dst;
	plan->src_at += (axis->n - 1) * axis->src;
	axis->dst = -axis->dst;
	axis->src = -axis->src;
}

static void put_in_order(struct copy_plan *plan)
{
	struct copy_plan sorted = *plan;

	sort_axes(&sorted);
	plan->ordered = !is_nested(&sorted);
	if (plan->ordered)
		return;
	*plan = sorted;
	for (int i = 0; i < plan->n_axes; i++)
		if (plan->axes[i].dst < 0)
			reverse(plan, &plan->axes[i]);
}

static void merge(struct copy_plan *plan)
{
	int n = 0;

	for (int i = 0; i < plan->n_axes; i++) {
		const struct copy_plan_axis in = plan->axes[i];
		struct copy_plan_axis *out = n > 0 ? &plan->axes[n - 1] : NULL;

		/* One step of the outer axis is all of the inner one, on both sides. */
		if (out && out->dst == in.n * in.dst && out->src == in.n * in.src)
			*out = (struct copy_plan_axis){ out->n * in.n, in.dst, in.src };
		else
			plan->axes[n++] = in;
	}
	plan->n_axes = n;
	if (n > 0 && plan->axes[n - 1].dst == (int64_t)plan->run &&
	    plan->axes[n - 1].src == (int64_t)plan->run) {
		plan->run *= (size_t)plan->axes[n - 1].n;
		plan->n_axes--;
	}
}

int copy_plan_init(struct copy_plan *plan, int ndim, const int64_t *shape,
		   const int64_t *dst_strides, const int64_t *src_strides, size_t itemsize)
{
	*plan = (struct copy_plan){ .run = itemsize };
	if (!reach_fits(ndim, shape, dst_strides, itemsize) ||
	    !reach_fits(ndim, shape, src_strides, itemsize))
		return -EOVERFLOW;

	for (int i = 0; i < ndim; i++) {
		if (shape[i] == 1)
			continue;
		/* The whole axis is written to one place: its last step remains. */
		if (dst_strides[i] == 0)
			plan->src_at += (shape[i] - 1) * src_strides[i];
		else
			plan->axes[plan->n_axes++] =
				(struct copy_plan_axis){ shape[i], dst_strides[i], src_strides[i] };
	}
	put_in_order(plan);
	merge(plan);
	return 0;
}

void copy_plan_split(const struct copy_plan *plan, struct copy_plan *pack, struct copy_plan *place)
{
	int64_t stride = (int64_t)plan->run;

	*pack = *place = *plan;
	pack->dst_at = place->src_at = 0;
	for (int i = plan->n_axes - 1; i >= 0; i--) {
		pack->axes[i].dst = place->axes[i].src = stride;
		stride *= plan->axes[i].n;
	}
	merge(pack);
	merge(place);
}

void copy_plan_inner(const struct copy_plan *plan, struct copy_plan *ret)
{
	*ret = *plan;
	ret->n_axes--;
	memmove(ret->axes, ret->axes + 1, (size_t)ret->n_axes * sizeof(ret->axes[0]));
}

uint64_t copy_plan_bytes(const struct copy_plan *plan)
{
	uint64_t bytes = plan->run;

	for (int i = 0; i < plan->n_axes; i++)
		bytes *= (uint64_t)plan->axes[i].n;
	return bytes;
}

/* The addresses of the lowest byte, and of the one behind the highest. */
static void reach(const struct copy_plan *plan, uintptr_t start, bool dst, uintptr_t *ret_low,
		  uintptr_t *ret_high)
{
	*ret_low = *ret_high = start + (uintptr_t)(dst ? plan->dst_at : plan->src_at);
	*ret_high += plan->run;
	for (int i = 0; i < plan->n_axes; i++) {
		const struct copy_plan_axis *a = &plan->axes[i];
		int64_t far = (a->n - 1) * (dst ? a->dst : a->src);

		*(far < 0 ? ret_low : ret_high) += (uintptr_t)far;
	}
}

bool copy_plan_overlaps(const struct copy_plan *plan, const void *dst, const void *src)
{
	uintptr_t dst_low, dst_high, src_low, src_high;

	reach(plan, (uintptr_t)dst, true, &dst_low, &dst_high);
	reach(plan, (uintptr_t)src, false, &src_low, &src_high);
	return dst_low < src_high && src_low < dst_high;
}

/* ---- by the CPU ---- */

/* With a constant size the compiler makes each memcpy a load and a store. */
#define STEPS(size)                                             \
	case size:                                              \
		for (int64_t i = 0; i < n; i++)                 \
			memcpy(dst + i * d, src + i * s, size); \
		break

static void copy_axis(const struct copy_plan_axis *axis, size_t run, char *dst, const char *src)
{
	const int64_t n = axis->n, d = axis->dst, s = axis->src;

	switch (run) {
		STEPS(1);
		STEPS(2);
		STEPS(4);
		STEPS(8);
		STEPS(16);
	default:
		for (int64_t i = 0; i < n; i++)
			memcpy(dst + i * d, src + i * s, run);
	}
}

static void copy_from_axis(const struct copy_plan *plan, int axis, char *dst, const char *src)
{
	const struct copy_plan_axis *a = &plan->axes[axis];

	if (axis == plan->n_axes - 1) {
		copy_axis(a, plan->run, dst, src);
		return;
	}
	for (int64_t i = 0; i < a->n; i++)
		copy_from_axis(plan, axis + 1, dst + i * a->dst, src + i * a->src);
}

struct part {
	pthread_t thread;
	char *dst;
	const char *src;
	size_t bytes;
	struct huge_pages *fresh;
};

/* Piece by piece: what the kernel has just cleared is in the processor's cache. */
static void copy_fresh(const struct part *p)
{
	for (size_t done = 0, n; done < p->bytes; done += n) {
		size_t left = p->bytes - done;

		n = FRESH_PIECE - (uintptr_t)(p->dst + done) % HUGE_PAGE;
		n = n < left ? n : left;
		huge_pages_make(p->fresh, p->dst + done, n);
		memcpy(p->dst + done, p->src + done, n);
	}
}

static void *copy_part(void *arg)
{
	const struct part *p = arg;

	if (p->fresh && p->bytes >= HUGE_PAGE)
		copy_fresh(p);
	else
		memcpy(p->dst, p->src, p->bytes);
	return NULL;
}

static size_t parts_for(size_t run)
{
	cpu_set_t cpus;
	size_t n = run / PART_MIN;

	if (n > PARTS_MAX)
		n = PARTS_MAX;
	if (n < 2 || sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return 1;
	return n < (size_t)CPU_COUNT(&cpus) ? n : (size_t)CPU_COUNT(&cpus);
}

/* A large run by several threads: one does not use all of the memory's bandwidth, and most of the
 * time goes to page faults, where the memory is new. The program's signals are not for them, but
 * for those of their own faults, whose handlers say what happened. */
static void copy_run(char *dst, const char *src, size_t run, struct huge_pages *fresh)
{
	const size_t n = parts_for(run), step = n > 1 ? run / n / HUGE_PAGE * HUGE_PAGE : 0;
	struct part parts[PARTS_MAX];
	sigset_t all, before;
	size_t started;
	int cancel;

	if (n == 1) {
		copy_part(&(struct part){ .dst = dst, .src = src, .bytes = run, .fresh = fresh });
		return;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (started = 0; started < n - 1; started++) {
		struct part *p = &parts[started];

		*p = (struct part){ .dst = dst, .src = src, .bytes = step, .fresh = fresh };
		if (pthread_create(&p->thread, NULL, copy_part, p) != 0)
			break;
		dst += step;
		src += step;
		run -= step;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	copy_part(&(struct part){ .dst = dst, .src = src, .bytes = run, .fresh = fresh });
	while (started > 0)
		pthread_join(parts[--started].thread, NULL);
	pthread_setcancelstate(cancel, NULL);
}

void copy_plan_copy(const struct copy_plan *plan, void *dst, const void *src,
		    struct huge_pages *fresh)
{
	char *to = (char *)dst + plan->dst_at;
	const char *from = (const char *)src + plan->src_at;

	if (plan->n_axes == 0)
		copy_run(to, from, plan->run, fresh);
	else
		copy_from_axis(plan, 0, to, from);
}
