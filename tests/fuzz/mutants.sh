#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Faults, each of which a fuzzer must find in the time that it has in check-deep: a line of the real code is changed, and the
# fuzzer is linked with it.
#   tests/fuzz/mutants.sh BUILD SECONDS
set -u
build=$(realpath "$1")/fuzz seconds=$2
cd "$(dirname "$0")/../.." || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
writer=client/lib/stream/writer.c reader=client/lib/stream/reader.c daemon=daemon/catalog/stream_words.c
producer=client/lib/stream/producer.c range=client/relay/serve/range.c mutants=0 missed=0
sanitize=address,undefined
# The words of variables of make, as a shell reads them: some have quotes.
words() {
	for v in "$@"; do make -s BUILD="$build" CC="${FUZZ_CC:-clang}" "print-$v"; done | xargs printf '%s\n'
}
mapfile -t flags < <(words ALL_CFLAGS)
mapfile -t libraries < <(words DAEMON_LIBS CTL_LIBS MODELS_LIBS)

# The mutant comes first, so that the archive's own object is not taken.
link() { # TARGET FILE
	local objects=("$build/obj/tests/fuzz/fuzz_$1.o") o
	for o in "$build"/obj/tests/fuzz/*.o $(find "$build/obj/client/relay" -name '*.o'); do
		case $o in
		*/fuzz_*.o | "$build/obj/${2%.c}.o") ;;
		*) objects+=("$o") ;;
		esac
	done
	${FUZZ_CC:-clang} "${flags[@]}" -O1 -g -w -fsanitize=fuzzer-no-link,$sanitize -c -o "$folder/mutant.o" "$folder/mutant.c" &&
		${FUZZ_CC:-clang} -fsanitize=fuzzer,$sanitize -Wl,-z,muldefs -o "$folder/mutant" "$folder/mutant.o" "${objects[@]}" \
			"$build"/{daemon,systemd,ctl,common,libgpushm-load,libgpushm}.a "${libraries[@]}"
}

# mutant NAME TARGET FILE SED-EXPRESSION
mutant() {
	local begun=$SECONDS
	mutants=$((mutants + 1))
	sed -E "$4" "$3" >"$folder/mutant.c"
	rm -rf "$folder/new" && mkdir "$folder/new"
	if cmp -s "$folder/mutant.c" "$3"; then
		echo "MISSED  $1: the code has changed, and this mutant with it"
	elif ! link "$2" "$3"; then
		echo "MISSED  $1: it does not compile"
	elif tests/fuzz/corpus.sh unpack "$2" "$folder/corpus" &&
		"$folder/mutant" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -verbosity=0 \
			-artifact_prefix="$folder/found-" "$folder/new" "$folder/corpus" >"$folder/out" 2>&1; then
		echo "MISSED  $1"
	elif grep -q "^SUMMARY: " "$folder/out"; then
		printf 'found   %-65s %s, %d s\n' "$1" "$2" $((SECONDS - begun))
		return
	else
		echo "MISSED  $1: no fault of the code ended it"
		tail -5 "$folder/out"
	fi
	missed=$((missed + 1))
}

mutant "0 is taken for a frame" stream $reader 's/seq == 0 \|\| stream_load\(&s->seq\) != seq/stream_load(\&s->seq) != seq/'
mutant "a member does not mend \`next\`" stream $reader 's/^\t\tmend_next\(r\);//'
mutant "a claim that can't end is waited for by a GPU" stream $writer 's/ \|\| word >> 2 > STREAM_TICKETS//'
mutant "the producer uses the page of a reader that left" stream $writer 's/return p->page && p->generation == stream_load.*/return p->page;/'
mutant "a reader that was dropped holds a GPU by what it writes" stream $daemon \
	's/^\t\tif \(stream_load\(&w->head->seats\[i\]\.state\) == STREAM_SEAT_DROPPED\)/\t\tif (0)/'
mutant "a page goes while a GPU waits for a word of it" producer $producer 's/^\treturn p->seq == 0 \|\| !stream_before\(ready, p->seq\);/\treturn true;/'
mutant "a reader that is not in the way is dropped" producer $producer 's/^\t\tw->blocker\.reader < STREAM_READERS_MAX \? .*/\t\t0;/'
mutant "a wiped page of a reader makes no sense" producer client/lib/stream/pages.c 's/^\treturn p->bytes == bytes \?/\treturn p->bytes == bytes \&\& *(uint64_t *)p->host ?/'
mutant "a range begins behind the file" relay $range 's/^\tif \(first >= size\)/\tif (0)/'
mutant "an ETag has no end" relay $range 's/^\t\tif \(!end\)/\t\tif (0)/'
mutant "a client waits for as long as it likes" relay $range 's/wait < RANGE_WAIT_MAX \?/1 ?/'
mutant "a long Via is cut" relay client/relay/fleet/route.c 's/n >= \(int\)PULL_VIA_MAX/0/'
mutant "a relay listens nowhere" relay client/relay/config.c 's/if \(c->listen\.n == 0 &&/if (0 \&\&/'
mutant "names of certificates have a case" relay client/relay/serve/allow.c 's/FNM_CASEFOLD/0/'
mutant "a shard lies outside its folder" index client/models/web/url.c 's/ \|\| \(n == 2 && .*\)\)$/)/'
mutant "a shard is there twice" index client/models/files/index.c 's/i == 0 \|\| strcmp\(index->shards\[i\], .*\) != 0/1/'
mutant "a checksum of other letters" index client/models/checksum.c 's/^\t\tif \(low < 0\)/\t\tif (0)/'
mutant "a record is longer than its journal" state daemon/state/journal.c 's/j->bytes - j->used - sizeof\(\*ret\) >= padded\(ret->len\)/1/'
mutant "two records of one id count" state daemon/state/replay.c 's/^\tdrop\(r, find\(r, type, id\)\);.*//'
mutant "half a journal counts" state daemon/state/replay.c 's/return r->complete && r->daemon \? 0 : -EBADMSG;/return 0;/'
mutant "the standard output is handed over" state daemon/state/fd_list.c 's/ \|\| fd < 3//'

echo "$((100 * (mutants - missed) / mutants))%: Checks: $mutants, Failures: $missed, Errors: 0"
[ $missed -eq 0 ]
