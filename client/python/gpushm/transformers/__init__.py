# SPDX-License-Identifier: MIT
"""Models of transformers, loaded once a machine.

    model = gpushm.transformers.from_pretrained("Qwen/Qwen3-8B", name="qwen3", device_map={"": 0})

The first process that asks for the name loads the model and publishes its weights; all others attach to them without a
copy, also later and under other users that may open the buffer. Whatever else transformers makes of the files
(configuration, tokens for generation, buffers that are not in them) each process makes for itself, as
from_pretrained() does.

The weights are for inference: they have requires_grad=False. On the CPU a process that writes to them gets pages of its
own; on a GPU a write fails, and ends the process's use of that GPU.

This module replaces two functions of transformers, PreTrainedModel._load_pretrained_model() and get_init_context(), in
calls of this from_pretrained() only. transformers.PreTrainedModel.from_pretrained() works as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _hook
from ._share import Share

if TYPE_CHECKING:
    import os

__all__ = ["from_pretrained"]


def from_pretrained(
    pretrained_model_name_or_path: str | os.PathLike[str],
    *model_args: Any,
    name: str,
    cls: Any = None,
    replace: bool = False,
    pool: str | None = None,
    mode: int = 0o600,
    gid: int | None = None,
    transient: bool = False,
    wait: float | None = 0,
    timeout: float | None = None,
    **kwargs: Any,
) -> Any:
    """cls.from_pretrained(), with the weights in the buffer of that name, which all processes of the machine share.

    cls: a model class of transformers, AutoModelForCausalLM if it is None. device_map: one device, "cpu" if it is not
    given. pool: one on that device; None lets device_map choose it. mode, gid, transient, wait: of the buffer, as for
    gpushm.create(). It stays until `gpushmctl rm NAME`, unless it is transient. timeout: seconds to wait for another
    process that loads the model, None for ever. All other arguments are those of cls.from_pretrained().

    A buffer that `gpushmctl load FOLDER NAME` or gpushm.load() has loaded from the model's files is used, too, if
    transformers takes all tensors as they are in the files.

    replace: if the buffer of that name has another model, or is of other files, the model is loaded, and takes the name
    over in one step. Processes that use the old model keep it. If several processes replace by the same model, one of
    them loads it.

    The process that loads reports the tensors that the files lack (output_loading_info=True); the others find them in
    the buffer, and report none.

    If no tensor needs another dtype or layout than in the file, gpushm.load() loads the file. Else transformers loads
    the model, and its tensors are copied into the buffer: that takes twice the memory for a moment.

    Errors: LayoutError, where the buffer was made of other files, another configuration, class, dtype or quantisation,
    names the field; AccessDenied, where it belongs to a user who is neither this one, nor root, nor in $GPUSHM_TRUST;
    NotSupported (several devices, tensor parallelism, tensors that need a class of their own, a version of transformers
    that this module does not know); otherwise those of from_pretrained(), gpushm.load() and gpushm.create().
    """
    if cls is None:
        import transformers

        cls = transformers.AutoModelForCausalLM
    share = Share(
        name, timeout, replace, {"pool": pool, "mode": mode, "gid": gid, "transient": transient, "wait": wait}
    )
    with share, _hook.replaced_by(share.load):
        made = cls.from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        share.finish(made[0] if isinstance(made, tuple) else made)
    return made
