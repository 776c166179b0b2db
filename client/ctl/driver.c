/* SPDX-License-Identifier: MIT
 *
 * The helper of gpushm_park() and gpushm_unpark(): makes the driver's calls that freeze and thaw
 * another process. It has a process of its own because a call may never return. Each datagram on
 * standard input is a call, and the reply on standard output is "ok" or the error.
 */
#include "client/ctl/ctl.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_INITIALIZED 3 /* CUresult; cuda.h has these calls and their types since CUDA 12.8 */

enum { RUNNING, LOCKED, FROZEN }; /* CUprocessState */

static struct cuda {
	int (*init)(unsigned flags);
	int (*error_name)(int result, const char **ret);
	int (*state)(int pid, int *ret);
	int (*lock)(int pid, void *args);
	int (*checkpoint)(int pid, void *args);
	int (*restore)(int pid, void *args);
	int (*unlock)(int pid, void *args);
} cuda;

static const struct libcuda_symbol symbols[] = {
	{ "cuInit", offsetof(struct cuda, init) },
	{ "cuGetErrorName", offsetof(struct cuda, error_name) },
	{ "cuCheckpointProcessGetState", offsetof(struct cuda, state) },
	{ "cuCheckpointProcessLock", offsetof(struct cuda, lock) },
	{ "cuCheckpointProcessCheckpoint", offsetof(struct cuda, checkpoint) },
	{ "cuCheckpointProcessRestore", offsetof(struct cuda, restore) },
	{ "cuCheckpointProcessUnlock", offsetof(struct cuda, unlock) },
};

struct lock_args { /* CUcheckpointLockArgs */
	unsigned ms, reserved[15];
};

static struct target {
	int pid;
	struct lock_args lock;
	bool locked; /* by this process, and not frozen */
} target;

static void reply(const char *call, int result)
{
	char text[128] = "ok";
	const char *name = NULL;

	if (result && cuda.error_name)
		cuda.error_name(result, &name);
	if (result)
		snprintf(text, sizeof(text), "%s: %s", call, name ? name : "an unknown error");
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		exit(CTL_FAILED);
}

static int thaw(const char **call)
{
	int state = RUNNING, r = cuda.state(target.pid, &state);

	*call = "cuCheckpointProcessGetState";
	if (r == 0 && state == FROZEN) {
		*call = "cuCheckpointProcessRestore";
		r = cuda.restore(target.pid, NULL);
	}
	if (r || state == RUNNING)
		return r;
	*call = "cuCheckpointProcessUnlock";
	return cuda.unlock(target.pid, NULL);
}

static int make(char what, const char **call)
{
	int r;

	switch (what) {
	case 'l':
		*call = "cuCheckpointProcessLock";
		r = cuda.lock(target.pid, &target.lock);
		target.locked = r == 0;
		return r;
	case 'c':
		*call = "cuCheckpointProcessCheckpoint";
		r = cuda.checkpoint(target.pid, NULL);
		target.locked = r != 0;
		return r;
	case 'u':
		*call = "cuCheckpointProcessUnlock";
		r = cuda.unlock(target.pid, NULL);
		target.locked = r != 0;
		return r;
	default:
		return thaw(call);
	}
}

int ctl_drive(char **words)
{
	char why[256], what;
	const char *call = "";

	target.pid = atoi(words[0]);
	target.lock.ms = (unsigned)atoi(words[1]);
	if (!libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why))) {
		if (read(STDIN_FILENO, &what, 1) == 1 && write(STDOUT_FILENO, why, strlen(why)) < 0)
			return CTL_FAILED;
		return CTL_FAILED;
	}
	while (read(STDIN_FILENO, &what, 1) == 1) {
		int r = make(what, &call);

		if (r == NOT_INITIALIZED && cuda.init(0) == 0)
			r = make(what, &call);
		reply(call, r);
	}
	/* Who asked has died meanwhile. */
	if (target.locked)
		cuda.unlock(target.pid, NULL);
	return CTL_OK;
}
