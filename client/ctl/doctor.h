/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl doctor`: the report, and the rooms that find things out by really trying them.
 */
#ifndef GPUSHM_CLIENT_CTL_DOCTOR_H
#define GPUSHM_CLIENT_CTL_DOCTOR_H

#include "client/ctl/ctl.h"

enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };

struct doctor {
	struct ctl *ctl;
	struct json json;
	bool as_json;
	unsigned counts[3]; /* of each enum finding */
};

/* One line: what was tried, what came out and why, and, if it is not NULL, what to do. */
void doctor_say(struct doctor *d, enum finding finding, const char *check, const char *todo,
		const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Kernel features, limits, containers, WSL2. */
void doctor_system(struct doctor *d);

/* The driver's device nodes, as this user may open them. */
void doctor_nodes(struct doctor *d);

/* libcuda.so.1, and what each device that it shows can do. */
void doctor_cuda(struct doctor *d);

/* The socket and the daemon behind it. False: there is none to ask further. */
bool doctor_daemon(struct doctor *d);

/* A buffer of each pool from one process to another. */
void doctor_pools(struct doctor *d);

#endif
