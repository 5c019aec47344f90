#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job: rails are cut and restored under load, and every byte arrives once.
set -u
. "$(dirname "$0")/lib/perf.sh"
make_fabric

script=(--duration 4s --fault "1s cut rail0 HOW" --fault "2s restore rail0" --fault "3s cut rail1 HOW"
	--fault "3.4s restore rail1")
for how in down blackhole; do
	# Point to point, both directions at once, on one rail.
	perf 0 sendrecv --max-bytes 256K --check "${script[@]//HOW/$how}"
	expect_verified
	expect '[.failovers[] | select(.from == "rail0" and .blackout_ms < 1000)] | length >= 2'
	expect '[.failbacks[] | select(.to == "rail0")] | length >= 2'
	expect '.bandwidth_gbit_s | .before > 0 and .during > 0 and .after > 0'
	expect '.op == "sendrecv" and .ranks == 2 and .bytes > 0 and .seconds > 3'
	expect '.timeline | length > 500 and (map(.rail) | unique) == ["rail0", "rail1"]'

	# A ring over two hosts with two ranks each: both rails carry traffic.
	perf 0 all_reduce --ranks-per-host 2 --max-bytes 1M --check "${script[@]//HOW/$how}"
	expect_verified
	expect '[.failovers[].from] | unique == ["rail0", "rail1"]'
	expect '[.failbacks[].to] | contains(["rail0"])'
done

# The other collectives, with a cut of one host's port; sweep of sizes; no fault.
perf 0 all_gather --ranks-per-host 2 --max-bytes 1M --check --duration 2500ms \
	--fault "500ms cut host1.rail0" --fault "1s restore host1.rail0"
expect_verified
expect '.failovers | length >= 1'
perf 0 reduce_scatter --ranks-per-host 2 --max-bytes 1M --check --duration 2500ms \
	--fault "500ms cut host0.rail1 blackhole out" --fault "1s restore host0.rail1"
expect_verified
expect '.failovers | length >= 1'
for op in sendrecv all_gather reduce_scatter all_reduce; do
	perf 0 $op --min-bytes 8 --max-bytes 4M --factor 8 --iters 20 --check
	expect_verified
	expect '[.sizes[].iterations] == [20, 20, 20, 20, 20, 20, 20]'
done

# The only path that is left is in hold-down: it is used all the same.
SWITCHBACK_HOLDDOWN_MS=5000 perf 0 sendrecv --max-bytes 64K --check --duration 4s --fault "500ms cut rail0 down" \
	--fault "1s restore rail0" --fault "1500ms cut rail1 down"
expect_verified
expect '[.timeline[] | select(.rail == "rail0" and .t_ms > 2500 and .t_ms < 3900).gbit_s] | add > 0'

# On the backups from the beginning.
perf 0 sendrecv --max-bytes 256K --duration 1s --check --force-backup
expect_verified
expect '[.timeline[] | select(.rail == "rail1").gbit_s] | add > 0'

# Without failover, the first error is final: said clearly, soon.
perf 1 sendrecv --max-bytes 256K --check --no-failover --duration 20s --fault "1s cut rail0 down"
expect '.seconds < 10 and (.errors | length) >= 1'
grep -q '^switchback perf: rank [01] .*sbr0' "$work/err" || fail "the error does not name the port"
echo passed
