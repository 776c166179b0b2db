/* SPDX-License-Identifier: MIT
 *
 * cuInit, and the properties of a GPU. All GPUs are alike except for their UUID and PCI id; each
 * can access the memory of every other. This file owns the table of visible devices, which cuInit
 * makes.
 */
#include "tests/fakecuda/fake_device.h"

#include "proto/base/own.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DRIVER_VERSION 13000 /* 13.0 */
#define FIRST_BUS 0x3b

static int visible[GPUS_MAX]; /* physical GPU of each ordinal */
static int n_visible;

static void uuid_of(int physical, unsigned char uuid[16])
{
	memcpy(uuid, "\xfa\x4e\xc0\xda\0\0\x40\0\x80\0\0\0\0\0\0", 15);
	uuid[15] = (unsigned char)physical;
}

/* Whether `name` is "GPU-" and the first digits of that GPU's UUID. */
static bool is_called(int physical, const char *name, size_t length)
{
	unsigned char u[16];
	char text[64];

	uuid_of(physical, u);
	snprintf(text, sizeof(text),
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
		 u[14], u[15]);
	return length > strlen("GPU-") && !strncmp(text, name, length);
}

static int find(const char *name, size_t length, int n)
{
	char *end;
	long ordinal = strtol(name, &end, 10);

	if (end == name + length && length)
		return ordinal >= 0 && ordinal < n ? (int)ordinal : -1;
	for (int physical = 0; physical < n; physical++)
		if (is_called(physical, name, length))
			return physical;
	return -1;
}

/* As with the driver, the list ends at the first name that matches no GPU. */
static void find_visible(int n)
{
	const char *names = getenv("CUDA_VISIBLE_DEVICES");

	n_visible = 0;
	if (!names) {
		for (; n_visible < n; n_visible++)
			visible[n_visible] = n_visible;
		return;
	}

	while (n_visible < n) {
		size_t length = strcspn(names, ",");
		int physical = find(names, length, n);

		if (physical < 0)
			break;
		visible[n_visible++] = physical;
		if (!names[length])
			break;
		names += length + 1;
	}
}

static CUresult driver_init(unsigned int flags)
{
	unsigned long long n = env_bytes("FAKECUDA_DEVICES", 1);

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	find_visible(n < GPUS_MAX ? (int)n : GPUS_MAX);
	if (!n_visible)
		return CUDA_ERROR_NO_DEVICE;
	call_set_initialised();
	return CUDA_SUCCESS;
}

int device_physical(int ordinal)
{
	return ordinal >= 0 && ordinal < n_visible ? visible[ordinal] : -1;
}

int device_ordinal(int physical)
{
	for (int i = 0; i < n_visible; i++)
		if (visible[i] == physical)
			return i;
	return -1;
}

uint64_t device_bytes(void)
{
	return env_bytes("FAKECUDA_MEMORY", 8ull << 30);
}

static CUresult device_get(CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice dev)
{
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	uuid_of(device_physical(dev), (unsigned char *)uuid->bytes);
	return CUDA_SUCCESS;
}

static CUresult device_text(CUdevice dev, const char *text, char *ret, int length)
{
	if (!ret || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(ret, length, "%s", text);
	return CUDA_SUCCESS;
}

static CUresult device_pci_id(char *id, int length, CUdevice dev)
{
	char text[32];

	snprintf(text, sizeof(text), "0000:%02x:00.0", FIRST_BUS + device_physical(dev));
	return device_text(dev, text, id, length);
}

unsigned device_at_bus(const char *pci_id)
{
	unsigned bus = 0;

	sscanf(pci_id, "0000:%2x:00.0", &bus);
	return bus - FIRST_BUS;
}

static CUresult device_total(size_t *bytes, CUdevice dev)
{
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = device_bytes();
	return CUDA_SUCCESS;
}

static CUresult device_peer(int *can, CUdevice dev, CUdevice peer)
{
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(dev) < 0 || device_physical(peer) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*can = dev != peer;
	return CUDA_SUCCESS;
}

/* The values of an H200, and 0 for everything that is not modelled. */
static int attribute_of(CUdevice_attribute attribute, int physical)
{
	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
		return 1;
	case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
		return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return FIRST_BUS + physical;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return 132;
	default:
		return 0;
	}
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	if (!value || (int)attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute_of(attribute, device_physical(dev));
	return CUDA_SUCCESS;
}

static CUresult tell_int(int *ret, int value)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = value;
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
	return FAKE_CALL(CALL_EARLY, driver_init(flags));
}

CUresult cuDriverGetVersion(int *version)
{
	return FAKE_CALL(CALL_EARLY, tell_int(version, DRIVER_VERSION));
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	return FAKE_CALL(CALL_PLAIN, device_get(device, ordinal));
}

CUresult cuDeviceGetCount(int *count)
{
	return FAKE_CALL(CALL_PLAIN, tell_int(count, n_visible));
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	return FAKE_CALL(CALL_PLAIN, device_text(dev, "Fake H200", name, len));
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return FAKE_CALL(CALL_PLAIN, device_uuid(uuid, dev));
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	return FAKE_CALL(CALL_PLAIN, device_pci_id(id, len, dev));
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
	return FAKE_CALL(CALL_PLAIN, device_total(bytes, dev));
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	return FAKE_CALL(CALL_PLAIN, device_attribute(value, attribute, dev));
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	return FAKE_CALL(CALL_PLAIN, device_peer(can, dev, peer));
}

#undef cuDeviceGetUuid
FAKE_ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2);
