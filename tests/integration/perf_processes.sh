#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What happens to processes is no link failure: killed, stopped, and no path at all.
set -u
. "$(dirname "$0")/lib/perf.sh"
make_fabric

start() { # OPTIONS…: in the background
	rm -f "$work/json"
	timeout 120 "$switchback" perf sendrecv --fabric "$fabric" --json "$work/json" "$@" >"$work/out" 2>"$work/err" &
	runner=$!
	wait_until 20 grep -q 'Gbit/s:' "$work/out" || fail "no traffic"
}

finish() { # STATUS
	local status=0
	wait "$runner" || status=$?
	[ $status = "$1" ] || fail "exit status $status, $1 wanted"
}

# SIGKILL: the other one says that its peer is dead, within a second, and fails over to nothing.
start --max-bytes 64K --check --duration 20s
victim=$(rank_pid 1)
kill -9 "$victim"
killed=$(date +%s.%N)
wait_until 10 grep -q 's  rank 0 ' "$work/out" || fail "rank 0 did not report"
finish 1
expect '.failovers == [] and .seconds < 10'
grep -q '^switchback perf: rank 0 .*\(dead\|gone\)' "$work/err" || fail "the peer's death is not named"
grep -q "^switchback perf: rank 1 .*signal 9" "$work/err" || fail "the killed rank is not named"
dead=$(sed -n 's/^ *\([0-9.]*\) s  rank 1 .*signal 9.*/\1/p' "$work/out")
told=$(sed -n 's/^ *\([0-9.]*\) s  rank 0 .*/\1/p' "$work/out")
awk -v dead="$dead" -v told="$told" 'BEGIN { exit !(told - dead < 1) }' ||
	fail "killed at ${dead:-?} s, reported at ${told:-?} s"

# SIGSTOP for 3 s: silence, no failover, no error, and on it goes.
start --max-bytes 64K --check --duration 6s
victim=$(rank_pid 1)
kill -STOP "$victim"
sleep 3
kill -CONT "$victim"
finish 0
expect_verified
expect '.failovers == []'
expect '[.timeline[] | select(.t_ms > 5500).gbit_s] | add > 0'

# Both rails away for 5 s, then one comes back.
perf 0 sendrecv --max-bytes 64K --check --duration 8s --fault "1s cut all down" --fault "6s restore rail0"
expect_verified
expect '[.timeline[] | select(.t_ms > 1500 and .t_ms < 5900).gbit_s] | add == 0'
expect '[.timeline[] | select(.t_ms > 7000).gbit_s] | add > 0'

# None comes back: an error within the stated time.
export SWITCHBACK_ALL_DOWN_TIMEOUT=2
perf 1 sendrecv --max-bytes 64K --check --duration 20s --fault "500ms cut all blackhole"
expect '.seconds < 10 and (.errors | length) >= 1'
unset SWITCHBACK_ALL_DOWN_TIMEOUT

# A run that is killed leaves nothing that hinders the next one.
start --max-bytes 64K --duration 20s
rank0=$(rank_pid 0)
pkill -9 -P "$runner" # the child of timeout: switchback itself
wait "$runner" 2>/dev/null || true
gone() { ! kill -0 "$rank0" 2>/dev/null; }
wait_until 5 gone || fail "rank 0 outlives its parent"
perf 0 sendrecv --max-bytes 64K --iters 100 --check
expect_verified
"$switchback" fabric create "$fabric" >/dev/null || fail "a fabric that nobody uses is not replaced"
[ -z "$(find /dev/shm -name "switchback-counters.*.$rank0.*")" ] || "$switchback" status >/dev/null
echo passed
