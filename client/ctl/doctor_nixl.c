/* SPDX-License-Identifier: MIT
 *
 * The doctor's test of NVIDIA's NIXL, which only pulls between machines use, and only those that
 * ask for it. It starts an agent, because the library can be there without the plug-in that it
 * needs.
 */
#include "client/ctl/doctor.h"
#include "client/models/nixl/agent.h"
#include "client/models/nixl/library.h"

#include <stdlib.h>

static void test_agent(struct doctor *d, const struct nixl_library *l)
{
	const char *version = l->version[0] ? l->version : "of an unknown version";
	struct nixl_agent *a;

	if (nixl_agent_new(&a) < 0) {
		doctor_warn(d, "nixl", NULL, "%s (%s): %s", version, l->path, gpushm_error());
		return;
	}
	nixl_agent_free(a);
	doctor_ok(d, "nixl", "%s (%s); %s", version, l->path,
		  nixl_has_rdma() ? "there are network cards for RDMA"
				  : "without RDMA, it sends host memory over TCP");
}

void doctor_nixl(struct doctor *d)
{
	const struct nixl_library *l;

	/* UCX would catch this process's signals. */
	setenv("UCX_ERROR_SIGNALS", "", 0);
	if (nixl_library(&l) == 0)
		test_agent(d, l);
	else if (nixl_is_missing())
		doctor_ok(d, "nixl",
			  "not installed; `gpushmctl pull --via nixl` alone needs it: pip install "
			  "nixl-cu12, or nixl-cu13");
	else
		doctor_warn(d, "nixl", "correct GPUSHM_NIXL, or install NIXL anew", "%s",
			    gpushm_error());
}
