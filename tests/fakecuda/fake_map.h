/* SPDX-License-Identifier: MIT
 *
 * Reserved addresses, and what is mapped in them.
 */
#ifndef GPUSHM_TESTS_FAKECUDA_MAP_H
#define GPUSHM_TESTS_FAKECUDA_MAP_H

unsigned long map_reservations(void);

#endif
