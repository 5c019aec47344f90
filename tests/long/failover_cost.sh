#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Long run, by hand: bandwidth of 1 MiB messages with failover on, divided by that with failover off; the two take turns so that a
# busy machine disturbs both alike.
#   tests/long/failover_cost.sh [--seconds 40] [--bytes 1M] [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."

usage="usage: tests/long/failover_cost.sh [--seconds 40] [--bytes 1M] [BUILD_FOLDER]"
seconds=40 bytes=1M build=build
while [ $# -gt 0 ]; do
	case $1 in
	--seconds | --bytes) [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; } ;;&
	--seconds) seconds=$2; shift ;;
	--bytes) bytes=$2; shift ;;
	--help) echo "$usage"; exit 0 ;;
	-*) echo "$usage" >&2; exit 2 ;;
	*) build=$1 ;;
	esac
	shift
done
[ -x "$build/switchback" ] || { echo "tests/long/failover_cost.sh: no switchback is built in $build" >&2; exit 2; }

work=$(mktemp -d)
fabric=cost-$$
"$build/switchback" fabric create "$fabric" >/dev/null
trap '"$build/switchback" fabric destroy "$fabric"; rm -rf "$work"' EXIT
one() { # NAME OPTIONS…: appends a bandwidth
	"$build/switchback" perf sendrecv --fabric "$fabric" --min-bytes "$bytes" --max-bytes "$bytes" --duration 2s --json "$work/json" "${@:2}" >/dev/null
	jq .sizes[0].algbw_gbit_s "$work/json" >>"$work/$1"
}
rounds=$((seconds / 4 > 0 ? seconds / 4 : 1))
for ((i = 0; i < rounds; i++)); do
	one on
	one off --no-failover
done
median() {
	sort -g "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}
on=$(median "$work/on") off=$(median "$work/off")
awk -v on="$on" -v off="$off" -v n="$rounds" -v bytes="$bytes" \
	'BEGIN { printf "%s messages, median of %d runs each: failover on %.3f Gbit/s, off %.3f Gbit/s, on / off = %.4f\n", bytes, n, on, off, on / off }'
