# SPDX-License-Identifier: MIT
"""share(): the line of a worker that has equals. It attaches to a module, or builds and publishes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch

from .. import _core, _libraries, _models, _own_daemon
from ._attach import attach

if TYPE_CHECKING:
    from .._typing import Device

Module = TypeVar("Module", bound="torch.nn.Module")


def share(
    name: str,
    build: Callable[[], Module],
    *,
    replace: bool = False,
    pool: str | None = None,
    device: Device | str | torch.device | None = "current",
    writable: str | Iterable[str] = (),
    fingerprint: Mapping[str, str] | None = None,
    transient: bool = False,
    timeout: float | None = None,
) -> Module:
    """The module of that name, in memory that all processes of the machine share.

        model = gpushm.torch.share("llama-v2", build)

    The first process that asks for the name calls build(), which makes the module with its weights, and publishes it.
    The others wait for that and attach, and so do those that start later: for them build() makes the module under
    torch.device("meta"), where weights take no memory. If build() can't work so, it is called as usual, its memory is
    given back, and a RuntimeWarning says so. If the process that builds dies, another one builds.

    Where no daemon runs, this starts one of this user, and says so on stderr.

    The module stays when all processes have ended, until `gpushmctl rm NAME`; with transient=True it ends with the last
    one. So give new weights a new name, or say what they are, as fingerprint={"weights": "v2"}: a module of another
    fingerprint, class or configuration is a LayoutError or, with replace=True, is replaced by what build() makes.

    pool, transient: as for publish(). device, writable, fingerprint: as for attach(). timeout: seconds to wait for the
    process that builds, None for ever. Errors: those of build(), publish() and attach(), and DaemonGone.
    """
    from . import publish  # that module imports this one

    attached: Callable[..., Module] = partial(attach, name, device=device, writable=writable, fingerprint=fingerprint)
    _own_daemon.ensure()
    end = None if timeout is None else time.monotonic() + timeout
    other = None  # a buffer that does not fit
    while True:
        there = _models.published(name)
        if there not in (None, other):
            try:
                return _made(build, attached)
            except (_core.NotFound, _core.NotPublished):
                continue
            except _core.LayoutError:
                if not replace:
                    raise
                other = there
        with _models.turn(name, end):
            if _models.published(name) not in (None, other):
                continue
            module = build()
            # A transient buffer ends with its last user.
            with publish(
                name, module, replace=replace, pool=pool, fingerprint=fingerprint, transient=transient, digest=False
            ):
                made = attached(module)
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # else PyTorch keeps what build() has allocated from other processes
            return made


def _made(build: Callable[[], Module], attached: Callable[..., Module]) -> Module:
    try:
        return attached(build)
    except _core.Error:
        raise
    except Exception as error:
        text = (
            f'build() does not work under torch.device("meta") ({type(error).__name__}: {error}). It is called as '
            "usual, and its memory is given back when the module is attached: that takes the time and the memory of a "
            "load."
        )
        _libraries.say(("share", text), text, RuntimeWarning, 2)
    return attached(build())
