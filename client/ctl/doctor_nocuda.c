/* SPDX-License-Identifier: MIT
 *
 * The doctor in a build without the CUDA Toolkit's headers: it reports whether a driver is
 * installed, and that this build cannot use it.
 */
#include "client/ctl/doctor.h"
#include "proto/base/libcuda.h"

void doctor_cuda(struct doctor *d)
{
	char why[256];
	bool found = libcuda_load(NULL, 0, NULL, why, sizeof(why));

	doctor_warn(d, "driver", found ? "install the CUDA Toolkit (cuda.h) and build again" : NULL,
		    "this build has host pools only; %s", found ? "a driver is installed" : why);
}

void doctor_facts(struct doctor *d)
{
}
