#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The Python package and its tests pass ruff; the package passes mypy --strict, and its stubs say what
# the extension has. All three come from "make venv", and the package from "make python-core".
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
tools=$PWD/$build/venv/bin
folder=$build/python
allowed=$PWD/tests/lint/stubtest.txt

if [ ! -x "$tools/ruff" ] || [ ! -f "$folder/gpushm/_core.abi3.so" ]; then
	echo "python: skipped (make venv python-core has not been run)"
	exit 0
fi
bad=0
"$tools/ruff" check -q --no-cache --config client/python/pyproject.toml client/python tests/python || bad=1
cd "$folder" || exit 1
config=$OLDPWD/client/python/pyproject.toml
"$tools/mypy" --strict --no-error-summary --config-file "$config" --cache-dir ../mypy -p gpushm || bad=1
MYPY_CACHE_DIR=../mypy "$tools/python" -B -m mypy.stubtest --allowlist "$allowed" --ignore-unused-allowlist \
	--mypy-config-file "$config" --concise gpushm._core || bad=1
exit $bad
