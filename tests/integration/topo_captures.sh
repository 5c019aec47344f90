#!/usr/bin/env bash
# Captures of /sys of real machines, which are not part of this repository, as sysfs roots. $1 is the build folder.
set -euo pipefail
build=$(cd "$1" && pwd)
captures=$(cd "$(dirname "$0")/../.." && pwd)/../shared/topologies/sysfs
if ! ls "$captures"/*.tar.* >/dev/null 2>&1; then
	echo "skipped: no captures in $captures"
	exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset NCCL_TOPO_FILE NCCL_TOPO_DUMP_FILE SWITCHBACK_SYSFS
for capture in "$captures"/*.tar.*; do
	mkdir "$work/one"
	tar -C "$work/one" -xf "$capture" 2>"$work/tar" || { cat "$work/tar"; exit 1; }
	root=$(echo "$work"/one/*)
	echo "== $(basename "$capture")"
	"$build/switchback" topo --sysfs "$root" --dump "$work/dump.xml" >"$work/text"
	cat "$work/text"
	# Every RDMA port of the capture is there, at its NUMA node.
	for port in "$root"/sys/class/infiniband/*/ports/*; do
		[ -e "$port" ] || continue
		device=$(basename "$(dirname "$(dirname "$port")")")
		grep -q "^$device/$(basename "$port") " "$work/text" || { echo "FAILED: $port is missing"; exit 1; }
	done
	"$build/switchback" topo --sysfs "$root" --graph >"$work/graph" 2>/dev/null
	"$build/switchback" topo --file "$work/dump.xml" --graph >"$work/again"
	cmp "$work/graph" "$work/again"
	rm -rf "$work/one"
done
