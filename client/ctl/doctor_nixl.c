/* SPDX-License-Identifier: MIT
 *
 * The doctor's test of NVIDIA's NIXL, which only pulls between machines use, and only those that
 * ask for it. It starts an agent, because the library can be there without the plug-in that it
 * needs. libgpushm-load does that, since it is what would use NIXL.
 */
#include "client/ctl/doctor.h"
#include "client/ctl/model/model.h"

#include <stdlib.h>

static void test_agent(struct doctor *d, const struct model_library *l,
		       const struct nixl_found *found)
{
	const char *version = found->version[0] ? found->version : "of an unknown version";
	struct nixl_agent *a;

	if (l->nixl_new(&a) < 0) {
		doctor_warn(d, "nixl", NULL, "%s (%s): %s", version, found->path, gpushm_error());
		return;
	}
	l->nixl_free(a);
	doctor_ok(d, "nixl", "%s (%s); %s", version, found->path,
		  found->rdma ? "there are network cards for RDMA"
			      : "without RDMA, it sends host memory over TCP");
}

void doctor_nixl(struct doctor *d)
{
	struct model_library library;
	struct nixl_found found;
	char why[512];

	/* The doctor has said so already. */
	if (model_library_find(&library, why, sizeof(why)) < 0)
		return;
	/* UCX would catch this process's signals. */
	setenv("UCX_ERROR_SIGNALS", "", 0);
	if (library.nixl_find(&found) == 0)
		test_agent(d, &library, &found);
	else if (found.missing)
		doctor_ok(d, "nixl",
			  "not installed; `gpushmctl pull --via nixl` alone needs it: pip install "
			  "nixl-cu12, or nixl-cu13");
	else
		doctor_warn(d, "nixl", "correct GPUSHM_NIXL, or install NIXL anew", "%s",
			    gpushm_error());
}
