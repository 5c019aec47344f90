#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Instructions of one message in send, receive and test, counted by callgrind, with failover, without, and with SEND_ACK, and where
# they go. Both ends are in one process over the simulated fabric; its device thread is not counted, its part of posting and polling
# is, and stands by itself. The counts are the same on a busy machine, but for how often a request has to be tested.
#   tests/bench/instructions.sh [--bytes 65536] [--messages 2000] [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."

bytes=65536 messages=2000 build=build
while [ $# -gt 0 ]; do
	case $1 in
	--bytes) bytes=$2; shift ;;
	--messages) messages=$2; shift ;;
	-*) echo "usage: tests/bench/instructions.sh [--bytes 65536] [--messages 2000] [BUILD_FOLDER]" >&2; exit 2 ;;
	*) build=$1 ;;
	esac
	shift
done
command -v valgrind >/dev/null || { echo "tests/bench/instructions.sh: valgrind is missing" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() { # MODE FUNCTION…: writes $work/MODE.FIRST_FUNCTION
	local mode=$1 toggles=() function; shift
	for function; do toggles+=("--toggle-collect=$function"); done
	valgrind --tool=callgrind --quiet --callgrind-out-file="$work/$mode.$1" --collect-atstart=no "${toggles[@]}" \
		"$build/bench/connection_cost" calls "$mode" "$bytes" "$messages" >/dev/null 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
}
# Function, its own instructions per message and its object, most first.
functions() { # FILE
	callgrind_annotate --auto=no --threshold=100 --show-percs=no "$1" | awk -v messages="$messages" '/^ *[0-9,]+ .*:.*\[/ {
		gsub(",", "", $1); name = $2; sub(/.*:/, "", name); object = $NF; gsub(/.*\//, "", object); sub(/\]/, "", object)
		print name, $1 / messages, object == "connection_cost" ? "switchback" : object
	}'
}

printf 'instructions per message of %d bytes, %d messages: in Switchback itself, and with the simulated device and libc\n' "$bytes" "$messages"
printf '%-14s%18s%18s%18s%18s\n' failover sb_send sb_recv sb_test sum
for mode in off on ack; do
	own_sum=0 all_sum=0
	printf '%-14s' $mode
	for function in sb_send sb_recv sb_test; do
		count $mode $function
		read -r own all < <(functions "$work/$mode.$function" | awk '{ all += $2; if ($3 == "switchback") own += $2 } END { printf "%d %d\n", own, all }')
		own_sum=$((own_sum + own)) all_sum=$((all_sum + all))
		printf '%9d%9d' "$own" "$all"
	done
	printf '%9d%9d\n' $own_sum $all_sum
done
echo
echo "with failover on: the functions that take most of it, instructions per message of their own"
for function in sb_send sb_recv sb_test; do
	echo "$function"
	functions "$work/on.$function" | awk '$2 >= 20 { printf "  %8d  %-28s %s\n", $2, $1, $3 }' | head -14
done
