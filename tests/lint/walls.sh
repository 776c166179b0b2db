#!/bin/bash
# SPDX-License-Identifier: MIT
#
# layers.sh finds what it is for: faults are planted in a copy of the tree's folders, one at a time, each of which it must name.
set -u
cd "$(dirname "$0")/../.." || exit 1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/0" && cp -r proto daemon client "$tree/0/"
tests/lint/layers.sh "$tree/0" || exit 1
bad=0

# planted FILE HEADER COMPLAINT
planted() {
	local file=$tree/0/$1 text
	[ ! -e "$file" ] || cp "$file" "$tree/kept"
	mkdir -p "${file%/*}"
	echo "#include \"$2\"" >>"$file"
	if text=$(tests/lint/layers.sh "$tree/0") || ! grep -qF "$3" <<<"$text"; then
		echo "walls: $1 includes $2, and layers.sh does not say \"$3\", but: ${text:-nothing}"
		bad=1
	fi
	if [ -e "$tree/kept" ]; then mv "$tree/kept" "$file"; else rm "$file"; fi
}

planted daemon/util/log.c client/gpushm.h "client/gpushm.h is no door to the product daemon"
planted client/lib/base/error.c client/models/load.h "client/models/load.h is no door to the product client/lib"
planted client/relay/main.c client/models/load.h "client/models/load.h is no door to the product client/relay"
planted client/ctl/main.c client/gpushm_private.h "client/gpushm_private.h is no door to the product client/ctl"
planted client/python/core/load.c client/lib/buffer/buffer.h "client/lib/buffer/buffer.h is no door to the product client/python"
planted proto/wire.c daemon/util/log.h "daemon/util/log.h is no door to the product proto"
planted client/gpushm_load.h client/models/load.h "client/models/load.h is no door to the product client"
planted client/lib/map/map.c client/lib/link/hello.h "client/lib/map must not include client/lib/link/hello.h"
planted daemon/pool/pool.h daemon/catalog/catalog.h "daemon/pool must not include daemon/catalog/catalog.h"
planted client/relay/offer/offer.h client/relay/offer/offers.h "include cycle: "
planted client/python/core/load.c client/gpushm_load_private.h "client/gpushm_load_private.h is no door to the product client/python"
planted client/novel/a.c proto/wire.h "give client/novel a line"
planted client/ctl/main.c ctl.h "includes are written from the root of the repository"
[ $bad -ne 0 ] || echo "walls: 13 planted faults found"
exit $bad
