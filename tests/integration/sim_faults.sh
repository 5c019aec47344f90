#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ports of a fabric cut and restored beneath running stock programs: short black holes and cuts are
# survived, long ones end in the error that a real NIC gives, events come, lossy ports lose nothing.
set -u
. "$(dirname "$0")/lib/sim.sh"
need ibv_rc_pingpong ibv_asyncwatch ibv_devinfo
fabric_make
sb="$build/switchback fabric"

packets() {
	$sb status "$fabric" | awk '$1 == "host0.rail0" { print $6 }'
}

moved_on() {
	[ "$(packets)" -gt "$1" ]
}

moves() {
	local before
	before=$(packets)
	wait_until moved_on "$before"
}

gone() {
	! kill -0 "$1" 2> /dev/null
}

one_gone() {
	gone $client || gone $server
}

# A ping-pong that runs until it is killed: $server and $client.
endless() {
	local port
	port=$(free_port)
	start 0 "$work/server" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000 "$@"
	server=$pid
	wait_listening "$port" || fail "the server doesn't listen: $(cat "$work/server")"
	start 1 "$work/client" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000 "$@" 127.0.0.1
	client=$pid
	moves || fail "no traffic: $(cat "$work/client" "$work/server")"
}

end_both() {
	kill -9 $server $client 2> /dev/null
	wait $server $client 2> /dev/null
}

# A cut well below the patience of ibv_rc_pingpong (0.54 s). On a machine so busy that it lasted
# longer, it says nothing: again, with a new pair.
short_cut() {
	local try from long
	for try in 1 2 3 4 5 6 7 8; do
		from=$(date +%s%N)
		$sb cut "$fabric" host1.rail0 --how "$1" || fail "cut by $1"
		$sb restore "$fabric" host1.rail0 || fail "restore"
		[ $(($(date +%s%N) - from)) -lt 300000000 ]
		long=$?
		moves && return 0
		[ $long = 0 ] && return 1
		end_both
		endless $events
	done
	return 1
}

start 0 "$work/events" stdbuf -oL ibv_asyncwatch -d sbr0
watcher=$pid
wait_until grep -q 'async event FD' "$work/events" || fail "ibv_asyncwatch: $(cat "$work/events")"

for events in "" -e; do
	endless $events
	for how in blackhole down loss=100%; do
		short_cut $how || fail "a short $how wasn't survived ($events): $(cat "$work/client")"
	done
	for how in loss=2% duplicate reorder corrupt=2% delay=2ms slow=100M; do
		$sb cut "$fabric" rail0 --how $how || fail "cut by $how"
		moves || fail "nothing moves with $how ($events)"
		$sb restore "$fabric" all || fail "restore"
	done
	$sb cut "$fabric" rail1 || fail "cut rail1"
	moves || fail "the other rail matters"
	$sb restore "$fabric" all
	# Out of retries: 8 times 67 ms.
	$sb cut "$fabric" rail0 --how blackhole --way out || fail "cut"
	# Whose turn it was to send notices; the other waits for a message, and nobody tells it.
	wait_until one_gone || fail "a black hole for good is no error"
	grep -q 'transport retry counter exceeded' "$work/client" "$work/server" ||
		fail "another error: $(cat "$work/client" "$work/server")"
	$sb restore "$fabric" all
	end_both
done

# host0.rail0 was not cut itself yet: rail0 is now, then the whole device.
kill -0 $watcher || fail "ibv_asyncwatch ended: $(cat "$work/events")"
! grep -q PORT "$work/events" || fail "events of another port: $(cat "$work/events")"
$sb cut "$fabric" rail0
wait_until grep -q PORT_ERR "$work/events" || fail "no PORT_ERR"
on 0 ibv_devinfo -d sbr0 | grep -q PORT_DOWN || fail "the port isn't down"
on 0 ibv_devinfo -d sbr1 | grep -q PORT_ACTIVE || fail "the other port isn't up"
$sb restore "$fabric" host0.rail0
wait_until grep -q PORT_ACTIVE "$work/events" || fail "no PORT_ACTIVE"
$sb cut "$fabric" host0.rail0 --how die
wait_until grep -q DEVICE_FATAL "$work/events" || fail "no DEVICE_FATAL"
on 0 ibv_devinfo -d sbr0 > /dev/null 2>&1 && fail "a dead device opens"
$sb restore "$fabric" all
on 0 ibv_devinfo -d sbr0 > /dev/null || fail "a restored device doesn't open"
kill $watcher

$sb destroy "$fabric" || fail "destroy"
$sb status "$fabric" 2> "$work/err" && fail "a destroyed fabric has a status"
grep -q "no fabric '$fabric'" "$work/err" || fail "unclear: $(cat "$work/err")"
[ -z "$(ls -d /dev/shm/switchback-fabric-$fabric 2> /dev/null)" ] || fail "state is left"
echo "ok"
