#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job in namespaces, its rails cut by the tools of an administrator. $2: sim or rxe.
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"
command -v jq >/dev/null || skip "no jq here"

bridge=bridge
unshare -n ip link add sbprobe type bridge 2>/dev/null || bridge=router
rails up --device "$device" --switch $bridge >"$work/up" 2>&1 || fail "up --device $device: $(cat "$work/up")"
options=(--netns "$name" --fault-command "$top/netns/rails.sh --name $name" --check)
[ "$device" != sim ] || options+=(--fabric "$name")

run() { # NAME ARGUMENTS
	local name=$1
	shift
	timeout 200 "$build/switchback" perf "$@" "${options[@]}" --json "$work/$name.json" >"$work/$name.log" 2>&1 ||
		fail "$name: exit status $?: $(tail -n 40 "$work/$name.log")"
	[ "$(jq '.verify.errors' "$work/$name.json")" = 0 ] || fail "$name: bytes were wrong"
	[ "$(jq '.verify.messages' "$work/$name.json")" -gt 10 ] || fail "$name: hardly anything was verified"
}

moved() { # NAME RAIL
	[ "$(jq "[.failovers[] | select(.from == \"rail$2\")] | length" "$work/$1.json")" -ge 1 ] ||
		fail "$1: no failover from rail$2: $(cat "$work/$1.log")"
	[ "$(jq "[.failbacks[] | select(.to == \"rail$2\")] | length" "$work/$1.json")" -ge 1 ] ||
		fail "$1: no failback to rail$2: $(cat "$work/$1.log")"
	echo "$1: blackout $(jq -c '[.failovers[].blackout_ms | round]' "$work/$1.json") ms, messages again" \
		"$(jq -c '[.failovers[].replayed]' "$work/$1.json"), gap $(jq -c '[.failbacks[].gap_ms | round]' "$work/$1.json") ms"
}

# Sizes and times suit a guest without KVM: a tenth of a Gbit/s, commands of half a second.
run port-down sendrecv --max-bytes 256K --duration 16s \
	--fault "2s cut host0.rail0 down" --fault "6s restore host0.rail0"
moved port-down 0
run switch-port-down all_reduce --max-bytes 256K --duration 16s \
	--fault "2s cut host1.rail0 port-down" --fault "6s restore host1.rail0"
moved switch-port-down 0
run black-hole sendrecv --max-bytes 256K --duration 16s \
	--fault "2s cut host1.rail0 blackhole" --fault "6s restore host1.rail0"
moved black-hole 0
run one-way sendrecv --max-bytes 256K --duration 16s \
	--fault "2s cut host1.rail0 blackhole in" --fault "6s restore host1.rail0"
moved one-way 0

# What users have without it: an error that names the port, and no hang.
timeout 120 "$build/switchback" perf sendrecv "${options[@]}" --no-failover --max-bytes 256K --duration 20s \
	--fault "2s cut host0.rail0 down" >"$work/off.log" 2>&1
status=$?
[ $status = 1 ] || fail "--no-failover ended with $status: $(tail -n 20 "$work/off.log")"
echo ok
