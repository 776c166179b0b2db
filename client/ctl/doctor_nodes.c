/* SPDX-License-Identifier: MIT
 *
 * The doctor's look at the NVIDIA driver's device nodes. They are opened as CUDA opens them, for
 * reading and writing, and closed at once; opening does nothing to a device. A machine without a
 * GPU gets one warning, not five failures: host pools need none of this.
 */
#include "client/ctl/doctor.h"
#include "proto/base/own.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

/* /dev/nvidia0 and so on: "nvidia" and digits only. */
static bool is_gpu(const char *name)
{
	return !strncmp(name, "nvidia", 6) && name[6] &&
	       strspn(name + 6, "0123456789") == strlen(name + 6);
}

static bool try_node(struct doctor *d, const char *name)
{
	char path[300];
	_cleanup_(close_fd) int fd = -1;

	snprintf(path, sizeof(path), "/dev/%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		return true;
	if (errno == ENOENT)
		doctor_say(d, FINDING_FAIL, "device nodes",
			   "create it: nvidia-modprobe -u -c 0 (or start nvidia-persistenced)",
			   "%s is missing", path);
	else if (errno == EPERM)
		doctor_say(d, FINDING_FAIL, "device nodes",
			   "the device control group forbids it: DeviceAllow= of the unit, or "
			   "--gpus of the container",
			   "%s: %s", path, strerror(errno));
	else
		doctor_say(d, FINDING_FAIL, "device nodes",
			   "look at its owner and mode, and at NVreg_DeviceFileMode", "%s: %s",
			   path, strerror(errno));
	return false;
}

/* How many GPUs have a node, and how many of these can be opened. */
static void try_gpus(struct doctor *d, unsigned *ret_found, unsigned *ret_open)
{
	DIR *dev = opendir("/dev");

	*ret_found = *ret_open = 0;
	if (!dev)
		return;
	for (struct dirent *e = readdir(dev); e; e = readdir(dev)) {
		if (!is_gpu(e->d_name))
			continue;
		++*ret_found;
		*ret_open += try_node(d, e->d_name);
	}
	closedir(dev);
}

void doctor_nodes(struct doctor *d)
{
	unsigned found, open;
	bool loaded = access("/proc/driver/nvidia/version", F_OK) == 0;

	if (access("/dev/dxg", F_OK) == 0) {
		doctor_say(d, FINDING_OK, "device nodes", NULL, "/dev/dxg: the GPU of WSL2");
		return;
	}
	try_gpus(d, &found, &open);
	if (!found) {
		doctor_say(
			d, FINDING_WARN, "device nodes",
			loaded ? "the driver is loaded: run nvidia-smi once as root, or start the "
				 "container with --gpus all"
			       : "if there is a GPU, install its driver and load it: modprobe "
				 "nvidia",
			"no /dev/nvidia0: host pools only");
		return;
	}
	if (try_node(d, "nvidiactl") && try_node(d, "nvidia-uvm") && open == found)
		doctor_say(d, FINDING_OK, "device nodes", NULL,
			   "%u GPUs, nvidiactl and nvidia-uvm can be opened", open);
}
