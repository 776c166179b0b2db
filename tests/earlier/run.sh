#!/bin/bash
# SPDX-License-Identifier: MIT
#
# This version and the one before it, which is built from its commit into BUILD/0.2: each one's programs with the daemon of
# the other one, streams between both, and this daemon behind that one. Prints a line like Check's.
#   run.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
build=$(realpath "$1")
commit=f84341b26c3b3e7d25e0f6cf4b32c5815c3f2e4c
tree=$build/0.2
declare -A at=([old]=$tree/build [new]=$build)

# A clone without history has no such commit, and nothing is fetched.
GIT_NO_LAZY_FETCH=1 git cat-file -e "$commit^{commit}" 2>/dev/null || {
	echo "skipped: the commit of version 0.2, ${commit::8}, is not in this clone"
	exit 0
}

# Host pools alone. What this make was told is not for that one.
build_old() {
	[ ! -e "$tree/ready-$commit" ] || return 0
	rm -rf "$tree" && mkdir -p "$tree" && git archive "$commit" | tar -x -C "$tree" || return 1
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u BUILD -u V make -s -C "$tree" -j"$(nproc)" CUDA_INCLUDE= \
		build/{gpushmd,gpushmctl,libgpushm.so,libgpushm-load.so} ${python:+python-core} && touch "$tree/ready-$commit"
}

build_sides() {
	local v
	local -A headers=([old]="$tree/client" [new]=client)
	for v in old new; do
		cc -O1 -D_GNU_SOURCE -I"${headers[$v]}" -I"${at[$v]}/gen" -o "$stage/side-$v" tests/earlier/side.c \
			-L"${at[$v]}" -lgpushm -Wl,-rpath,"${at[$v]}" || return 1
	done
}

# ---- a daemon, and programs of a version ----

export GPUSHM_SOCKET=$stage/socket
ctl() { timeout 60 "${at[$1]}/gpushmctl" "${@:2}"; }
side() { timeout 60 "$stage/side-$1" "$GPUSHM_SOCKET" "${@:2}"; }
soon() {
	for _ in {1..600}; do
		if "$@"; then return; fi
		sleep 0.1
	done
	return 1
}

# start PROGRAM [OPTION]
start() {
	"$@" --config "$stage/conf" --socket "$GPUSHM_SOCKET" 2>>"$stage/log" &
	started=$!
	soon ctl new status >/dev/null 2>&1
}
stop() { kill "$started" && wait "$started"; }
end() {
	kill "${started-}" 2>/dev/null
	wait
	rm -rf "$stage"
}
trap end EXIT
printf '[pool host]\nkind=host\nsize=64M\n' >"$stage/conf"

# ---- two programs at one daemon: ONE OTHER, which are versions ----

buffer_is_shared() {
	side "$1" make b && side "$2" wait b && side "$2" check b && ctl "$2" stat b && side "$2" unlink b
}

file_is_shared() {
	ctl "$1" put --attr=k=v tests/data/w1.npy m/w && [ "$(ctl "$2" ls --names-only)" = m/w ] &&
		ctl "$2" stat m/w | grep -q 'k = v' && ctl "$2" wait m/w && ctl "$2" mv m/w m/v &&
		ctl "$2" get m/v "$stage/w.npy" && cmp "$stage/w.npy" tests/data/w1.npy && ctl "$2" rm m/v &&
		[ -z "$(ctl "$1" ls --names-only)" ]
}

# Each of them sees what the other one does.
watch_sees_it() {
	local watcher
	side "$1" watch b >"$stage/watch" &
	watcher=$!
	soon grep -q watching "$stage/watch" && side "$2" make b && side "$2" unlink b && wait $watcher
}

stream_is_read() {
	local producer
	side "$1" produce s &
	producer=$!
	side "$2" follow s && wait $producer
}

stream_is_followed_by_ctl() {
	local producer
	side "$1" produce s &
	producer=$!
	[ "$(ctl "$2" follow --share --timeout=60s s | wc -l)" -ge 50 ] && wait $producer
}

all_is_told() {
	ctl "$1" status && ctl "$1" status --json=short && ctl "$1" pools && ctl "$1" ls && ctl "$1" streams && ctl "$1" metrics
}

