/* SPDX-License-Identifier: MIT
 *
 * Reserved addresses, and what is mapped in them.
 */
#pragma once

unsigned long map_reservations(void);
