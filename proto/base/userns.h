/* SPDX-License-Identifier: MIT
 *
 * User namespaces (user_namespaces(7)). Where a uid of another process or of a file is not mapped
 * into our namespace, the kernel shows the overflow uid instead, normally 65534. So many users look
 * like one, and that number identifies none of them. The same holds for groups.
 */
#pragma once

#include <sys/types.h>

/* The number that may stand for any user whom our namespace does not map. (uid_t)-1: the namespace
 * maps all users, as the initial one does, so each number is one user. Reads one or two files in
 * /proc. */
uid_t userns_unmapped_uid(void);

/* The same for groups; (gid_t)-1: all are mapped. */
gid_t userns_unmapped_gid(void);

/* Our namespace's number for a user whom its parent namespace calls `outside`; (uid_t)-1: it maps
 * no such user. Reads a file in /proc. */
uid_t userns_uid_inside(uid_t outside);
