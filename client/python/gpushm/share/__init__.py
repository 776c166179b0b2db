# SPDX-License-Identifier: MIT
"""Programs as they are, whose processes share the weights that they load.

    python -m gpushm.share -- gunicorn --workers 8 app:app

In the command, and in all of its children, a hook replaces what loads weights, when the program imports it: safe_open()
of safetensors, and so load_file() and load_model(); from_pretrained() of models of transformers and diffusers, and so
pipelines and sentence-transformers; load_checkpoint_in_model() of accelerate; load_state_dict() of weights from a file,
also from torch.load(mmap=True); and to(), half() and their like of a module that shares its weights. The hook imports
none of these libraries. Where no daemon runs, the command starts one of this user first, and says so.

What is taken as it is in a safetensors file lies in the buffer of gpushm.safetensors. What is converted when it is
loaded, to another dtype, to a GPU, or into joined weights, lies in a buffer under ~/share, or under PREFIX (--name).
Two tensors are shared only if they are equal, bit by bit. Buffers end with the last process that uses them;
GPUSHM_SAFETENSORS_KEEP=1 keeps them for the next start, until `gpushmctl rm ~/share/` and `gpushmctl rm safetensors/`.

It is for programs that do not change their weights. On the CPU a process that does gets pages of its own, as with
gpushm.safetensors; on a GPU it ends that process's use of it. What is not shared, as the tensors of a quantiser, is the
process's own, and a FallbackWarning says once which tensor it is, and why.

On the CPU weights that are used as they are in the file need none of this: the kernel's page cache has them once for
all processes that map the file, as safetensors and torch.load(mmap=True) do. It pays where weights are converted, are
copied by load_state_dict(), or are on a GPU.

Python reads no hook with -I, -E or -S.
"""

__all__: list[str] = []
