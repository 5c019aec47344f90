#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a run leaves behind: pictures, events, counters for `switchback status`, devices.
set -u
. "$(dirname "$0")/lib/perf.sh"
make_fabric

# Pictures.
if command -v gnuplot >/dev/null; then
	perf 0 all_reduce --max-bytes 256K --duration 1200ms --fault "400ms cut rail0" --plot "$work/x.svg"
	grep -q '^<svg' "$work/x.svg" && grep -q '</svg>' "$work/x.svg" && grep -q 'rail1' "$work/x.svg" || fail "x.svg is no picture"
	perf 0 sendrecv --max-bytes 256K --duration 500ms --plot "$work/x.png"
	[ "$(head -c 8 "$work/x.png" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "x.png is no picture"
	[ "$(tail -c 8 "$work/x.png" | od -An -tx1 | tr -d ' ')" = 49454e44ae426082 ] || fail "x.png is cut off"
else
	echo "pictures were not tried: no gnuplot"
fi

# The JSON may go to a pipe; a file appears only when it is complete.
"$switchback" perf sendrecv --fabric "$fabric" --max-bytes 4K --iters 10 --json /dev/stderr 2>&1 >/dev/null | jq -e '.ranks == 2' >/dev/null ||
	fail "JSON to a pipe"

# Events as JSON lines; counters of running processes; both formats.
export SWITCHBACK_EVENTS=$work/events
timeout 60 "$switchback" perf sendrecv --fabric "$fabric" --max-bytes 64K --duration 4s --fault "1s cut rail0" \
	--fault "1500ms restore rail0" >"$work/out" 2>"$work/err" &
runner=$!
unset SWITCHBACK_EVENTS
wait_until 20 grep -q 'failback to' "$work/out" || fail "no failback"
sleep 0.5 # counters are at most 0.2 s old
pid=$(rank_pid 0)
"$switchback" status "$pid" >"$work/status" || fail "status of rank 0"
grep -q "^process $pid" "$work/status" && grep -q 'failover' "$work/status" || fail "status shows no failover: $(cat "$work/status")"
"$switchback" status "$pid" --json | jq -e '.[0] | .pid == '"$pid"' and .events.failover >= 1 and
	(.connections | length) == 2 and ([.connections[].failbacks] | add) >= 1 and
	([.connections[].paths[].bytes] | add) > 0 and (.ports | length) == 2' >/dev/null ||
	fail "status --json: $("$switchback" status "$pid" --json)"
"$switchback" status --prometheus >"$work/prometheus"
grep -q "^switchback_connection_failovers_total{pid=\"$pid\",.*} [1-9]" "$work/prometheus" || fail "no failover in --prometheus"
if command -v promtool >/dev/null; then
	promtool check metrics <"$work/prometheus" || fail "promtool"
fi
[ "$(stat -c %a /dev/shm/switchback-counters.*."$pid".*)" = 600 ] || fail "others may read the counters"
wait $runner || fail "exit status $?"
[ -z "$(find /dev/shm -name "switchback-counters.*.$pid.*")" ] || fail "counters are left behind"
jq -es 'map(.event) | contains(["suspect", "fenced", "sync", "failover", "proven", "failback"])' "$work/events" >/dev/null ||
	fail "an event is missing: $(jq -r .event "$work/events" | sort | uniq -c)"

# Devices.
"$switchback" devices --fabric "$fabric" --host 1 >"$work/devices" || fail devices
grep -q 'sbr0:1' "$work/devices" && grep -q 'backups: sbr1:1 (' "$work/devices" || fail "devices: $(cat "$work/devices")"
"$switchback" devices --fabric "$fabric" --json | jq -e 'length == 2 and .[0].device == "sbr0" and .[1].backups == ["sbr0:1"] and
	(.[0] | has("gid") and has("speed_mbps") and has("numa_node") and has("netdev") and .rail == 0 and .backup_reason != "")' \
	>/dev/null || fail "devices --json"
echo passed
