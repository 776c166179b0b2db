/* SPDX-License-Identifier: MIT
 *
 * The stream "s" of processes of tests/lib/streamer.h, over a daemon that may die, and their board.
 */
#pragma once

#include "tests/lib/kept.h"
#include "tests/lib/streamer.h"

#include <stdio.h>

static struct streamer_board *board;
static char path[128];
static struct role_process producer;

static const struct role roles[] = { { "producer", streamer_producer },
				     { "reader", streamer_reader } };

static inline void board_setup(void)
{
	kept_setup();
	snprintf(path, sizeof(path), "%s/board", k.folder);
	board = streamer_board_new(path);
}

static inline void board_teardown(void)
{
	streamer_board_free(board, path);
	client_await(client_used_bytes() == 0);
	kept_teardown();
}
