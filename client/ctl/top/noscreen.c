/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl top` in a build without ncurses: it has --once and --json only.
 */
#include "client/ctl/top/screen.h"

int screen_check(void)
{
	return ctl_error(CTL_FAILED, "top: this gpushmctl was built without ncurses and has no "
				     "screen; use --once or --json");
}

int screen_run(struct ctl *ctl, struct state *s, uint64_t delay_ms, uint64_t count,
	       struct sample *first)
{
	sample_free(first);
	return screen_check();
}
