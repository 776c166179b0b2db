/* SPDX-License-Identifier: MIT
 *
 * A reader that is killed while its GPU uses a frame.
 */
#pragma once

/* follow: "every" or "latest". After a byte it joins the stream of the job that is on the board,
 * takes a frame, lets its GPU hang in it, and sends a byte. */
_Noreturn void victim_run(const char *follow);
