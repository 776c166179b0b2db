#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What takes longer of packages: a build as package builders make it, with its tests; packages for RPM; a second build of all
# that a release has, with the same bytes; README's commands in a root that has almost nothing; installation, upgrades and purge under systemd.
#   tests/packages/all.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
results=$(realpath "$build")/results
run() { tests/run.sh --results "$results" packages "$@" || bad=1; }
bad=0
rm -f "$results"
DEB_BUILD_OPTIONS=nocheck make BUILD="$build" deb || exit 1
run "tests/packages/lint.sh $build --built"
for test in rpm arm reproducible upgrade earlier chroot; do run "tests/packages/$test.sh $build"; done
run BARE=deb tests/bare_root.sh
tests/run.sh --sum "$results" && exit $bad
