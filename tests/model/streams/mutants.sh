#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Faults in the protocol, each of which the checker must find: a line of the real code is changed,
# and the program is built with it.
#   tests/model/streams/mutants.sh BUILD
set -u
build=$(realpath "$1")
cd "$(dirname "$0")/../../.." || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
writer=client/lib/stream/writer.c reader=client/lib/stream/reader.c daemon=daemon/catalog/stream_words.c
mutants=0 missed=0

# mutant NAME PLAN FILE SED-EXPRESSION: the plan is one that finds it.
mutant() {
	local out=$folder/mutant.c objects=()
	mutants=$((mutants + 1))
	sed -E "$4" "$3" >"$out"
	if cmp -s "$out" "$3"; then
		echo "MISSED  $1: the code has changed, and this mutant with it"
		missed=$((missed + 1))
		return
	fi
	for f in $writer $reader $daemon; do
		[ "$f" = "$3" ] || objects+=("$build/obj/model/${f%.c}.o")
	done
	if ! ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O1 -w -I. -DSTREAM_STEPS='"tests/model/streams/steps.h"' -o "$folder/mutant" \
		"$out" "${objects[@]}" "$build"/obj/model/tests/model/streams/*.o; then
		echo "MISSED  $1: it does not compile"
		missed=$((missed + 1))
	elif "$folder/mutant" "$2" >"$folder/out"; then
		echo "MISSED  $1"
		missed=$((missed + 1))
	else
		printf 'found   %-55s %s\n' "$1" "$(sed -nE 's/^([^ ]+) .*VIOLATION: /\1: /p' "$folder/out")"
	fi
}

mutant "a reader does not look again behind its claim" latest-1 $reader 's/if \(stream_load\(&s->seq\) == seq\)/if (1)/'
mutant "a reader looks before its claim" latest-1 $reader \
	'/^\tstream_store\(&c->claim, stream_claim_word/d; s/^\t\treturn true;/\t\treturn stream_store(\&c->claim, stream_claim_word(ret->ticket, STREAM_CLAIMED)), true;/'
mutant "a claim that failed is not taken back" latest-1 $reader 's/^\tstream_store\(&c->claim, ret->before\);//'
mutant "a claim is taken back silently" every-gpu-2 $reader 's/^\tstream_store\(&r->page->claims\[f->slot\]\.claim, word\);/&\n\treturn false;/'
mutant "a reader looks whether the producer sleeps before it releases" every-1 $reader \
	's/^\tstream_store\(&r->page->claims\[f->slot\]\.claim, word\);/\tbool early = tell_producer(r);\n&/; s/^\treturn tell_producer\(r\);/\treturn early;/'
mutant "a reader sleeps and does not say so" share-2 $reader 's/stream_store\(&r->page->asleep, 1\);//'
mutant "a reader reads the state behind the frames" share-2 $reader \
	's/^\tstate = stream_load\(&r->head->state\);//; s/^\te = take_any\(r, ret, ret_wake\);/&\n\tstate = stream_load(\&r->head->state);/'
mutant "\`every\` does not move its cursor" every-1 $reader 's/stream_put\(&r->page->cursor, r->cursor\);//'
mutant "a member owns a frame without an exchange" share-2 $reader 's/if \(!stream_swap\(&r->group->owner/if (0 \&\& !stream_swap(\&r->group->owner/'
mutant "a member does not look for frames of the dead" share-2 $reader 's/int e = take_redo\(r, ret, ret_wake\);/int e = -ENOENT;/'
mutant "the producer does not take the frame away" latest-1 $writer 's/^\tstream_store\(&s->seq, 0\);//'
mutant "the producer does not look again" latest-1 $writer '/^\tstream_store\(&s->seq, 0\);/{n; s/.*/\tr = 0;/}'
mutant "the producer does not heed cursors" every-1 $writer 's/want\(w, ret, stream_load\(&w->pages\[i\]\.page->cursor\), i\);//'
mutant "the producer does not heed the group" share-1 $writer 's/if \(stream_load\(&w->head->group_open\)\)/if (0)/'
mutant "the producer takes the newest frame's slot" latest-1 $writer 's/if \(seq && seq == stream_load\(&w->head->newest\)\)/if (0)/'
mutant "the producer publishes the number before the frame" every-1 $writer \
	's/^\tstream_put\(&s->seq, slot->seq\);/\tstream_store(\&w->head->newest, slot->seq);/; s/^\tstream_store\(&w->head->newest, slot->seq\);/\tstream_put(\&s->seq, slot->seq);/'
mutant "the producer looks who sleeps before it publishes" share-2 $writer \
	's/^\tstream_store\(&w->head->newest, slot->seq\);/\tasleep = is_somebody_asleep(w);\n&/; s/^\tasleep = is_somebody_asleep\(w\);$//'
mutant "the producer wakes nobody" share-2 $writer 's/^\tasleep = is_somebody_asleep\(w\);$/\tasleep = false;/'
mutant "the GPU does not wait for readers" every-gpu $writer 's/stream_before\(stream_load\(&c->released\), \*ret_end\) \? -EINPROGRESS : 0/0/'
mutant "a host takes what a GPU releases as released" every-host-gpu $writer 's/if \(r < 0 \|\| ret->n_waits == 0 \|\| t->waits\)/if (r < 0 || ret->n_waits == 0 || 1)/'
mutant "the producer uses the page of a reader that left" every-leaves $writer 's/return p->page && p->generation == stream_load.*/return p->page;/'
mutant "the producer does not heed frames to be redone" redo $writer 's/if \(!is_to_be_redone\(w, slot, seq\)\)/if (1)/'
mutant "claims end before their frames go back to the group" share-death-1 $daemon \
	's/^\tif \(stream_load\(&h->sharing\) & 1ull << reader\)/\tend_claims(w, page);\n&/'
