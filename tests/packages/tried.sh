#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Tries the files of a release in a root that has almost nothing, as people use them: BARE=release tests/bare_root.sh calls
# it in there, as root. Each prints what it does, and fails at the first step that does.
#   tried.sh sums FOLDER     the checksums are those of the files, and each file has one
#   tried.sh deb FOLDER      the packages install with what they ask for, and processes share an array
#   tried.sh wheel FOLDER    into an empty environment, without a package index: the same
#   tried.sh sdist FOLDER    first it says what is missing; with that it builds, and runs
#   tried.sh source FOLDER   the archive builds with the packages that the README names
set -eux
folder=$2

# shares PYTHON BIN: a daemon of BIN, an array of one process that another one reads, and a reply to gpushmctl.
shares() {
	local daemon
	export GPUSHM_SOCKET=/tmp/tried.sock
	printf '[pool host]\nkind=host\nsize=64M\n' >/tmp/tried.conf
	"$2gpushmd" --config /tmp/tried.conf --socket $GPUSHM_SOCKET &
	daemon=$!
	timeout 20 bash -c "until $2gpushmctl status --quiet; do sleep 0.1; done"
	"$1" -c 'import gpushm
with gpushm.create("tried", (4,), "uint8") as a:
    memoryview(a)[:] = b"abcd"
    a.publish()'
	[ "$("$1" -c 'import gpushm; print(bytes(memoryview(gpushm.open("tried"))))')" = "b'abcd'" ]
	kill $daemon
	wait $daemon || true
}

[ "$1" = sums ] || apt-get -q update
case $1 in
sums)
	cd "$folder"
	sha256sum --quiet -c SHA256SUMS
	[ "$(find . -type f ! -name 'SHA256SUMS*' | wc -l)" = "$(wc -l <SHA256SUMS)" ]
	;;
deb)
	apt-get -qy install --no-install-recommends "$folder"/{gpushmd,gpushm-tools,gpushm-exporter,gpushm-relay,libgpushm1,libgpushm-load1,python3-gpushm}_*.deb
	for program in gpushmd gpushmctl gpushm-exporter gpushm-relay; do $program --version; done
	shares /usr/bin/python3 /usr/bin/
	apt-get -qy purge gpushmd gpushm-tools gpushm-exporter gpushm-relay libgpushm1 libgpushm-load1 python3-gpushm
	;;
wheel)
	apt-get -qy install --no-install-recommends python3-venv
	python3 -m venv /tmp/wheel
	/tmp/wheel/bin/pip install -q --no-index "$folder"/gpushm-*"$(uname -m)".whl
	shares /tmp/wheel/bin/python /tmp/wheel/bin/
	;;
sdist)
	apt-get -qy install --no-install-recommends python3-venv
	python3 -m venv /tmp/sdist
	if /tmp/sdist/bin/pip install -q "$folder"/gpushm-*[0-9].tar.gz 2>/tmp/said; then exit 1; fi
	packages=$(sed -n 's/.*install what these Debian packages hold: //p' /tmp/said)
	[ -n "$packages" ]
	# shellcheck disable=SC2086 # words
	apt-get -qy install --no-install-recommends $packages
	/tmp/sdist/bin/pip install -q "$folder"/gpushm-*[0-9].tar.gz
	shares /tmp/sdist/bin/python /tmp/sdist/bin/
	;;
source)
	mkdir /tmp/source
	tar -xzf "$folder"/gpushm-*-git.tar.gz -C /tmp/source --strip-components=1
	cd /tmp/source
	make -s deps demo
	;;
esac
