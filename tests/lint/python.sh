#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The package's modules import each other without a cycle, in functions too. The package and its tests
# pass ruff; the package passes mypy --strict, and its stubs say what the extension has. These tools
# come from "make venv", and the package from "make python-core".
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
tools=$PWD/$build/venv/bin
folder=$build/python
allowed=$PWD/tests/lint/stubtest.txt

bad=0
# A name in an import statement is a module of the package if it has a file. tsort(1) fails on a cycle.
modules=client/python/gpushm
for file in "$modules"/*.py; do
	sed -n 's/^ *from \.\(_[a-z_]*\) import.*/\1/p; s/^ *from \. import //p' "$file" | tr -s ', ' '\n' |
		while read -r name; do
			[ ! -f "$modules/$name.py" ] || echo "$(basename "$file" .py) $name"
		done
done | tsort >/dev/null || bad=1

if [ ! -x "$tools/ruff" ] || [ ! -f "$folder/gpushm/_core.abi3.so" ]; then
	echo "python: skipped (make venv python-core has not been run)"
	exit "$bad"
fi
"$tools/ruff" check -q --no-cache --config client/python/pyproject.toml client/python tests/python tests/nodes tests/*.py systemd || bad=1
cd "$folder" || exit 1
config=$OLDPWD/client/python/pyproject.toml
"$tools/mypy" --strict --no-error-summary --config-file "$config" --cache-dir ../mypy -p gpushm || bad=1
MYPY_CACHE_DIR=../mypy "$tools/python" -B -m mypy.stubtest --allowlist "$allowed" --ignore-unused-allowlist \
	--mypy-config-file "$config" --concise gpushm._core || bad=1
exit $bad
