#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job in namespaces, its rails cut by the tools of an administrator at set times. $2: sim or rxe.
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"
command -v jq >/dev/null || skip "no jq here"

bridge=bridge
unshare -n ip link add sbprobe type bridge 2>/dev/null || bridge=router
rails up --device "$device" --switch $bridge >"$work/up" 2>&1 || fail "up --device $device: $(cat "$work/up")"
# The command is not as nice as the job (lib/netns.sh).
faults=(--fault-command "nice -n -20 $top/netns/rails.sh --name $name")

# run OPERATION PORTS FAULT: cut and restored, until all have left rail 0 and are back.
run() {
	job_start "$1" --max-bytes 256K "${faults[@]}" --fault "1s cut $2 $3" --fault "3s restore $2"
	wait_until 90 grep -q RESTORE "$work/log" || job_fail "$*: not restored"
	wait_until 90 job_is_on 0 || job_fail "$*: not back on rail0"
	job_end
	[ "$(jq '[.failovers[] | select(.from == "rail0")] | length' "$work/json")" -ge 1 ] || job_fail "$*: no failover"
	[ "$(jq '[.failbacks[] | select(.to == "rail0")] | length' "$work/json")" -ge 1 ] || job_fail "$*: no failback"
	echo "$*: blackout $(jq -c '[.failovers[].blackout_ms | round]' "$work/json") ms, messages again" \
		"$(jq -c '[.failovers[].replayed]' "$work/json"), gap $(jq -c '[.failbacks[].gap_ms | round]' "$work/json") ms"
}
run sendrecv host0.rail0 down
run all_reduce host1.rail0 port-down

# What users have without it: an error that names the port, and no hang.
options=(--netns "$name")
if [ "$device" = sim ]; then
	timeout 60 "$build/switchback" perf sendrecv "${options[@]}" >"$work/log" 2>&1
	[ $? = 2 ] && grep -q -- "--fabric $name is wanted" "$work/log" || job_fail "simulated devices without --fabric"
	options+=(--fabric "$name")
fi
nice -n 20 timeout 150 "$build/switchback" perf sendrecv "${options[@]}" "${faults[@]}" --no-failover --max-bytes 256K \
	--duration 100s --fault "1s cut host0.rail0 down" >"$work/log" 2>&1
status=$?
[ $status = 1 ] || job_fail "--no-failover ended with $status"
grep -q "rail0\|$(verbs_device 0 0)" "$work/log" || job_fail "the error names no port"
echo ok
