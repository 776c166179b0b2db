# SPDX-License-Identifier: MIT
"""python -m gpushm.share [--name PREFIX] [--pool POOL] -- COMMAND..."""

from __future__ import annotations

import argparse
import os
import sys

from .. import _core, _own_daemon


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gpushm.share",
        description="Runs a program whose processes share the weights that they load. See help(gpushm.share).",
    )
    parser.add_argument("--name", metavar="PREFIX", default="~/share", help="of buffers that it makes (%(default)s)")
    parser.add_argument("--pool", help="of kind host, for weights on the CPU")
    parser.add_argument("command", metavar="COMMAND", nargs="+", help="the program and its arguments")
    found = parser.parse_args()
    _own_daemon.ensure()
    if found.pool and found.pool not in [pool.name for pool in _core.pools() if pool.kind == "host"]:
        parser.error(f"there is no pool {found.pool!r} of kind host: gpushmctl pools shows the pools")
    return found


def main() -> None:
    """Becomes the program."""
    try:
        options = _options()
    except _core.Error as error:
        sys.exit(f"gpushm.share: {error.strerror} {' '.join(getattr(error, '__notes__', []))}".rstrip())
    here = os.path.dirname(os.path.abspath(__file__))
    env = {"GPUSHM_SAFETENSORS_FALLBACK": "1"} | os.environ | {"GPUSHM_SHARE_NAME": options.name.rstrip("/")}
    env["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    if options.pool:
        env["GPUSHM_SAFETENSORS_POOL"] = options.pool
    try:
        os.execvpe(options.command[0], options.command, env)
    except OSError as error:
        sys.exit(f"{options.command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
