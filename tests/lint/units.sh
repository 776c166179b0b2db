#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs systemd-analyze verify on the units as they are installed, with /bin/true as the daemon. Any
# output is an error, because systemd-analyze warns of unknown keys and still succeeds. Then checks
# that the catalogue of the journal explains each message id of daemon/util/log.h.
set -u
cd "$(dirname "$0")/../.." || exit 1

bad=0
sed -n 's/^#define LOG_ID_.*"\([0-9a-f]\{32\}\)"$/\1/p' daemon/util/log.h | {
	missing=0
	while read -r id; do
		grep -q "^-- $id$" systemd/gpushm.catalog && continue
		echo "systemd/gpushm.catalog: nothing about message $id of daemon/util/log.h"
		missing=1
	done
	exit $missing
} || bad=1

command -v systemd-analyze >/dev/null || {
	echo "units: not verified (no systemd-analyze)"
	exit $bad
}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s /bin/true "$folder/bin/gpushmd"
ln -s /bin/true "$folder/bin/gpushm-exporter"
sed "s|@bindir@|$folder/bin|g" systemd/gpushmd.service.in >"$folder/gpushmd.service"
sed "s|@bindir@|$folder/bin|g" systemd/gpushm-exporter.service.in >"$folder/gpushm-exporter.service"
cp systemd/gpushmd.socket "$folder/"
said=$(systemd-analyze verify --man=no "$folder/gpushmd.service" "$folder/gpushmd.socket" \
	"$folder/gpushm-exporter.service" 2>&1) || bad=1
if [ -n "$said" ]; then
	echo "$said"
	bad=1
fi
exit $bad
