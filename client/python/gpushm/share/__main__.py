# SPDX-License-Identifier: MIT
"""python -m gpushm.share [--name PREFIX] [--pool POOL] -- COMMAND..."""

from __future__ import annotations

import argparse
import os
import sys

from .. import _core, _models, _own_daemon


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gpushm.share",
        usage="%(prog)s [-h] [--name PREFIX] [--pool POOL] -- COMMAND...",
        description="Runs a program whose processes share the weights that they load. See help(gpushm.share).",
    )
    parser.add_argument("--name", metavar="PREFIX", default="~/share", help="start of its buffers' names (%(default)s)")
    parser.add_argument("--pool", help="a host pool, for weights on the CPU")
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the program and its arguments")
    found = parser.parse_args()
    if found.command[:1] == ["--"]:
        del found.command[0]
    if not found.command:
        parser.error("there is no COMMAND to run")
    _own_daemon.ensure()
    found.name = found.name.rstrip("/")
    try:
        _models.published(f"{found.name}/name")
    except _core.BadArgument as error:
        parser.error(f"--name: {error.strerror}")
    pools = [pool.name for pool in _core.pools() if pool.kind == "host"]
    if found.pool and found.pool not in pools:
        parser.error(f"--pool: {found.pool!r} is no host pool; there are: {', '.join(pools) or 'none'}")
    return found


def main() -> None:
    """Becomes the program."""
    try:
        options = _options()
    except KeyboardInterrupt:
        sys.exit(130)
    except _core.Error as error:
        sys.exit(f"gpushm.share: {error.strerror}")
    here = os.path.dirname(os.path.abspath(__file__))
    env = {"GPUSHM_SAFETENSORS_FALLBACK": "1"} | os.environ | {"GPUSHM_SHARE_NAME": options.name}
    env["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    if options.pool:
        env["GPUSHM_SAFETENSORS_POOL"] = options.pool
    try:
        os.execvpe(options.command[0], options.command, env)
    except OSError as error:
        sys.exit(f"gpushm.share: {options.command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
