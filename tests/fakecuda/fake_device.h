/* SPDX-License-Identifier: MIT
 *
 * The GPUs: physical ones, which all processes number alike, and the ordinals under which
 * CUDA_VISIBLE_DEVICES shows some of them to this process.
 */
#pragma once

#include "tests/fakecuda/fake_state.h"

/* The physical GPU behind an ordinal, or -1. */
int device_physical(int ordinal);
/* This process's ordinal of a physical GPU, or -1 if it can't see that GPU. */
int device_ordinal(int physical);
/* The physical GPU of that PCI id, or a number that none has. */
unsigned device_at_bus(const char *pci_id);
/* Of one GPU. */
uint64_t device_bytes(void);
