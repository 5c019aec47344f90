#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The figures of netns/RESULTS.md: bandwidth, blackouts and gaps per kind of cut, on simulated devices and on rxe in the same
# namespaces of one kernel. Not a test.
#   figures.sh BUILD_FOLDER "sim rxe" [CYCLES [SECONDS_PER_HALF_CYCLE]]
set -u
cycles=${3:-5} half=${4:-3}
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh" "$1" sim

# The times of the run: cut and restore in turn.
faults() { # PORTS HOW [WAY]
	local i
	for ((i = 0; i < cycles; i++)); do
		printf '%s\n' --fault "$((2 + 2 * i * half))s cut $*" --fault "$((2 + (2 * i + 1) * half))s restore $1"
	done
}

# The command goes before the ranks, which leave it little where there are few CPUs.
perf() {
	local options=(--netns "$name" --fault-command "nice -n -15 $top/netns/rails.sh --name $name" --check --max-bytes 256K)
	[ "$device" != sim ] || options+=(--fabric "$name")
	timeout 300 "$build/switchback" perf sendrecv "${options[@]}" "$@" --json "$work/json" >"$work/log" 2>&1 ||
		fail "exit status $?: $(tail -n 20 "$work/log")"
}

row() { # LABEL PORTS HOW [WAY]
	local label=$1 arguments
	shift
	mapfile -t arguments < <(faults "$@")
	perf "${arguments[@]}" --duration "$((4 + 2 * cycles * half))s"
	jq -r --arg device "$device" --arg what "$label" '
		def spread: map(select(. != null)) | sort | if length == 0 then "-" else
			"\(.[length / 2 | floor] * 10 | round / 10) / \(.[-1] * 10 | round / 10)" end;
		"| \($device) | \($what) | \(.failovers | length) | \([.failovers[].blackout_ms] | spread) | \(.failbacks | length) | "
		+ "\([.failbacks[].gap_ms] | spread) | \(.verify.messages) | \(.verify.errors) |"' "$work/json" || fail "no row"
}

bridge=bridge
unshare -n ip link add sbprobe type bridge 2>/dev/null || bridge=router
echo "kernel $(uname -r), $(nproc) CPUs, $(systemd-detect-virt 2>/dev/null || true)"
for device in $2; do
	rails up --device "$device" --switch $bridge >"$work/up" 2>&1 || fail "up: $(cat "$work/up")"
	perf --duration 5s
	echo "$device: $(jq '.bandwidth_gbit_s.before // (.bytes * 8 / .seconds / 1e9)' "$work/json") Gbit/s both ways together, 256 KiB messages, every byte checked"
	echo "| device | cut | failovers | blackout ms, median / worst | failbacks | gap ms, median / worst | messages verified | wrong |"
	echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
	row "host's link down" host0.rail0 down
	row "switch's port down" host1.rail0 port-down
	[ $bridge = router ] || row "switch's port blocked" host1.rail0 blocked
	row "black hole both ways" host1.rail0 blackhole
	row "black hole one way" host1.rail0 blackhole in
	rails down >/dev/null
done
