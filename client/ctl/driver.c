/* SPDX-License-Identifier: MIT
 *
 * The helper of gpushm_park() and gpushm_unpark(): makes the driver's calls that freeze and thaw
 * another process. It has a process of its own because a call may never return. Each datagram on
 * standard input is a letter, and the reply on standard output is "ok" or the error.
 */
#include "client/ctl/ctl.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cuda.h has these calls and their types since CUDA 12.8. */
#define NOT_INITIALIZED 3	  /* CUresult */
enum { RUNNING, LOCKED, FROZEN }; /* CUprocessState */
enum { Lock, Checkpoint, Restore, Unlock, GetState, CALLS };

static struct cuda {
	int (*process[CALLS])(int pid, void *args);
	int (*init)(unsigned flags);
	int (*error_name)(int result, const char **ret);
} cuda;

#define PROCESS(call)                                                             \
	{                                                                         \
		"cuCheckpointProcess" #call, offsetof(struct cuda, process[call]) \
	}
static const struct libcuda_symbol symbols[] = {
	PROCESS(Lock),
	PROCESS(Checkpoint),
	PROCESS(Restore),
	PROCESS(Unlock),
	PROCESS(GetState),
	{ "cuInit", offsetof(struct cuda, init) },
	{ "cuGetErrorName", offsetof(struct cuda, error_name) },
};

static int pid;
static unsigned lock_args[16]; /* CUcheckpointLockArgs: the first is its timeout, in ms */
static char text[256];	       /* the reply */

static int call(int what, void *args)
{
	const char *name = "an unknown error";
	int r = cuda.process[what](pid, args);

	if (r == NOT_INITIALIZED && cuda.init(0) == 0)
		r = cuda.process[what](pid, args);
	if (r) {
		cuda.error_name(r, &name);
		snprintf(text, sizeof(text), "%s: %s", symbols[what].name, name);
	}
	return r;
}

static int make(char what)
{
	int state = RUNNING, r;

	if (what != 'r')
		return what == 'l' ? call(Lock, lock_args)
				   : call(what == 'c' ? Checkpoint : Unlock, NULL);
	r = call(GetState, &state);
	if (r == 0 && state == FROZEN)
		r = call(Restore, NULL);
	return r == 0 && state != RUNNING ? call(Unlock, NULL) : r;
}

int ctl_drive(char **words)
{
	bool locked = false, loaded;
	char what;

	pid = atoi(words[0]);
	lock_args[0] = (unsigned)atoi(words[1]);
	loaded = libcuda_load(symbols, array_size(symbols), &cuda, text, sizeof(text));
	while (read(STDIN_FILENO, &what, 1) == 1) {
		int r;

		if (loaded)
			strcpy(text, "ok");
		r = loaded ? make(what) : 0;
		locked = what == 'l' ? r == 0 : locked && r != 0;
		if (write(STDOUT_FILENO, text, strlen(text)) < 0)
			break;
	}
	/* Who asked has died meanwhile. */
	if (loaded && locked)
		call(Unlock, NULL);
	return CTL_OK;
}
