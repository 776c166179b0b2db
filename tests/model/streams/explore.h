/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/model/streams/world.h"

struct exploration {
	uint64_t states, steps, ends;
	uint32_t deepest;
	const char *violation; /* NULL: none */
};

/* With MODEL_WAY in the environment it prints the steps to a violation. */
struct exploration explore_plan(const struct plan *p);
