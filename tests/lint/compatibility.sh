#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Each row of tests/compatibility.txt has its source, and gpushm(7) says the same as those rows.
set -u
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/compatibility.py check
