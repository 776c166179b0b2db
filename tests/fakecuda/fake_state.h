/* SPDX-License-Identifier: MIT
 *
 * What is used of each GPU, in all processes that share FAKECUDA_STATE.
 */
#pragma once

#include "tests/fakecuda/fake_call.h"

#include <stdint.h>

#define GPUS_MAX 8

/* A memfd's claim on a GPU. It ends by itself, with the last reference to the memfd's open file. */
struct claim {
	uint64_t start; /* first byte of the lock that stands for it; 0: none yet */
	uint64_t bytes;
	unsigned int gpu;
};

/* The path of FAKECUDA_STATE; false: there is none. */
bool state_path(char *path, size_t size);

/* Makes the claim of the open file `fd` that many bytes. OUT_OF_MEMORY, or OPERATING_SYSTEM. */
CUresult state_claim(int fd, struct claim *claim, uint64_t bytes);

/* Bytes used of that GPU now. Reads /proc/locks. */
uint64_t state_used(unsigned int gpu);
