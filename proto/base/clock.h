/* SPDX-License-Identifier: MIT
 *
 * The clocks: CLOCK_REALTIME for times that people read, CLOCK_MONOTONIC for deadlines.
 */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u),
				  .tv_nsec = (long)(ns % 1000000000u) };
}

static inline uint64_t clock_realtime_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

static inline uint64_t clock_monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t clock_monotonic_ms(void)
{
	return clock_monotonic_ns() / 1000000u;
}

/* When this time since then is over, in ns; UINT64_MAX: never. */
static inline uint64_t clock_after(uint64_t since, uint64_t ms)
{
	uint64_t ns;

	if (__builtin_mul_overflow(ms, 1000000u, &ns) || __builtin_add_overflow(ns, since, &ns))
		return UINT64_MAX;
	return ns;
}

/* The same from now on, of CLOCK_MONOTONIC. */
static inline uint64_t clock_deadline(uint64_t timeout_ms)
{
	return clock_after(clock_monotonic_ns(), timeout_ms);
}

static inline uint64_t clock_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Rounded up: no wait ends before its time. 0: it is over; UINT64_MAX: it never is. */
static inline uint64_t clock_left_ms(uint64_t deadline)
{
	uint64_t now = clock_monotonic_ns();

	if (deadline == UINT64_MAX)
		return UINT64_MAX;
	return now < deadline ? (deadline - now - 1) / 1000000u + 1 : 0;
}

/* The same for the next step of a wait of timeout_ms. At least 1 for a caller that waits at all, so
 * that the daemon says that the time is over. */
static inline uint64_t clock_wait_left_ms(uint64_t timeout_ms, uint64_t deadline)
{
	uint64_t left = clock_left_ms(deadline);

	return left == 0 && timeout_ms > 0 ? 1 : left;
}

/* The same deadline for clocks in ms that are rounded down, as uv_now() is. */
static inline uint64_t clock_deadline_ms(uint64_t timeout_ms)
{
	uint64_t deadline = clock_deadline(timeout_ms);

	return deadline == UINT64_MAX ? UINT64_MAX : (deadline - 1) / 1000000u + 1;
}

struct clock_text {
	char text[32];
};

/* A CLOCK_REALTIME time for people, "2026-01-31 23:59:59 UTC"; by value, as size_format(). */
static inline struct clock_text clock_format(uint64_t ns)
{
	const time_t seconds = (time_t)(ns / 1000000000u);
	struct clock_text ret = { "" };
	struct tm tm;

	if (gmtime_r(&seconds, &tm))
		strftime(ret.text, sizeof(ret.text), "%Y-%m-%d %H:%M:%S UTC", &tm);
	return ret;
}
