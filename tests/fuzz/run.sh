#!/bin/sh
# SPDX-License-Identifier: MIT
#
# One fuzzer, from its corpus and from what it found before: tests/fuzz/run.sh BUILD fuzz_X SECONDS.
# What it finds stays in BUILD/fuzz/found.
set -eu
found=$1/fuzz/found
corpus=$1/fuzz/corpus/${2#fuzz_}
mkdir -p "$found/$2"
tests/fuzz/corpus.sh unpack "${2#fuzz_}" "$corpus"
exec "$1/fuzz/bin/$2" -max_total_time="$3" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -verbosity=0 \
	-artifact_prefix="$found/$2-" "$found/$2" "$corpus"
