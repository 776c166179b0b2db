#!/bin/bash
# SPDX-License-Identifier: MIT
#
# This version and the one before it, which version.sh builds: each one's programs with the daemon of the other one, streams
# between both, and one daemon behind the other one and back again, over the keeper and in a virtual environment, while
# clients are at work. Prints a line like Check's.
#   run.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
build=$(realpath "$1")
# shellcheck source=tests/earlier/version.sh
. tests/earlier/version.sh
# shellcheck source=tests/earlier/clients.sh
. tests/earlier/clients.sh
declare -A at=([old]=$tree/build [new]=$build)
needs_old "programs of version 0.2"
clients=$stage

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
side() { timeout 120 "$stage/side-$1" "$GPUSHM_SOCKET" "${@:2}"; }
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
printf '[pool host]\nkind=host\nsize=64M\n[pool twins]\nkind=host\nsize=64M\n' >"$stage/conf"

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
# Not who has them open.
told() { for name in b m/; do ctl old ls --json=pretty $name; done | grep -Ev '"(opens|readers|suspects|ending)"'; }

all_is_there() {
	told | diff "$stage/told" - && side new check b && ctl new get m/w "$stage/w.npy" && cmp "$stage/w.npy" tests/data/w1.npy &&
		ctl new stat m/w | grep -q 'k = v' && ctl new get m/two:a "$stage/w.npy" && cmp "$stage/w.npy" tests/data/b1.npy &&
		ctl new verify m/loaded && ctl new load --if-missing "$stage/two.safetensors" m/loaded
}

put_in_place() { cp "${at[$1]}/gpushmd" "$stage/gpushmd.new" && mv "$stage/gpushmd.new" "$stage/gpushmd"; }
restarted() { put_in_place "$1" && ctl "$1" restart && runs "$1"; }
died() { put_in_place "$1" && kill -KILL "$(daemon)" && soon runs "$1"; }

# The stream of a producer of the other version goes on, and gets a reader of this one.
stream_goes_on() {
	side old produce s &
	local producer=$!
	soon has_stream && "$1" new && side new follow s && wait $producer
}
has_stream() { ctl old ls --names-only | grep -qx s; }

work() { begin hold old hold b && begin feed old feed f && begin drain old drain f && begin probe old probe b; }
work_is_done() {
	finish probe && finish hold && finish feed && wait "${client_pid[drain]}" && cat "$clients/drain.out" &&
		[ "$(said feed)" = "$(said drain | sed 's/.* the last is //') frames" ]
}

# What 0.3 has let go of, 0.2 can't have: it is refused while there is such.
evicted_keeps_old_out() {
	ctl new put tests/data/w1.npy cold && ctl new demote --pool=twins cold && side new make away && begin away new suspend away || return 1
	! restarted old >"$stage/refusal" 2>&1 && grep 'before 0.3' "$stage/refusal" && runs new && ctl new promote cold && finish away &&
		grep 'resume: it is back' "$clients/away.out"
}
gets_cold() { ctl old get cold "$stage/w.npy" && cmp "$stage/w.npy" tests/data/w1.npy && ctl old rm cold && ctl old rm away; }

behind() {
	cp "${at[old]}/gpushmd" "$stage/gpushmd"
	check "$1: 0.2 starts" start "$stage/gpushmd"
	check "$1: it is filled" fill
	check "$1: programs of 0.2 are at work" work
	check "$1: a stream goes on" stream_goes_on "$1"
	check "$1: all is there" all_is_there
	check "$1: 0.2 can't follow while it would lose a buffer" evicted_keeps_old_out
	check "$1: then it can" restarted old
	check "$1: it has what was evicted" gets_cold
	check "$1: all is there again" all_is_there
	check "$1: no work was disturbed" work_is_done
	echo "keeper, $1 and back: $(said probe)"
	check "$1: it stops" stop
}

# ---- pip install -U, in one virtual environment ----

pip() { "$build/venv/bin/python" -m pip --python "$stage/venv/bin/python" -q --disable-pip-version-check "$@"; }
has_wheel() { pip install --force-reinstall --no-deps --no-index "${wheel[$1]}"; }
in_venv() { timeout 60 "$stage/venv/bin/$1" "${@:2}"; }
venv_runs() { in_venv gpushmctl status --json=short | grep -q "gpushmd $1\."; }

new_venv() { python3 -m venv --without-pip "$stage/venv" && has_wheel old; }
python_makes() {
	in_venv python -B -c '
import gpushm
with gpushm.create("p", 4, "int32") as a:
    with memoryview(a) as m:
        for i in range(4): m[i] = i + 7
    a.publish()'
}
python_reads='
import gpushm, sys
a = gpushm.open("p")
print("works", flush=True)
sys.stdin.readline()
assert memoryview(a).tolist() == [7, 8, 9, 10], memoryview(a).tolist()
with gpushm.open("p") as again:
    assert memoryview(again).tolist() == memoryview(a).tolist()
assert gpushm.ls()[0].name == "p", gpushm.ls()'
python_holds() {
	mkfifo "$clients/python"
	in_venv python -B -c "$python_reads" <"$clients/python" >"$clients/python.out" 2>&1 &
	client_pid[python]=$!
	exec {python_in}>"$clients/python" && client_in[python]=$python_in
	soon grep -q works "$clients/python.out"
}
python_opens() { in_venv python -B -c "$python_reads" </dev/null; }
venv_is_updated() { has_wheel "$1" && in_venv gpushmctl restart && venv_runs "$2"; }

in_one_venv() {
	check "wheel: an environment with 0.2" new_venv
	check "wheel: its daemon starts" start "$stage/venv/bin/gpushmd"
	check "wheel: a program makes an array" python_makes
	check "wheel: another one has it" python_holds
	check "wheel: pip installs 0.3, which takes over" venv_is_updated new 0.3
	check "wheel: a program of 0.3 opens it" python_opens
	check "wheel: pip installs 0.2, which takes over" venv_is_updated old 0.2
	check "wheel: a program of 0.2 opens it" python_opens
	check "wheel: the first program has it still" finish python
	check "wheel: it stops" stop
}

python=
if [ -e "$build/venv/ready" ] && [ -e "$build/python/gpushm/__init__.py" ]; then
	python=yes
	declare -A wheel=([new]=$(echo "$build"/wheel/gpushm-*.whl))
else
	echo "skipped: pickles of version 0.2: there is no Python package"
fi
check "0.2 is built" build_old
if [ -n "$python" ]; then
	check "and its wheel" build_old_wheel
	wheel[old]=$(echo "$tree"/build/wheel/gpushm-*.whl)
fi
check "programs are built with both" build_sides
at_one_daemon old new
at_one_daemon new old
behind restarted
behind died
[ -z "$python" ] || in_one_venv
end_of_checks
