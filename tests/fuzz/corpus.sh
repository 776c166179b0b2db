#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The inputs that a fuzzer starts from: tests/fuzz/corpus/TARGET.tar.xz, an archive for each target.
#   tests/fuzz/corpus.sh add TARGET FILE...      puts files into the archive; one of the same name is replaced
#   tests/fuzz/corpus.sh unpack TARGET FOLDER    makes FOLDER anew
#   tests/fuzz/corpus.sh pack TARGET FOLDER      makes the archive anew: to remove inputs, unpack, remove them, pack
# The same inputs make the same bytes: names are sorted, and no time, owner or mode gets in.
set -eu
command=$1
target=$2
shift 2
archive=$(dirname "$0")/corpus/$target.tar.xz

unpack() { # FOLDER
	rm -rf "$1"
	mkdir -p "$1"
	tar -C "$1" --no-same-owner -xJf "$archive"
}

pack() { # FOLDER
	(cd "$1" && find . -type f -printf '%P\0' | LC_ALL=C sort -z |
		tar --null -T - --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644 --format=ustar -c) |
		xz -9e -T1 >"$archive.new"
	mv "$archive.new" "$archive"
}

add() { # FILE...
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	if [ -e "$archive" ]; then unpack "$folder"; fi
	cp -- "$@" "$folder"
	pack "$folder"
}

case $command in
add | unpack | pack) "$command" "$@" ;;
*)
	echo "corpus.sh: $command: not add, unpack or pack" >&2
	exit 2
	;;
esac
