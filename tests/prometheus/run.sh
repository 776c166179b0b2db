#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Tests the metrics with Prometheus itself: promtool checks the text, the alerts and their tests, and
# a Prometheus scrapes gpushm-exporter and evaluates each expression of the alerts and the dashboard.
# `make deps` unpacks both programs into the build folder; without them this test is skipped.
#   tests/prometheus/run.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
export PATH=$PATH:$PWD/$build/prometheus/usr/bin

skip() {
	echo "skipped: $1"
	exit 0
}
command -v promtool >/dev/null || skip "needs Prometheus (make deps)"
[ -x "$build/gpushm-exporter" ] || skip "needs gpushm-exporter (libmicrohttpd)"
# With the fake driver there are pools of all kinds.
if [ -f "$build/fakecuda/libcuda.so.1" ]; then
	export LD_LIBRARY_PATH=$PWD/$build/fakecuda
fi
exec python3 -B tests/prometheus/scrape.py "$build"
