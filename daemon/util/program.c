/* SPDX-License-Identifier: MIT */
#include "daemon/util/program.h"

#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

char *program_path(void)
{
	const char *name = (const char *)getauxval(AT_EXECFN);
	_cleanup_(free_ptr) char *folder = NULL;
	char *path = NULL;

	if (!name || *name == '/')
		return name ? strdup(name) : NULL;
	folder = getcwd(NULL, 0);
	return folder && asprintf(&path, "%s/%s", folder, name) > 0 ? path : NULL;
}
