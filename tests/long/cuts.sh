#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Long run, by hand: streaming with a cut or a restore every second, alternating rails, of one kind of fault or of both in
# turn; then the spread of blackouts and gaps.
#   tests/long/cuts.sh [--seconds 60] [--kind down|blackhole|both] [--op sendrecv|all_reduce] [--period 1000] [--bytes 64K] [--json FILE]
#                      [--no-check] [BUILD_FOLDER]
# --period: milliseconds from a cut to its restore, and from there to the next cut.
# Exit status: 0 every byte right, every cut of a rail in use survived, traffic back on the primary at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage="usage: tests/long/cuts.sh [--seconds 60] [--kind down|blackhole|both] [--op sendrecv|all_reduce] [--period 1000] [--bytes 64K] [--json FILE] [--no-check] [BUILD_FOLDER]"
seconds=60 kind=both op=sendrecv period=1000 bytes=64K build=build json="" check=--check
while [ $# -gt 0 ]; do
	case $1 in
	--seconds | --kind | --op | --period | --bytes | --json) [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; } ;;&
	--seconds) seconds=$2; shift ;;
	--kind) kind=$2; shift ;;
	--op) op=$2; shift ;;
	--period) period=$2; shift ;;
	--bytes) bytes=$2; shift ;;
	--json) json=$2; shift ;;
	--no-check) check="" ;;
	--help) echo "$usage"; exit 0 ;;
	-*) echo "$usage" >&2; exit 2 ;;
	*) build=$1 ;;
	esac
	shift
done
[ -x "$build/switchback" ] || { echo "tests/long/cuts.sh: no switchback is built in $build" >&2; exit 2; }
case $kind in
down | blackhole) kinds=("$kind") ;;
both) kinds=(down blackhole) ;;
*) echo "--kind '$kind': down, blackhole or both is wanted" >&2; exit 2 ;;
esac

# Connections start on rail0 (sendrecv) or on both (all_reduce, two ranks a host). A cut of rail1 hits what is on it then.
options=() ranks=2
[ "$op" = sendrecv ] || { options+=(--ranks-per-host 2); ranks=4; }
cuts=0
for ((t = period; t + period < seconds * 1000 - 2000; t += 2 * period)); do
	rail=$((cuts % 2)) how=${kinds[$((cuts / 2 % ${#kinds[@]}))]}
	options+=(--fault "${t}ms cut rail$rail $how" --fault "$((t + period))ms restore rail$rail")
	cuts=$((cuts + 1))
done

work=$(mktemp -d)
fabric=long-$$
"$build/switchback" fabric create "$fabric" >/dev/null
trap '"$build/switchback" fabric destroy "$fabric"; rm -rf "$work"' EXIT
echo "== $op, $cuts cuts of kind $kind in $seconds s, $ranks ranks, one every $((2 * period)) ms"
status=0
# shellcheck disable=SC2086 # empty or one option
"$build/switchback" perf "$op" --fabric "$fabric" --max-bytes "$bytes" --duration "${seconds}s" $check "${options[@]}" \
	--json "$work/json" >"$work/out" 2>&1 || status=$?
[ -z "$json" ] || cp "$work/json" "$json"
sed -n '/^bandwidth/,$p' "$work/out" | grep -v '^ *[0-9.]* *[0-9]* -> '
jq -r 'def row($name): "\($name)|\(length)|\(.[(length * 0.5 | ceil) - 1])|\(.[(length * 0.99 | ceil) - 1])|\(.[-1])";
	"kind|count|p50 ms|p99 ms|max ms",
	(["down", "blackhole"][] as $k | [.failovers[] | select(.cause | endswith($k)).blackout_ms | numbers] | sort |
	 select(length > 0) | row($k)),
	([.failbacks[].gap_ms | numbers] | sort | select(length > 0) |
	 row("gap")),
	([.failbacks[].since_restore_ms | numbers] | sort | select(length > 0) |
	 row("return")),
	"failovers \(.failovers | length), without a fault \([.failovers[] | select(.cause | contains(" after ") | not)] | length), failbacks \(.failbacks | length)"' \
	"$work/json" | column -t -s "|"
[ $status = 0 ] || { tail -n 40 "$work/out"; echo "== FAILED: exit status $status"; exit 1; }
if [ -n "$check" ]; then
	jq -e '.verify.errors == 0 and .verify.messages > 0' "$work/json" >/dev/null || { echo "== FAILED: wrong bytes"; exit 1; }
fi
# The last seconds are without faults: all traffic of a connection that starts on rail0 must be there again.
if [ "$op" = sendrecv ]; then
	jq -e '([.timeline[].t_ms] | max) as $last | [.timeline[] | select(.t_ms > $last - 500 and .rail == "rail1").gbit_s] | add == 0' \
		"$work/json" >/dev/null || { echo "== FAILED: traffic did not return to rail0"; exit 1; }
fi
echo "== passed"
