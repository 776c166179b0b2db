/* SPDX-License-Identifier: MIT
 *
 * How much memory of a GPU is free, by NVIDIA's management library, which needs no context. It is
 * opened at the first question, and stays open. What is needed of nvml.h stands here: a build has
 * cuda.h, but not always that header.
 */
#include "daemon/pool/pool_internal.h"
#include "proto/base/own.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

struct memory { /* nvmlMemory_t */
	unsigned long long total, free, used;
};

static struct {
	int (*init)(void);
	int (*find)(const char *pci_id, void **ret);
	int (*info)(void *device, struct memory *ret);
} nvml;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool works;

static void load(void)
{
	static const struct {
		const char *name;
		void *member;
	} symbols[] = { { "nvmlInit_v2", &nvml.init },
			{ "nvmlDeviceGetHandleByPciBusId_v2", &nvml.find },
			{ "nvmlDeviceGetMemoryInfo", &nvml.info } };
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *address;

	for (size_t i = 0; i < array_size(symbols) && library; i++) {
		address = dlsym(library, symbols[i].name);
		if (!address)
			return;
		memcpy(symbols[i].member, &address, sizeof(address));
	}
	works = library && nvml.init() == 0;
}

bool nvml_free_bytes(const struct device *d, uint64_t *ret)
{
	struct memory m = { 0 };
	void *device = NULL;

	pthread_once(&once, load);
	if (!works || nvml.find(d->pci_id, &device) != 0 || nvml.info(device, &m) != 0)
		return false;
	*ret = m.free;
	return true;
}
