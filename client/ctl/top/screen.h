/* SPDX-License-Identifier: MIT
 *
 * The live screen of `gpushmctl top`.
 */
#pragma once

#include "client/ctl/ctl.h"
#include "client/ctl/top/state.h"

/* Shows the screen until the user ends it or `count` samples were shown (0: no limit). first is
 * owned from now on. An exit code. noscreen.c is for a build without ncurses. */
int screen_run(struct ctl *ctl, struct state *s, uint64_t delay_ms, uint64_t count,
	       struct sample *first);

/* Whether there is a screen: else prints why not. An exit code. */
int screen_check(void);
