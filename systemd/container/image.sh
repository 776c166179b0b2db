#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Builds the Debian packages and the container image of them, tags it localhost/gpushm:VERSION, and writes it to
# BUILD/image/gpushm.tar, an OCI archive.
#   image.sh BUILD VERSION
# IMAGE_BASE is the image below it: debian:bookworm-slim unless it is set, or another one of the distribution that the
# packages were built on. IMAGE_BASE=mmdebstrap makes one from this machine's Debian mirror, for a machine that
# reaches no registry. BUILDAH_ISOLATION=chroot is for one on which containers can't run, such as another container.
# IMAGE_DEBS is a folder of packages that are built already.
set -eu
cd "$(dirname "$0")/../.."
build=$1
version=$2
base=${IMAGE_BASE:-docker.io/library/debian:bookworm-slim}
context=$build/image/context

fail() {
	echo "image: $*" >&2
	exit 1
}

# Images of Debian leave these out, too.
slim=(--dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*'
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright'
	--dpkgopt='path-exclude=/usr/share/info/*')

# This machine's release, from its own sources.
make_base() {
	command -v mmdebstrap >/dev/null || fail "there is no mmdebstrap: apt-get install mmdebstrap"
	# shellcheck source=/dev/null
	. /etc/os-release
	apt-config dump | grep -E '^Acquire::(https?::|Check-|Retries)' >"$build/image/apt.conf" || true
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources >"$build/image/mirror.sources" 2>/dev/null || true
	mmdebstrap --quiet --variant=apt --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr "${slim[@]}" --aptopt="$build/image/apt.conf" "$VERSION_CODENAME" \
		"$build/image/base.tar" "$build/image/mirror.sources" >"$build/image/log" 2>&1 || {
		cat "$build/image/log" >&2
		fail "mmdebstrap failed"
	}
	base=localhost/gpushm-base:$version
	import_base >/dev/null || fail "$tool can't import what mmdebstrap has made"
	rm "$build/image/base.tar"
}

# buildah has no import.
import_base() {
	local made
	case $tool in
	*/podman) "$tool" import -q "$build/image/base.tar" "$base" ;;
	*) made=$("$tool" from scratch) && "$tool" add -q "$made" "$build/image/base.tar" / && "$tool" commit -q "$made" "$base" && "$tool" rm "$made" ;;
	esac
}

tool=$(command -v podman || command -v buildah) || fail "neither podman nor buildah: apt-get install podman"
[ -n "${IMAGE_DEBS-}" ] || make -s BUILD="$build" deb
rm -rf "$context"
mkdir -p "$context/debs"
for name in gpushmd gpushm-tools gpushm-exporter gpushm-relay libgpushm1 libgpushm-load1; do
	for package in "${IMAGE_DEBS:-$build/deb}/${name}_"*.deb; do
		[ ! -e "$package" ] || cp "$package" "$context/debs/"
	done
done
[ "$base" != mmdebstrap ] || make_base
# Without the cache: it does not see that the packages are others.
"$tool" build --quiet --no-cache --network=host --format=oci --file systemd/container/Containerfile --build-arg BASE="$base" \
	--tag "localhost/gpushm:$version" "$context" >/dev/null ||
	fail "it can't be built. IMAGE_BASE=mmdebstrap needs no registry, BUILDAH_ISOLATION=chroot no containers"
rm -f "$build/image/gpushm.tar"
"$tool" push --quiet "localhost/gpushm:$version" "oci-archive:$build/image/gpushm.tar:localhost/gpushm:$version"
rm -rf "$context"
echo "$build/image/gpushm.tar"
