#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs systemd-analyze verify on the units as they are installed, with /bin/true as the daemon. Any
# output is an error, because systemd-analyze warns of unknown keys and still succeeds. Then checks
# that the catalogue of the journal and gpushm-operations(7) explain each message id of
# daemon/util/log.h, that each warning and error has one, and that this page explains each alert.
set -u
cd "$(dirname "$0")/../.." || exit 1

bad=0
sed -n 's/^#define LOG_ID_.*"\([0-9a-f]\{32\}\)"$/\1/p' daemon/util/log.h | {
	missing=0
	while read -r id; do
		grep -q "^-- $id$" systemd/gpushm.catalog || {
			echo "systemd/gpushm.catalog: nothing about message $id of daemon/util/log.h"
			missing=1
		}
		grep -qx ".It ${id#0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a}" man/gpushm-operations.7 || {
			echo "man/gpushm-operations.7: nothing about message $id of daemon/util/log.h"
			missing=1
		}
	done
	exit $missing
} || bad=1

# And the other way round: no entry and no name without the other, none twice, each of them used.
{
	sed -n 's/^-- \([0-9a-f]\{32\}\)$/\1/p' systemd/gpushm.catalog | sort | uniq -d | sed 's/^/twice: /'
	sed -n 's/^-- \([0-9a-f]\{32\}\)$/\1/p' systemd/gpushm.catalog | while read -r id; do
		grep -q "^#define LOG_ID_.*\"$id\"" daemon/util/log.h || echo "no LOG_ID_ of daemon/util/log.h: $id"
	done
	sed -n 's/^#define \(LOG_ID_[A-Z_]*\) .*/\1/p' daemon/util/log.h | while read -r name; do
		git grep -qw "$name" -- 'daemon/*.c' || echo "used nowhere: $name"
	done
	# What an administrator can do nothing about needs no message id; there are few such warnings.
	git grep -n 'log_\(error\|warning\)(' -- 'daemon/*.c' |
		grep -v 'while cleaning up; going on without it\|more lines about many users'
} | sed 's/^/systemd\/gpushm.catalog: /' | {
	! grep .
} || bad=1

sed -n 's/^ *- alert: //p' systemd/prometheus/*.rules.yml | while read -r alert; do
	grep -qx ".It $alert" man/gpushm-operations.7 || echo "man/gpushm-operations.7: nothing about the alert $alert"
done | grep . && bad=1

command -v systemd-analyze >/dev/null || {
	echo "units: not verified (no systemd-analyze)"
	exit $bad
}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s /bin/true "$folder/bin/gpushmd"
ln -s /bin/true "$folder/bin/gpushm-exporter"
ln -s /bin/true "$folder/bin/gpushm-relay"
sed "s|@bindir@|$folder/bin|g" systemd/gpushmd.service.in >"$folder/gpushmd.service"
sed "s|@bindir@|$folder/bin|g" systemd/gpushm-exporter.service.in >"$folder/gpushm-exporter.service"
sed "s|@bindir@|$folder/bin|g" systemd/gpushm-relay.service.in >"$folder/gpushm-relay.service"
cp systemd/gpushmd.socket systemd/gpushm-relay.socket "$folder/"
said=$(systemd-analyze verify --man=no "$folder/gpushmd.service" "$folder/gpushmd.socket" \
	"$folder/gpushm-exporter.service" "$folder/gpushm-relay.service" "$folder/gpushm-relay.socket" 2>&1) || bad=1
if [ -n "$said" ]; then
	echo "$said"
	bad=1
fi
exit $bad
