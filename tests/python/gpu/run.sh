#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A part of the package's tests on a GPU: tests/python/gpu/run.sh BUILD PART. Each part is a process of its own, so that
# a library that is missing, hangs or crashes stops no other.
set -eu
cd "$(dirname "$0")/../../.."
build=$(realpath "$1")
part=$2
# The package and its libraries from BUILD come before the machine's own libraries.
export BUILD=$build PYTHONPATH=$build/python:$build/deps/python PYTHONDONTWRITEBYTECODE=1
case $part in
numba-kernels) tests=(tests/python/gpu/test_numba.py) ;;
numba-suites) tests=(tests/python/numba/test_suites.py tests/python/numba/test_manager.py) ;;
models)
	tests=()
	for t in tests/python/models/test_*.py; do
		case $t in *_memory.py | *_examples.py | *_transformers.py | *_from_pretrained.py | *_documents.py) ;; *) tests+=("$t") ;; esac
	done
	;;
models-examples) tests=(tests/python/models/test_model_examples.py tests/python/models/test_documents.py) ;;
transformers) tests=(tests/python/models/test_transformers.py tests/python/models/test_from_pretrained.py) ;;
torch-memory) tests=(tests/python/models/test_memory.py) ;;
cuda-core-resource) tests=(tests/python/gpu/test_cuda_core.py) ;;
cupy-allocator) tests=(tests/python/gpu/test_cupy.py) ;;
streams) tests=(tests/python/test_streams.py tests/python/test_stream_graphs.py tests/python/gpu/test_stream_order.py) ;;
handles) tests=(tests/python/test_handles.py tests/python/test_watch.py) ;;
engines)
	# vLLM's Python files, and what they import that the machine lacks.
	[ -d "$build/engines/vllm" ] || { echo "skipped: engines: $build/engines has no vllm" && exit 0; }
	tests=(tests/python/engines)
	export ENGINE=vllm PYTHONPATH=$PYTHONPATH:$build/engines
	;;
core)
	tests=()
	for t in tests/python/test_*.py; do
		case $t in *_handles.py | *_watch.py | *_streams.py | *_stream_graphs.py) ;; *) tests+=("$t") ;; esac
	done
	;;
*) # A library, as tests/python/gpu/libraries.py names it.
	tests=(tests/python/gpu/test_libraries.py tests/python/gpu/test_two_gpus.py)
	[ "$part" != torch ] || tests+=(tests/python/gpu/test_torch.py)
	export GPUSHM_LIBRARY=$part
	;;
esac
[ ${#tests[@]} -gt 0 ] || exit 0
status=0
# In a session of its own, all of which ends with it: daemons and workers of a part that aborts or hangs, too.
# A shell starts what is in the background with SIGINT ignored.
setsid env --default-signal=INT,QUIT "${PYTHON:-python3}" -m pytest -c tests/python/gpu/pytest.ini --rootdir tests/python --confcutdir tests/python \
	-s --maxfail=12 "${tests[@]}" &
session=$!
(
	# It may outlive this script, and must not keep its output open.
	sleep "${LIMIT:-200}" >/dev/null
	echo "$part: not done in ${LIMIT:-200} s"
	kill -KILL -- -$session
) 2>/dev/null &
clock=$!
wait $session || status=$?
kill $clock 2>/dev/null || true
kill -KILL -- -$session 2>/dev/null || true
# 5: nothing was to be run, since the library is not here, which pytest has said.
if [ "$status" -eq 5 ]; then
	echo "skipped: $part: not here"
	status=0
fi
exit $status
