/* SPDX-License-Identifier: MIT
 *
 * The fake driver's accounting: which process uses GPU memory and for how long, in one process and
 * in several that share a state.
 */
#include "tests/fakecuda/words.h"

#define RW CU_MEM_ACCESS_FLAGS_PROT_READWRITE

static void fills_the_gpu_run(void)
{
	CUmemGenericAllocationHandle handle;

	start_driver(0);
	handle = vmm_new(32 * MiB);
	vmm_map(handle, 32 * MiB, RW);
	go(PEER);
	await(PEER);
}

SCENARIO(processes_without_a_state_have_gpus_of_their_own, .env = "FAKECUDA_MEMORY=32M")
{
	int peer;
	pid_t pid = scenario_start("fills_the_gpu", &peer);

	await(peer);
	OK(cu(cuInit)(0));
	OK(cu(cuMemRelease)(vmm_new(32 * MiB)));
	scenario_kill(pid);
	close(peer);
}

static void share_a_gpu(void)
{
	char name[64];

	snprintf(name, sizeof(name), "fakecuda-test-%d", getpid());
	setenv("FAKECUDA_STATE", name, 1);
}

static void forget_the_gpu(void)
{
	char path[96];

	snprintf(path, sizeof(path), "/dev/shm/%s", getenv("FAKECUDA_STATE"));
	MUST(unlink(path) == 0);
}

SCENARIO(a_killed_process_gives_its_memory_back, .env = "FAKECUDA_MEMORY=32M")
{
	CUmemGenericAllocationHandle handle;
	size_t available, total;
	pid_t pid;
	int peer;

	share_a_gpu();
	pid = scenario_start("fills_the_gpu", &peer);
	await(peer);
	start_driver(0);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &handle));
	OK(cu(cuMemGetInfo)(&available, &total));
	MUST(available == 0 && total == 32 * MiB);
	scenario_kill(pid);
	close(peer);
	handle = vmm_new(32 * MiB);
	OK(cu(cuMemGetInfo)(&available, &total));
	MUST(available == 0);
	OK(cu(cuMemRelease)(handle));
	OK(cu(cuMemGetInfo)(&available, &total));
	MUST(available == 32 * MiB);
	forget_the_gpu();
}

static void lends_an_fd_run(void)
{
	CUmemGenericAllocationHandle handle;
	int fd;

	OK(cu(cuInit)(0));
	handle = vmm_new(32 * MiB);
	fd = vmm_export(handle);
	tell(PEER, "f", 1, fd);
	await(PEER);
}

/* In turn, only an unread datagram, only an fd, only a mapping, and at last nothing keeps the
 * memory. */
SCENARIO(memory_is_used_until_its_last_reference_goes, .env = "FAKECUDA_MEMORY=32M")
{
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr p;
	int peer, fd;
	pid_t pid;
	char c;

	share_a_gpu();
	OK(cu(cuInit)(0));
	pid = scenario_start("lends_an_fd", &peer);
	MUST(recv(peer, &c, 1, MSG_PEEK) == 1);
	scenario_kill(pid);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &handle));

	fd = hear(peer, &c, 1);
	close(peer);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &handle));

	imported = vmm_import(fd);
	close(fd);
	p = vmm_map(imported, 32 * MiB, RW);
	OK(cu(cuMemRelease)(imported));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &handle));

	vmm_unmap(p, 32 * MiB);
	OK(cu(cuMemRelease)(vmm_new(32 * MiB)));
	forget_the_gpu();
}

SCENARIO(a_forked_child_keeps_no_mapping, .env = "FAKECUDA_MEMORY=32M")
{
	CUmemAllocationProp prop = vmm_prop(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	pid_t pid;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	OK(cu(cuInit)(0));
	OK(cu(cuMemCreate)(&handle, 32 * MiB, &prop, 0));
	p = vmm_map(handle, 32 * MiB, RW);
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	vmm_unmap(p, 32 * MiB);
	OK(cu(cuMemRelease)(handle));
	OK(cu(cuMemRelease)(vmm_new(32 * MiB)));
	scenario_kill(pid);
}

SCENARIO(each_gpu_has_its_own_memory, .env = "FAKECUDA_MEMORY=32M FAKECUDA_DEVICES=2")
{
	CUmemAllocationProp second = vmm_prop(CU_MEM_LOCATION_TYPE_DEVICE, 1);
	CUmemAllocationProp node = vmm_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
	CUmemGenericAllocationHandle a, b, c, none;

	OK(cu(cuInit)(0));
	a = vmm_new(32 * MiB);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, vmm_try(2 * MiB, &none));
	OK(cu(cuMemCreate)(&b, 32 * MiB, &second, 0));
	OK(cu(cuMemCreate)(&c, 34 * MiB, &node, 0));
	OK(cu(cuMemRelease)(a));
	OK(cu(cuMemRelease)(b));
	OK(cu(cuMemRelease)(c));
}

/* As another program of this machine would. */
static void locks_and_unlocks_run(void)
{
	int fd = memfd_create("locks", MFD_CLOEXEC);

	MUST(fd >= 0);
	go(PEER);
	for (short type = F_WRLCK;; type = type == F_WRLCK ? F_UNLCK : F_WRLCK)
		for (int i = 0; i < 300; i++) {
			struct flock range = { .l_type = type, .l_start = 2 * i, .l_len = 1 };

			MUST(fcntl(fd, F_OFD_SETLK, &range) == 0);
		}
}

SCENARIO(memory_counts_once_while_others_lock_files, .env = "FAKECUDA_MEMORY=128M")
{
	CUmemGenericAllocationHandle handle;
	size_t available, total;
	int peer;
	pid_t pid;

	start_driver(0);
	pid = scenario_start("locks_and_unlocks", &peer);
	await(peer);
	for (int i = 0; i < 400; i++) {
		handle = vmm_new(32 * MiB);
		OK(cu(cuMemGetInfo)(&available, &total));
		MUST(available == 96 * MiB);
		OK(cu(cuMemRelease)(handle));
	}
	scenario_kill(pid);
	close(peer);
}

#define ALL(X)                                              \
	X(processes_without_a_state_have_gpus_of_their_own) \
	X(a_killed_process_gives_its_memory_back)           \
	X(memory_is_used_until_its_last_reference_goes)     \
	X(a_forked_child_keeps_no_mapping)                  \
	X(each_gpu_has_its_own_memory)                      \
	X(memory_counts_once_while_others_lock_files)

#define PEERS(X)         \
	X(fills_the_gpu) \
	X(lends_an_fd)   \
	X(locks_and_unlocks)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY) PEERS(SCENARIO_ENTRY){ NULL, NULL } };

static void add(TCase *tests)
{
	ALL(SCENARIO_ADD)
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, "fakecuda state", add);
}
