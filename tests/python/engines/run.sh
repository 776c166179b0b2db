#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make check-engines: tests with the Python files of vLLM and SGLang, of the newest version and the one before, without
# what they have for GPUs. tests/python/engines/run.sh BUILD [pytest's options]. ENGINES=skip, or no package index: says so, and runs nothing.
#   run.sh BUILD files     only gets the files: BUILD/engines
#   run.sh BUILD pack      BUILD/engines.tar.gz, for a machine with a GPU and PyTorch, and without a network
set -eu
cd "$(dirname "$0")/../../.."
build=$(realpath "$1")
shift
read -ra versions <<<"${ENGINE_VERSIONS:-vllm-0.33.0 vllm-0.32.0 sglang-0.5.23 sglang-0.5.22}"
python=$build/venv-engines/bin/python

skipped() {
	echo "skipped: engines: $1"
	exit 0
}

# vLLM's wheel has 336 MB, of which 60 are Python files. SGLang's kernels need their sources to be imported.
files_of() {
	local to=$build/engines/$1
	[ ! -d "$to" ] || return 0
	rm -rf "$build/engines/wheel"
	"$python" -m pip download -q --disable-pip-version-check --no-deps -d "$build/engines/wheel" "${1%-*}==${1##*-}" || return 1
	"$python" - "$build"/engines/wheel/*.whl "$to.part" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    kept = (".py", ".json", ".cuh", ".cu", ".h")
    wanted = [n for n in wheel.namelist() if n.endswith(kept) or ".dist-info/" in n]
    wheel.extractall(sys.argv[2], [n for n in wanted if "/multimodal_gen/" not in n])
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
	files_of "$v" || skipped "pip could not get $v"
done
echo "$build/venv-engines and engines: $(du -shc "$build/venv-engines" "$build/engines" | awk 'END { print $1 }'), $((SECONDS - started)) s"
case ${1:-} in
files) exit 0 ;;
pack)
	tar -C "$build" --exclude __pycache__ -czf "$build/engines.tar.gz" "engines/${versions[0]}"
	ls -l "$build/engines.tar.gz"
	exit 0
	;;
esac
status=0
for v in "${versions[@]}"; do
	echo "$v"
	# On a machine without a GPU, SGLang imports its rotary embedding's kernel from vLLM.
	BUILD=$build ENGINE=${v%-*} PYTHONPATH=$build/python:$build/engines/$v:$build/engines/vllm-0.33.0 "$python" -B -m pytest \
		-c tests/python/gpu/pytest.ini --rootdir tests/python --confcutdir tests/python tests/python/engines "$@" || status=$?
done
exit $status
