/* SPDX-License-Identifier: MIT
 *
 * What one process does to another is a file beside FAKECUDA_STATE, named after that one's pid: its
 * length is the CUprocessState, and none is RUNNING. A second file there says how many imports of
 * other processes' memory that process has. Without FAKECUDA_STATE nobody can be checkpointed.
 */
#include "tests/fakecuda/fake_checkpoint.h"

#include "proto/base/own.h"
#include "tests/fakecuda/fake_state.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { RUNNING, LOCKED, CHECKPOINTED }; /* enum CUprocessState */

struct path {
	char text[PATH_MAX];
};

static bool path_of(pid_t pid, const char *what, struct path *ret)
{
	char state[PATH_MAX - 32];

	if (!state_path(state, sizeof(state)))
		return false;
	snprintf(ret->text, sizeof(ret->text), "%s.%d.%s", state, pid, what);
	return true;
}

static int length(pid_t pid, const char *what)
{
	struct path path;
	struct stat st;

	return path_of(pid, what, &path) && stat(path.text, &st) == 0 ? (int)st.st_size : 0;
}

static void set_length(pid_t pid, const char *what, int n)
{
	struct path path;
	int fd;

	if (!path_of(pid, what, &path))
		return;
	fd = n ? open(path.text, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
	if (n ? fd < 0 || ftruncate(fd, n) < 0 : unlink(path.text) < 0 && errno != ENOENT)
		abort();
	close_fd(&fd);
}

bool checkpoint_wait(const char *call)
{
	int state;

	while ((state = length(getpid(), "state")) != RUNNING) {
		if (state == CHECKPOINTED && strcmp(call, "cuMemImportFromShareableHandle") == 0)
			return false;
		poll(NULL, 0, 5);
	}
	return true;
}

void checkpoint_count_imports(int more)
{
	static int imports;

	imports += more;
	set_length(getpid(), "imports", imports);
}

/* With a living import the real one does not return, and its process never comes back. */
static CUresult change(pid_t pid, int from, int to)
{
	struct path ignored;

	if (!path_of(pid, "state", &ignored) || kill(pid, 0) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (length(pid, "state") != from)
		return CUDA_ERROR_ILLEGAL_STATE;
	while (to == CHECKPOINTED && length(pid, "imports") > 0)
		poll(NULL, 0, 5);
	set_length(pid, "state", to);
	return CUDA_SUCCESS;
}

static CUresult get_state(pid_t pid, CUprocessState *ret)
{
	*ret = (CUprocessState)length(pid, "state");
	return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	return FAKE_CALL(CALL_PLAIN, get_state(pid, state));
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	return FAKE_CALL(CALL_PLAIN, change(pid, RUNNING, LOCKED));
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	return FAKE_CALL(CALL_PLAIN, change(pid, LOCKED, CHECKPOINTED));
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	return FAKE_CALL(CALL_PLAIN, change(pid, CHECKPOINTED, LOCKED));
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	return FAKE_CALL(CALL_PLAIN, change(pid, LOCKED, RUNNING));
}
