#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `switchback fabric` sets when it makes a fabric, and faults of devices: stock programs and
# `switchback perf` see them. Each example of sim/README.md is run here.
set -u
. "$(dirname "$0")/lib/sim.sh"
need ibv_rc_pingpong ibv_srq_pingpong ibv_ud_pingpong ibv_asyncwatch ibv_devinfo
sb="$build/switchback fabric"

pingpong() {
	local port
	port=$(free_port)
	start 0 "$work/server" timeout 60 "$@" -p "$port" -d sbr0
	wait_listening "$port" || fail "server of '$*' doesn't listen: $(cat "$work/server")"
	on 1 timeout 60 "$@" -p "$port" -d sbr0 127.0.0.1 > "$work/client" 2>&1 || fail "client of '$*': $(cat "$work/client")"
	wait $pid || fail "server of '$*': $(cat "$work/server")"
	grep -q 'usec/iter' "$work/client" || fail "'$*' measured nothing: $(cat "$work/client")"
}

shows() {
	on 0 ibv_devinfo -v -d sbr0 > "$work/devinfo" || fail "ibv_devinfo"
	grep -Eq "$1" "$work/devinfo" || fail "ibv_devinfo doesn't show '$1': $(cat "$work/devinfo")"
}

refuses() {
	$sb create "$fabric-x" "$@" 2> "$work/err" && fail "create $* was taken"
	[ "$(wc -l < "$work/err")" = 1 ] || fail "create $*: not one clear line: $(cat "$work/err")"
}

# InfiniBand: LIDs instead of GIDs.
fabric_make --link-layer infiniband --lid 100 --speed 200G --width 8
shows 'link_layer:.*InfiniBand'
shows 'port_lid:.*100'
shows 'active_width:.*8X'
shows 'active_speed:.*25.0 Gbps'
for program in "ibv_rc_pingpong -n 200" "ibv_rc_pingpong -e -n 200" "ibv_srq_pingpong -n 200" "ibv_ud_pingpong -n 200"; do
	pingpong $program
	grep -q 'remote address: LID 0x0064' "$work/client" || fail "'$program' without LIDs: $(cat "$work/client")"
done
pingpong ibv_rc_pingpong -g 0 -n 50
$sb destroy "$fabric"
for options in "--width 3" "--speed fast" "--mtu 1500" "--link-layer token-ring" "--like toaster" "--lid 3" \
	"--link-layer infiniband --lid 49151" "--link-layer infiniband --netns"; do
	refuses $options
done

# Events of GIDs that move and of a link that is trained anew.
fabric_make
start 0 "$work/events" stdbuf -oL ibv_asyncwatch -d sbr0
watcher=$pid
wait_until grep -q 'async event FD' "$work/events" || fail "ibv_asyncwatch: $(cat "$work/events")"
$sb cut "$fabric" rail0 --how gid || fail "gid"
wait_until grep -q GID_CHANGE "$work/events" || fail "no GID_CHANGE: $(cat "$work/events")"
shows 'GID\[ *3\]:.*::ffff:127\..*RoCE v2'
! grep -q 'GID\[ *1\]' "$work/devinfo" || fail "the old index still has a GID"
pingpong ibv_rc_pingpong -g 3 -n 50
port=$(free_port)
start 0 "$work/server" timeout 20 ibv_rc_pingpong -p "$port" -d sbr0 -g 1
wait_listening "$port" || fail "the server doesn't listen: $(cat "$work/server")"
on 1 timeout 20 ibv_rc_pingpong -p "$port" -d sbr0 -g 1 127.0.0.1 > "$work/out" 2>&1 && fail "the old index is taken"
wait $pid && fail "the old index is taken"
grep -q "Failed to modify QP to RTR" "$work/out" "$work/server" || fail "another error: $(cat "$work/out" "$work/server")"
$sb restore "$fabric" all
! grep -q PORT "$work/events" || fail "port events without a reason: $(cat "$work/events")"
$sb cut "$fabric" rail0 --how speed=25G || fail "speed"
wait_until grep -q PORT_ACTIVE "$work/events" || fail "no PORT_ACTIVE: $(cat "$work/events")"
grep -q PORT_ERR "$work/events" || fail "no PORT_ERR: $(cat "$work/events")"
shows 'active_width:.*1X'
shows 'active_speed:.*25.0 Gbps'
$sb status "$fabric" | grep -q '^host0.rail0 .* up .*speed=25000M' || fail "status: $($sb status "$fabric")"
pingpong ibv_rc_pingpong -g 1 -n 50
kill $watcher
$sb restore "$fabric" all

# No memory: the program says so and goes.
$sb cut "$fabric" host0 --how nomem=context || fail "nomem"
on 0 ibv_devinfo -d sbr0 > "$work/out" 2>&1 && fail "a device opens without memory"
$sb cut "$fabric" host0 --how nomem=mr:1 || fail "nomem"
on 0 timeout 20 ibv_rc_pingpong -d sbr0 -g 1 > "$work/out" 2>&1 && fail "memory was registered without memory"
grep -q "Couldn't register MR" "$work/out" || fail "unclear: $(cat "$work/out")"
$sb restore "$fabric" all

# Collectives over a NIC that acknowledges, writes nothing, and then dies: no byte is lost when
# sends wait for the receiver's word.
perf_run() {
	timeout 100 "$build/switchback" perf all_reduce --fabric "$fabric" --hosts 2 --min-bytes 256K \
		--max-bytes 256K --check "$@" > "$work/out" 2>&1 || fail "perf $*: $(cat "$work/out")"
}
SWITCHBACK_SEND_ACK=1 perf_run --duration 2s --fault "500ms cut host1.rail0 unwritten" --fault "600ms cut host1.rail0 die"
$sb restore "$fabric" all
# QPs that stay in ERR are replaced.
perf_run --duration 2s --fault "300ms cut rail0 stuck" --fault "500ms cut rail0 blackhole" --fault "900ms restore rail0"
# The GIDs move while the port is away.
perf_run --duration 3s --fault "500ms cut rail0 down" --fault "700ms cut rail0 gid" --fault "900ms restore rail0"
$sb destroy "$fabric"

# A fabric like rxe: the same cuts, other errors.
fabric_make --like rxe
port=$(free_port)
start 0 "$work/server" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000
server=$pid
wait_listening "$port" || fail "the server doesn't listen"
start 1 "$work/client" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000 127.0.0.1
client=$pid
sent() {
	[ "$($sb status "$fabric" | awk '$1 == "host0.rail0" { print $6 }')" -gt 1000 ]
}
wait_until sent || fail "no traffic: $(cat "$work/client" "$work/server")"
$sb cut "$fabric" all --how down
ended() {
	! kill -0 $server 2> /dev/null || ! kill -0 $client 2> /dev/null
}
wait_until ended || fail "a port that goes down ends nothing"
grep -q 'Work Request Flushed Error' "$work/client" "$work/server" || fail "another error: $(cat "$work/client" "$work/server")"
kill -9 $server $client 2> /dev/null
$sb restore "$fabric" all
perf_run --duration 2s --fault "500ms cut rail0 down" --fault "900ms restore rail0"
echo "ok"
