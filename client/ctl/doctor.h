/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl doctor`: the report, and the groups of tests that add to it.
 */
#pragma once

#include "client/ctl/ctl.h"

enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };

struct doctor {
	struct ctl *ctl;
	struct json json;
	bool as_json;
	unsigned counts[3]; /* of each enum finding */
};

/* Adds one line: the test, its result, the reason, and in todo, unless it is NULL, what to do. */
void doctor_say(struct doctor *d, enum finding finding, const char *check, const char *todo,
		const char *format, ...) __attribute__((format(printf, 5, 6)));

#define doctor_ok(d, check, ...) doctor_say(d, FINDING_OK, check, NULL, __VA_ARGS__)
#define doctor_warn(d, check, ...) doctor_say(d, FINDING_WARN, check, __VA_ARGS__)
#define doctor_fail(d, check, ...) doctor_say(d, FINDING_FAIL, check, __VA_ARGS__)

/* Tests the kernel, containers, limits, and the driver's device nodes. */
void doctor_system(struct doctor *d);

/* Tests libcuda.so.1 and what each of its devices can do. doctor_nocuda.c is for a build without
 * the CUDA Toolkit's headers. */
void doctor_cuda(struct doctor *d);

/* Tries the facts of proto/facts.h. The driver must not have been started in this process. */
void doctor_facts(struct doctor *d);

/* Tests NVIDIA's NIXL, for pulls between machines. */
void doctor_nixl(struct doctor *d);
