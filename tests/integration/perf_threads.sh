#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A run whose figures another process reads all the while, with a rail that goes and comes back:
# short, and meant for the build with ThreadSanitizer. There everything is slow, and silence of
# 20 ms says nothing: the stall time is longer here.
set -u
. "$(dirname "$0")/lib/perf.sh"
make_fabric
export SWITCHBACK_STALL_MS=300

watch_status() {
	local seen=0
	until [ -e "$work/done" ]; do
		"$switchback" status --json >"$work/status" 2>"$work/status-errors" && seen=$((seen + 1))
		! grep -q ThreadSanitizer "$work/status-errors" || return 1
	done
	[ $seen -gt 0 ]
}

watch_status &
watcher=$!
perf 0 all_reduce --min-bytes 64K --max-bytes 64K --check --duration 5s \
	--fault "1s cut rail0 down" --fault "2s restore rail0"
touch "$work/done"
wait $watcher || fail "status: $(cat "$work/status-errors")"
expect_verified
expect '(.failovers | length) >= 2 and (.failbacks | length) >= 2'
! grep -q ThreadSanitizer "$work/out" "$work/err" || fail "ThreadSanitizer"
echo "ok"
