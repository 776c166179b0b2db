/* SPDX-License-Identifier: MIT
 *
 * The doctor in a build without the CUDA Toolkit's headers: it can say whether a driver is there,
 * and that this build could not use it.
 */
#include "client/ctl/doctor.h"

#include <dlfcn.h>

void doctor_cuda(struct doctor *d)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	doctor_say(d, FINDING_WARN, "driver",
		   driver ? "install the CUDA Toolkit (cuda.h) and build again" : NULL,
		   "this build has host pools only; libcuda.so.1 is %s",
		   driver ? "there" : "not there either");
	if (driver)
		dlclose(driver);
}
