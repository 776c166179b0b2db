#!/bin/sh
# SPDX-License-Identifier: MIT
#
# mypy --strict and pyright find nothing wrong in the Python of the pages, in the examples, and in
# tests/python/types, where they find every mistake that is marked. pyright finds that each public
# name of the package has a type. These tools come from "make venv", the package from "make
# python-core".
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
tools=$build/venv/bin
if [ ! -x "$tools/pyright" ] || [ ! -f "$build/python/gpushm/_core.abi3.so" ]; then
	echo "types: skipped (make venv python-core has not been run)"
	exit 0
fi
folder=$build/types
rm -rf "$folder"
mkdir -p "$folder"

# snippets README FILE: all of its Python, except what needs a library that may not be here.
snippets() {
	awk '/^```python$/ { getline; on = !/^# needs:/ } /^```$/ { on = 0 } on' "$1" >"$folder/$2"
	[ -s "$folder/$2" ] || { echo "types: $1 has no Python" && exit 1; }
}
snippets README.md readme.py
snippets client/python/README.md tutorial.py
snippets client/python/RULES.md rules.py
snippets client/lib/stream/README.md streams.py
cp client/python/examples/*.py tests/python/types/*.py "$folder"
# Without Ray nobody knows what its decorators make of a function or a class.
rm "$folder"/ray_*.py

cat >"$folder/mypy.ini" <<'EOF'
[mypy]
strict = true
[mypy-cuda.*,numba.*,ml_dtypes.*,cupy.*,torch.*,jax.*,safetensors.*,transformers.*,distributed.*]
ignore_missing_imports = true
EOF
# The examples use libraries that may be missing: there pyright is not strict.
cat >"$folder/pyrightconfig.json" <<EOF
{
	"include": ["."], "extraPaths": ["$build/python"], "pythonVersion": "3.11",
	"strict": ["readme.py", "tutorial.py", "rules.py", "streams.py", "calls.py"],
	"reportMissingImports": false, "reportUnnecessaryTypeIgnoreComment": "error"
}
EOF

bad=0
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1 # that there is a newer pyright
cd "$folder" || exit 1
MYPYPATH=$build/python "$tools/mypy" --no-error-summary --config-file mypy.ini --cache-dir ../mypy ./*.py || bad=1
"$tools/pyright" --pythonpath "$tools/python" -p . >said || { cat said && bad=1; }
# cuda.core and CuPy may be missing, and with them the types of what is made of theirs.
PYTHONPATH=$build/python "$tools/pyright" --pythonpath "$tools/python" --ignoreexternal --verifytypes gpushm >said
awk '/^Symbols used/ { on = 1; next } /^Symbols exported/ { on = 0; found = 1 }
	on && /^[^ ]/ { name = $1 } on && NF && name !~ /^gpushm\.(cuda_core|cupy|numba\._manager)\./ { print; bad = 1 }
	END { exit bad || !found }' said || bad=1
exit $bad