# What the daemon does not know is refused, and the connection stays good.
memory_stays() { side old make b && side new memory b && side new check b && side old unlink b; }

# The handle of an array, as pickle has it. 0.3 does not read that of 0.2, and says so.
python() {
	PYTHONPATH=${at[$1]}/python timeout 60 "$build/venv/bin/python" -B -c "$2" "$stage/pickle"
}
pickle_is_refused() {
	[ "$1" = old ] || return 0
	# shellcheck disable=SC2016 # Python's
	python "$1" '
import pickle, subprocess, sys, gpushm
with gpushm.create("p", 4, "int32") as a:
    a[...] = 7
    a.publish()
    with open(sys.argv[1], "wb") as f:
        pickle.dump([a.handle(), a[1:3].handle(), a.buffer.handle()], f)' && python "$2" '
import pickle, sys, gpushm
with open(sys.argv[1], "rb") as f:
    try:
        pickle.load(f)
    except ValueError as e:
        assert "0.2 has pickled this handle" in str(e), e
    else:
        sys.exit("it was read")' &&
		ctl "$2" rm p
}

at_one_daemon() {
	local pair
	check "$1: it starts" start "${at[$1]}/gpushmd" --no-keeper
	check "$1: the other version asks for all" all_is_told "$2"
	for pair in "old new" "new old"; do
		# shellcheck disable=SC2086 # two words
		for what in buffer_is_shared file_is_shared watch_sees_it stream_is_read stream_is_followed_by_ctl ${python:+pickle_is_refused}; do
			check "daemon $1, $pair: ${what//_/ }" $what $pair
		done
	done
	[ "$1" = new ] || check "daemon $1: memory stays" memory_stays
	check "$1: it stops" stop
}

# ---- this daemon behind the other one, over that one's keeper ----

daemon() { ctl new status --json=short | grep -o '"pid": *[0-9]*' | grep -o '[0-9]*$'; }
runs() { cmp -s "/proc/$(daemon 2>/dev/null)/exe" "${at[$1]}/gpushmd"; }

fill() {
	side old make b && ctl old put --shared --mode=640 --attr=k=v tests/data/w1.npy m/w &&
		ctl old put m/two a=tests/data/b1.npy b=tests/data/b2.npy && ctl old save m/two "$stage/two.safetensors" &&
		ctl old load "$stage/two.safetensors" m/loaded && told >"$stage/told"
}
told() { ctl old ls --json=pretty | grep -v '"opens"'; }

all_is_there() {
	told | diff "$stage/told" - && side new check b && ctl new get m/w "$stage/w.npy" && cmp "$stage/w.npy" tests/data/w1.npy &&
		ctl new stat m/w | grep -q 'k = v' && ctl new get m/two:a "$stage/w.npy" && cmp "$stage/w.npy" tests/data/b1.npy &&
		ctl new verify m/loaded && ctl new load --if-missing "$stage/two.safetensors" m/loaded
}

updated() { cp "${at[new]}/gpushmd" "$stage/gpushmd.new" && mv "$stage/gpushmd.new" "$stage/gpushmd"; }
restarted() { updated && ctl old restart && runs new; }
died() { updated && kill -KILL "$(daemon)" && soon runs new; }

# The stream of a producer of the other version goes on, and gets a reader of this one.
stream_goes_on() {
	side old produce s &
	local producer=$!
	soon has_stream && "$1" && side new follow s && wait $producer
}
has_stream() { ctl old ls --names-only | grep -qx s; }

behind() {
	cp "${at[old]}/gpushmd" "$stage/gpushmd"
	check "$1: 0.2 starts" start "$stage/gpushmd"
	check "$1: it is filled" fill
	check "$1: a stream goes on" stream_goes_on "$1"
	check "$1: all is there" all_is_there
	check "$1: it stops" stop
}

python=
if [ -e "$build/venv/ready" ] && [ -e "$build/python/gpushm/__init__.py" ]; then
	python=yes
else
	echo "skipped: pickles of version 0.2: there is no Python package"
fi
check "0.2 is built" build_old
check "programs are built with both" build_sides
at_one_daemon old new
at_one_daemon new old
behind restarted
behind died
end_of_checks
