#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What runs gpushm in containers: the manifests of Kubernetes are what its API knows, the file of the Container Device
# Interface has its form, and all of them have the same user, folder and socket. Uses kubectl and
# kubernetes-validate (of PyPI) where they are.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
bad=0

wrong() {
	echo "$*"
	bad=1
}

# The form of the CDI specification, as far as this file uses it.
python3 - systemd/container/gpushm.json <<'PYTHON' || bad=1
import json, sys

path = sys.argv[1]
spec = json.load(open(path))
assert set(spec) == {"cdiVersion", "kind", "devices"}, f"{path}: its keys are {sorted(spec)}"
assert spec["kind"] == "gpushm.org/socket", f"{path}: kind {spec['kind']}"
(device,) = spec["devices"]
assert set(device) == {"name", "containerEdits"} and device["name"] == "default", f"{path}: its device"
edits = device["containerEdits"]
assert set(edits) == {"env", "mounts"} and all("=" in e for e in edits["env"]), f"{path}: its edits"
(mount,) = edits["mounts"]
assert set(mount) == {"hostPath", "containerPath", "options"}, f"{path}: its mount"
assert mount["hostPath"] == mount["containerPath"] == "/run/gpushm", f"{path}: mounts {mount['hostPath']}"
assert f"GPUSHM_SOCKET={mount['containerPath']}/gpushmd.sock" in edits["env"], f"{path}: {edits['env']}"
PYTHON

# One user: that of the image.
id=$(sed -n 's/^ARG ID=//p' systemd/container/Containerfile)
for words in "runAsUser: $id" "runAsGroup: $id" "\"$id:$id\""; do
	grep -qF "$words" systemd/kubernetes/daemonset.yaml || wrong "systemd/kubernetes/daemonset.yaml: has no $words"
done
grep -q "uid $id" man/gpushm-operations.7 || wrong "man/gpushm-operations.7: does not name uid $id"

# Each container has a user of its own: the daemon's is an administrator.
users=$(grep -rhoE 'runAsUser: 478[0-9]+' systemd/kubernetes | sort | uniq -d)
[ -z "$users" ] || wrong "systemd/kubernetes: two containers have $users"

# What a relay's container makes of its ConfigMap is a configuration.
relay=systemd/kubernetes/relay
name=$(sed -n 's/.*advertise=https:\/\/@POD@\.\([a-z.-]*\):19401$/\1/p' $relay/gpushm-relay.conf)
grep -qxF "[allow *.$name]" $relay/gpushm-relay.conf || wrong "$relay: relays may not read from each other"
grep -qF "\"*.$name\"" systemd/kubernetes/cert-manager/certificate.yaml || wrong "$relay: certificates have another name"
made=$(sed -n 's|^ *\(sed .*\) /etc/gpushm/\(gpushm-relay.conf\) >.*|\1 '$relay'/\2|p' $relay/daemonset.yaml)
POD_IP=10.1.2.3 sh -ec "$made" >"$folder/relay.conf" || wrong "$relay/daemonset.yaml: its container does not start"
grep -q "^advertise=https://10-1-2-3.$name:" "$folder/relay.conf" || wrong "$relay/daemonset.yaml: does not name the pod"
sed -i 's/^#\([[a-z]\)/\1/' "$folder/relay.conf" # with the examples
if [ -x "$build/gpushm-relay" ] && command -v openssl >/dev/null; then
	mkdir "$folder/tls"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=lint \
		-keyout "$folder/tls/tls.key" -out "$folder/tls/tls.crt" 2>/dev/null
	cp "$folder/tls/tls.crt" "$folder/tls/ca.crt"
	sed -i "s|/etc/gpushm/tls|$folder/tls|" "$folder/relay.conf"
	"$build/gpushm-relay" --check-config --config "$folder/relay.conf" >"$folder/said" 2>&1 ||
		wrong "$relay/gpushm-relay.conf: $(cat "$folder/said")"
fi

# No namespace of the host, in all manifests.
grep -rnE 'host(PID|IPC|Network): *true|privileged: *true' systemd/kubernetes && wrong "systemd/kubernetes: shares a namespace"

# Bases and examples; a component is part of one of them.
mapfile -t bases < <(find systemd/kubernetes -name kustomization.yaml -exec grep -l '^kind: Kustomization$' {} +)
# Overlays with all components, as users write them. Kustomize takes relative paths only.
overlays=$build/manifests
overlay() { # NAME BASE COMPONENT...
	local folder=$overlays/$1 top part
	mkdir -p "$folder"
	top=$(realpath --relative-to="$folder" .)/systemd/kubernetes
	{
		printf 'kind: Kustomization\nnamespace: gpushm\nresources: [%s]\ncomponents:\n' "$top/$2"
		for part in "${@:3}"; do printf '  - %s\n' "$top/$part"; done
		printf 'images: [{name: gpushm, newName: registry.example.com/gpushm, newTag: 1.2.3}]\n'
	} >"$folder/kustomization.yaml"
	bases+=("$folder/kustomization.yaml")
}
overlay overlay . exporter pod-monitor
overlay relay relay cert-manager
printf '[relay]\n[pull here]\nsource=there/here\n' >"$overlays/relay/gpushm-relay.conf"
cat >>"$overlays/relay/kustomization.yaml" <<-YAML
	configMapGenerator:
	  - {name: gpushm-relay, namespace: gpushm, behavior: replace, files: [gpushm-relay.conf]}
YAML
[ ${#bases[@]} -gt 1 ] || wrong "systemd/kubernetes: has no kustomization.yaml"
command -v kubectl >/dev/null || {
	echo "manifests: they are not rendered (no kubectl)"
	exit $bad
}
validate=$(PATH=$build/venv/bin:$PATH command -v kubernetes-validate) ||
	echo "manifests: they are not validated (no kubernetes-validate)"
for base in "${bases[@]}"; do
	name=$(dirname "$base")
	kubectl kustomize "$name" >"$folder/manifest.yaml" 2>"$folder/said" || wrong "$name: $(cat "$folder/said")"
	grep -q 'image: gpushm$' "$folder/manifest.yaml" && [[ $base == "$overlays"/* ]] &&
		wrong "$name: the image of a container has another name"
	[[ $base != */relay/* ]] || grep -qE '^  name: gpushm-relay-[0-9a-z]{10}$' "$folder/manifest.yaml" ||
		wrong "$name: a changed configuration restarts no relay"
	[ -n "$validate" ] || continue
	# It does not know the resources of Prometheus' operator and of cert-manager.
	"$validate" --strict --no-warn "$folder/manifest.yaml" 2>&1 |
		grep -viE '^INFO|podmonitor|prometheusrule|certificate|issuer' >"$folder/wrong"
	[ ! -s "$folder/wrong" ] || wrong "$name: $(cat "$folder/wrong")"
done
exit $bad