mutant "a frame that was not published stays" every-adopt $daemon 's/if \(seq != 0 && stream_before\(newest, seq\)\)/if (0)/'
mutant "frames of a dead producer are never ready" latest-gpu-dies $daemon 's/^\tstream_store\(&s->ready, last\);//'
mutant "frames of a dead producer are not told as broken" latest-gpu-dies $daemon 's/^\t\tstream_store\(&s->broken, last\);/\t\t;/'
mutant "the last frame alone is told as broken" every-gpu-dies $daemon 's/span < UINT32_MAX \? span : UINT32_MAX/1/'
mutant "nobody is woken by a producer's end" share-2 $daemon 's/^\tstream_store\(&w->head->state, state\);/&\n\treturn;/'
mutant "claims of a dead reader stay" gpu-reader-dies $daemon 's/^\tend_claims\(w, page\);//'
mutant "GPUs are not released from a dead reader" gpu-reader-dies $daemon 's/^\t\tstream_store\(&page->claims\[i\]\.released, STREAM_RELEASED_ALL\);//'
mutant "nobody is woken by a reader's end" every-death $daemon 's/^\t\tstream_add\(&page->released_count, 1\);/\t\t;/; s/^\tstream_add\(&h->wake, 1\);//'
mutant "a joining reader begins with the frame before" share-2 $daemon 's/stream_store\(word, stream_next\(stream_load\(&w->head->newest\)\)\);/(void)0;/'
mutant "a dead member's frames are forgotten" share-death-1 $daemon 's/^\t\t\thand_back\(w, i, reader\);/\t\t\t;/'
mutant "a dead member's frames are redone, done or not" share-death-1 $daemon 's/^\t\tif \(is_unfinished\(&page->claims\[i\]\)\)//'
mutant "a member ends before a dead one's frame comes back" share-death-1 $reader 's/^\treturn r->follow == STREAM_SHARE && \(stream_load\(&r->head->leaving\).*/\treturn false;/'
mutant "a member looks who leaves behind what is redone" share-death-1 $reader \
	's/ \|\| is_member_leaving\(r\)\)/)/; s/^\treturn state == STREAM_ENDED \? -EPIPE : -EOWNERDEAD;/\tif (is_member_leaving(r))\n\t\treturn -EAGAIN;\n&/'
mutant "a producer ends and nobody looks which members leave" share-death-1 $daemon 's/^\tstream_store\(&w->head->leaving, found\);//'
mutant "a member has left before its frame is to be redone" share-death-1 $daemon \
	's/^\tfor \(uint32_t i = 0; page && i < w->shape\.slots; i\+\+\)$/\tclear_bit(\&w->head->leaving, reader);\n&/'
mutant "a producer dies and nobody looks which members leave" share-both-die $daemon 's/^\tstream_store\(&w->head->leaving, found\);//'
mutant "two members get the frame of a dead one" redo-3 $reader 's/^\t\te = own\(r, i, seq, owner, ret, ret_wake\);/\t\te = own(r, i, seq, stream_load(\&r->group->owner[i]), ret, ret_wake);/'
mutant "the producer does not say for whom its GPU waits" latest-hangs $writer 's/^\tstream_put\(&w->head->slot\[s->slot\]\.waits, mask\);//'
mutant "the producer does not say what its GPU waits for" latest-hangs $writer 's/^\t\t\t   s->waits\[i\]\.value\);/\t\t\t   0);/'
mutant "nobody looks for a GPU that waits behind a publication" latest-hangs $daemon \
	's/\(seq == 0 \|\| stream_before\(stream_load\(&s->ready\), seq\)\)/(seq == 0)/'
mutant "a claim that can't end is waited for by a GPU" rubbish-gpu $writer 's/ \|\| word >> 2 > STREAM_TICKETS//'
mutant "a reader that was dropped holds a GPU by what it writes" rubbish-gpu $daemon 's/^\t\tif \(stream_load\(&w->head->seats\[i\]\.state\) == STREAM_SEAT_DROPPED\)/\t\tif (0)/'
mutant "a cursor behind all frames holds up the producer" rubbish-cursor $writer 's/\(int64_t\)\(cursor - w->seq\) <= 0 && //'
mutant "the group of a member that was dropped stays open" rubbish-group $daemon 's/^\t\tclose_group\(w\);/\t\t;/'
mutant "0 is taken for a frame" rubbish-next $reader 's/seq == 0 \|\| stream_load\(&s->seq\) != seq/stream_load(\&s->seq) != seq/'
mutant "a member does not mend \`next\`" rubbish-next $reader 's/^\t\tmend_next\(r\);//'
mutant "a member looks for what is to be redone when it is told" rubbish-redo $reader 's/ && mend_redos\(r\)//'
mutant "nobody looks again for frames to be redone" share-death-1 $daemon 's/^\tstream_add\(&w->group->redos, 1\);//'

echo "$((100 * (mutants - missed) / mutants))%: Checks: $mutants, Failures: $missed, Errors: 0"
[ $missed -eq 0 ]
