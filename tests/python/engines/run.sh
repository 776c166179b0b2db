#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make check-engines: tests with the Python files of vLLM, of the newest version and the one before, without what it has
# for GPUs. tests/python/engines/run.sh BUILD [pytest's options]. ENGINES=skip, or no package index: says so, and runs nothing.
#   run.sh BUILD files     only gets the files: BUILD/engines
#   run.sh BUILD pack      BUILD/engines.tar.gz, for a machine with a GPU and PyTorch, and without a network
set -eu
cd "$(dirname "$0")/../../.."
build=$(realpath "$1")
shift
read -ra versions <<<"${VLLM:-0.33.0 0.32.0}"
python=$build/venv-engines/bin/python

skipped() {
	echo "skipped: engines: $1"
	exit 0
}

# The wheel has 336 MB, of which 60 are Python files.
files_of() {
	local to=$build/engines/vllm-$1
	[ ! -d "$to" ] || return 0
	rm -rf "$build/engines/wheel"
	"$python" -m pip download -q --disable-pip-version-check --no-deps -d "$build/engines/wheel" "vllm==$1" || return 1
	"$python" - "$build"/engines/wheel/*.whl "$to.part" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wanted = [n for n in wheel.namelist() if n.endswith((".py", ".json")) or ".dist-info/" in n]
    wheel.extractall(sys.argv[2], wanted)
END
	mv "$to.part" "$to"
	rm -rf "$build/engines/wheel"
}

[ "${ENGINES:-}" != skip ] || skipped "ENGINES=skip"
started=$SECONDS
if [ ! -e "$build/venv-engines/ready" ]; then
	python3 -m venv "$build/venv-engines" || skipped "python3 -m venv failed"
	"$build/venv-engines/bin/pip" install -q --disable-pip-version-check -r tests/requirements/venv-engines.txt ||
		skipped "pip could not install tests/requirements/venv-engines.txt: is there a network?"
	touch "$build/venv-engines/ready"
fi
for v in "${versions[@]}"; do
	files_of "$v" || skipped "pip could not get vllm $v"
done
echo "$build/venv-engines and engines: $(du -shc "$build/venv-engines" "$build/engines" | awk 'END { print $1 }'), $((SECONDS - started)) s"
case ${1:-} in
files) exit 0 ;;
pack)
	tar -C "$build" --exclude __pycache__ -czf "$build/engines.tar.gz" "engines/vllm-${versions[0]}"
	ls -l "$build/engines.tar.gz"
	exit 0
	;;
esac
status=0
for v in "${versions[@]}"; do
	echo "vllm $v"
	BUILD=$build PYTHONPATH=$build/python:$build/engines/vllm-$v "$python" -B -m pytest -c tests/python/gpu/pytest.ini \
		--rootdir tests/python --confcutdir tests/python tests/python/engines "$@" || status=$?
done
exit $status
