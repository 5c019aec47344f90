#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Instructions of one packet in the simulated device over UDP, counted by callgrind, by part of the device: RC writes between two
# devices in one process, posted and polled by one thread, so both ends are counted, with what the devices' own threads do meanwhile.
# Repeatable on a busy machine. The kernel's share, which callgrind doesn't see, is printed as part of the CPU time of the same run
# without it.
#   tests/bench/packet_cost.sh [--messages 2000] [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."

messages=2000 build=build
while [ $# -gt 0 ]; do
	case $1 in
	--messages) messages=$2; shift ;;
	-*) echo "usage: tests/bench/packet_cost.sh [--messages 2000] [BUILD_FOLDER]" >&2; exit 2 ;;
	*) build=$1 ;;
	esac
	shift
done
command -v valgrind >/dev/null || { echo "tests/bench/packet_cost.sh: valgrind is missing" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Names of functions to parts of the device, by file and object.
parts() { # FILE PACKETS
	callgrind_annotate --auto=no --threshold=100 --show-percs=no "$1" | awk -v packets="$2" '
	function part(where, object) {
		if (object ~ /isal/ || where ~ /icrc\.c/) return "ICRC"
		if (where ~ /rc\/(requester|acknowledge)\.c/) return "requester"
		if (where ~ /rc\/(responder|reply|memory)\.c/) return "responder"
		if (where ~ /rc\//) return "packets, state, errors"
		if (where ~ /wire\/udp_send\.c/) return "UDP, sending"
		if (where ~ /wire\//) return "UDP, receiving"
		if (where ~ /verbs\/(post|cq|qp|mr)\.c/) return "verbs: post, poll, keys"
		if (where ~ /verbs\//) return "device: QPs, timers, turns"
		if (object ~ /libc|ld-linux|vdso/ || where ~ /sysdeps|string/) return "libc: copying, system calls, locks"
		return "the program itself"
	}
	/^ *[0-9,]+ .*:.*/ {
		gsub(",", "", $1); object = $NF
		sums[part($2, object)] += $1; all += $1
	}
	END {
		for (name in sums) printf "  %8.0f  %s\n", sums[name] / packets, name | "sort -rn"
		close("sort -rn")
		printf "  %8.0f  sum\n", all / packets
	}'
}

for bytes in 8 65536 1048576; do
	count=$((bytes > 65536 ? messages / 10 : messages))
	plain=$("$build/bench/packet_cost" $bytes $count)
	# callgrind counts both calls of measured(): the first is a warm-up of 16 messages.
	valgrind --tool=callgrind --quiet --callgrind-out-file="$work/out" --collect-atstart=no --toggle-collect=measured \
		--toggle-collect=nic_thread \
		"$build/bench/packet_cost" $bytes $count >"$work/said" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
	read -r out _ _ in _ <"$work/said"
	packets=$((out * (count + 16) / count))
	echo "writes of $bytes bytes: $packets packets there, $in back; instructions per packet there, both ends (${plain##*, } of the CPU's time)"
	parts "$work/out" $packets
done
