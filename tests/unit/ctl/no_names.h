/* SPDX-License-Identifier: MIT
 *
 * A machine whose users and groups have no names. A program that includes this asks it instead of
 * the machine's /etc/passwd, which may name any number that a test uses.
 */
#pragma once

#include <grp.h>
#include <pwd.h>
#include <stddef.h>

struct passwd *getpwuid(uid_t uid)
{
	(void)uid;
	return NULL;
}

struct passwd *getpwnam(const char *name)
{
	(void)name;
	return NULL;
}

struct group *getgrgid(gid_t gid)
{
	(void)gid;
	return NULL;
}
