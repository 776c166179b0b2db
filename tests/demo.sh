#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The demo, as a test: it must end with its last line, and leave no process and no folder.
#   tests/demo.sh BUILD
set -u
build=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TMPDIR=$folder client/examples/demo.sh "$build" >"$folder/out" 2>&1
status=$?
cat "$folder/out"
failures=0
[ $status -eq 0 ] || failures=1
[ "$(tail -n 1 "$folder/out")" = "demo: ok" ] || failures=1
[ "$(ls "$folder")" = out ] || { failures=1; ls "$folder"; }
if pgrep -f "$folder" >/dev/null; then failures=1; fi
echo "$((100 * (1 - failures)))%: Checks: 1, Failures: $failures, Errors: 0"
exit $failures
