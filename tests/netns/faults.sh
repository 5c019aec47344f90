#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The fault matrix as far as a kernel can show it: under load, every byte verified, rail 0 fails in every way there is and
# comes back, one after the other, as soon as the job has noticed. Nothing depends on how fast the machine is.
# $2: sim or rxe.
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"
command -v jq >/dev/null || skip "no jq here"
patience=90

bridge=bridge
unshare -n ip link add sbprobe type bridge 2>/dev/null || bridge=router
rails up --device "$device" --switch $bridge >"$work/up" 2>&1 || fail "up --device $device: $(cat "$work/up")"
# A short hold-down, as each return is followed by the next fault.
export SWITCHBACK_HOLDDOWN_MS=20
job_start sendrecv --min-bytes 64K --max-bytes 64K

# moves PORTS FAULT [--way WAY]: the traffic leaves rail 0 and comes back to it.
moves() {
	local begin=$SECONDS at=()
	rails cut "$1" --how "${@:2}" || fail "cut $*"
	at+=($((SECONDS - begin)))
	wait_until $patience job_is_on 1 || job_fail "$*: not left"
	at+=($((SECONDS - begin)))
	rails restore "$1" || fail "restore after $*"
	at+=($((SECONDS - begin)))
	wait_until $patience job_is_on 0 || job_fail "$*: no return"
	echo "$*: cut after ${at[0]} s, left after ${at[1]} s, restored after ${at[2]} s, back after $((SECONDS - begin)) s"
}
moves host0.rail0 down
moves host1.rail0 port-down
[ $bridge = router ] || moves host1.rail0 blocked
moves host1.rail0 blackhole
moves host1.rail0 blackhole --way in
moves host1.rail0 blackhole --way out
moves host0.rail0 no-address

goes_on() { # of two reports the second is wholly of the time after
	local count
	for _ in 1 2; do
		count=$(job_verified)
		wait_until $patience job_verified_more "$count" || job_fail "$1: nothing is delivered"
	done
}

# A device that is gone doesn't come back for a process that had it open.
rails cut host0.rail0 --how no-device || fail "cut no-device"
wait_until $patience job_is_on 1 || job_fail "no-device: not left"
rails restore host0.rail0 || fail "restore after no-device"
goes_on no-device
echo "host0.rail0 no-device: left"
job_end
echo "$(jq .verify.messages "$work/json") messages right"

# What a link is allowed to do, all at once, wherever the job prefers to be meanwhile: a new job, which finds the device that
# was made again.
job_start sendrecv --min-bytes 64K --max-bytes 64K
for fault in loss=1% delay=1ms duplicate=1% reorder=1% corrupt=1%; do
	if ! rails cut rail0 --how $fault 2>"$work/refused"; then
		grep -q 'no netem' "$work/refused" || fail "cut $fault: $(cat "$work/refused")"
		echo "$fault: not tried: this kernel has no netem"
	fi
done
goes_on "a bad link"
rails restore rail0 || fail "restore after a bad link"
goes_on "after a bad link"
echo "loss, delay, duplicates, reordering and corruption at once: went on"

job_end
echo "ok: $(jq .verify.messages "$work/json") messages right"
