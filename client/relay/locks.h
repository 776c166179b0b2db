/* SPDX-License-Identifier: MIT
 *
 * The relay's locks in the order in which they are taken; gpushm-internals(7) says what each
 * covers. None is held while a thread waits for the daemon, but LOCK_NIXL_MAKING, which the thread
 * that handles signals does not take.
 */
#pragma once

#include "proto/base/lock.h"

enum relay_lock {
	LOCK_PULLS = LOCKS_RELAY, /* pulls.c */
	LOCK_NIXL_MAKING,	  /* nixl.c: making; held while NIXL learns of memory */
	LOCK_NIXL,		  /* nixl.c */
	LOCK_OFFERS,		  /* offers::lock */
	LOCK_OFFER,		  /* offer::lock */
	LOCK_LINK,		  /* daemon_link::lock */
	LOCK_TRANSFERS,		  /* transfers::lock */
	LOCK_MIRRORS,		  /* mirrors::lock */
	LOCK_WAITERS,		  /* manifests.c */
	LOCK_CONFIG,		  /* config.c */
};
