/* SPDX-License-Identifier: MIT
 *
 * Since Linux 6.2 the size of the folder /proc/self/fd is the number of open descriptors
 * (proc_fd_getattr() of fs/proc/fd.c). Listing the folder would take milliseconds.
 */
#include "daemon/util/fds.h"

#include "daemon/util/log.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

uint32_t fds_open(void)
{
	struct stat st;

	return stat("/proc/self/fd", &st) < 0 ? 0 : (uint32_t)st.st_size;
}

uint32_t fds_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > UINT32_MAX)
		return UINT32_MAX;
	return (uint32_t)limit.rlim_cur;
}

void fds_raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_warning_id(LOG_ID_FDS, "RLIMIT_NOFILE can't be raised: %s", strerror(errno));
}

int fds_lower_limit(uint32_t max)
{
	return setrlimit(RLIMIT_NOFILE, &(struct rlimit){ max, max }) < 0 ? -errno : 0;
}
