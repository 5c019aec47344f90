#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rails.sh and cut.sh themselves, without RDMA: what is made, cut, restored, refused and cleared away.
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"

ping_once() { rails exec "host$1" ping -q -c 1 -W 1 "$2" >/dev/null; }
lost_once() { ! ping_once "$@"; }
refused() {
	rails "$@" >"$work/out" 2>&1 && fail "'$*' was not refused"
	[ "$(grep -c '^rails.sh: ' "$work/out")" = 1 ] || fail "'$*': not one clear line: $(cat "$work/out")"
}

refused cut rail0
refused up --hosts 0
refused up --rails x
refused up --hosts 3 --switch none
refused up --device mlx
rails down >/dev/null || fail "down of nothing is an error"

# A namespace that somebody else made is left alone.
ip netns add "$name-host1"
refused up
ip netns exec "$name-host1" true || fail "the stranger's namespace is gone"
ip netns del "$name-host1"

for switch in none bridge router; do
	if [ "$switch" = bridge ] && ! unshare -n ip link add sbprobe type bridge 2>/dev/null; then
		echo "not tried: this kernel has no bridge"
		continue
	fi
	rails up --hosts 2 --rails 2 --switch "$switch" >"$work/up" || fail "up --switch $switch: $(cat "$work/up")"
	rails up --hosts 2 --rails 2 --switch "$switch" | grep -q already || fail "a second up is not idempotent"
	[ "$(rails status | grep -c ' up ')" = 4 ] || fail "$switch: not all ports are up: $(rails status)"
	for rail in 0 1; do
		ping_once 0 198.18.$rail.2 || fail "$switch: rail$rail doesn't carry"
	done
	ping_once 1 198.19.0.1 || fail "$switch: the management network doesn't carry"
	rails exec host0 ip link show rail0 | grep -q 'mtu 9000' || fail "no room for an RDMA MTU of 4096"

	rails cut host0.rail0 || fail "cut failed"
	lost_once 0 198.18.0.2 || fail "$switch: a rail that is down carries"
	ping_once 0 198.18.1.2 || fail "$switch: the other rail went down too"
	ping_once 0 198.19.0.2 || fail "$switch: the management network went down too"
	if [ "$switch" = none ]; then
		rails status | grep -q 'host1.rail0 .*no-carrier' || fail "the far end of a cable keeps its carrier"
	fi
	rails restore rail0 || fail "restore failed"
	wait_until 5 ping_once 0 198.18.0.2 || fail "$switch: not restored"

	if [ "$switch" != none ]; then
		rails cut host1.rail1 --how port-down
		rails status | grep -q 'host1.rail1 .*no-carrier' || fail "the switch's port is down, the host's isn't"
		rails status | grep -q 'host0.rail1 .* up' || fail "the other host's port went down with the switch's"
		rails restore all
		wait_until 5 ping_once 0 198.18.1.2 || fail "$switch: the switch's port was not restored"
	fi
	if [ "$switch" = bridge ]; then
		rails cut host1.rail1 --how blocked
		lost_once 0 198.18.1.2 || fail "a blocked port carries"
		rails status | grep -q 'host1.rail1 .* up .*blocked' || fail "a blocked port lost its carrier"
		rails restore host1.rail1
		ping_once 0 198.18.1.2 || fail "the blocked port was not restored"
	fi

	rails cut host0.rail1 --how no-address || fail "no-address failed"
	rails cut host0.rail1 --how no-address || fail "no-address twice is an error"
	rails status | grep -q 'host0.rail1 .*none .* up .*no-address' || fail "$switch: status hides it: $(rails status)"
	lost_once 1 198.18.1.1 || fail "$switch: an address that is gone answers"
	rails restore rail1
	wait_until 5 ping_once 1 198.18.1.1 || fail "$switch: the address was not restored"

	# One way only, told apart by counting what arrives: the request does, or the answer doesn't leave.
	arrived() { rails exec "host$1" cat /sys/class/net/rail0/statistics/rx_packets; }
	rails exec host0 ping -q -c 1 198.18.0.2 >/dev/null # the neighbours know each other now
	rails cut host1.rail0 --how blackhole --way in || fail "blackhole in failed"
	lost_once 0 198.18.0.2 || fail "$switch: a black hole carries"
	rails status | grep -q 'host1.rail0 .* up .*loss=100% in' || fail "$switch: status hides it: $(rails status)"
	rails restore rail0
	ping_once 0 198.18.0.2 || fail "$switch: the black hole was not restored"
	rails cut rail0 --how loss=50% --way out
	rails exec host0 ping -q -i 0.01 -c 200 -W 1 198.18.0.2 >"$work/ping"
	received=$(sed -n 's/.* \([0-9]*\) received.*/\1/p' "$work/ping")
	# Both the request and the answer must come through: 50 of 200; 15 to 95 is seven deviations around.
	if [ "$received" -lt 15 ] || [ "$received" -gt 95 ]; then
		fail "$switch: loss of 50 % lets $received of 200 through"
	fi
	rails restore all
	[ "$(rails status | grep -c -- '-$')" = 4 ] || fail "faults are left: $(rails status)"
done

refused cut rail2
refused cut host2.rail0
refused cut switch0
refused cut rail0 --how loss=0
refused cut rail0 --how loss=101%
refused cut rail0 --how sideways
refused cut rail0 --how down --way in
refused cut rail0 --how delay=5
refused cut rail0 --how no-device
refused exec host9 true
rails exec host0 bash -c 'exit 7'
[ $? = 7 ] || fail "exec doesn't pass the exit status"

# Timed cuts around a command: its output and status, and the events in their order.
"$top/netns/cut.sh" --name "$name" --at "0ms cut rail0" --at "10ms run true" --at "20ms restore rail0" -- \
	bash -c 'sleep 60 & while [ ! -f "$0" ]; do sleep 0.05; done; kill %1; echo done; exit 5' "$work/go" \
	>"$work/out" 2>"$work/events" &
cut=$!
wait_until 30 grep -q 'restore rail0 (took' "$work/events" || fail "cut.sh didn't restore: $(cat "$work/events")"
touch "$work/go"
wait $cut
[ $? = 5 ] || fail "cut.sh doesn't pass the exit status"
grep -q 'done' "$work/out" || fail "cut.sh doesn't pass the output"
[ "$(sed -n 's/^cut.sh: [0-9]* ms: \([a-z]*\).*/\1/p' "$work/events" | paste -sd' ')" = "cut run restore" ] ||
	fail "events of cut.sh: $(cat "$work/events")"
"$top/netns/cut.sh" --name "$name" --at "60s cut rail0" -- true 2>/dev/null
[ $? = 3 ] || fail "cut.sh hides that an event came too late"
"$top/netns/cut.sh" --name "$name" --at "soon cut rail0" -- true 2>/dev/null
[ $? = 2 ] || fail "cut.sh takes a bad time"

# What a crash leaves: a record of something half made.
sed -i 's/complete=yes/complete=no/' "/run/switchback-netns/$name/config"
refused status
ip netns del "$name-host1"
rails up --hosts 3 >/dev/null || fail "up doesn't clear away what a crash left"
ping_once 2 198.18.1.1 || fail "three hosts: rail1 doesn't carry"
rails down >/dev/null
ip netns list | grep -q "^$name-" && fail "namespaces are left"
[ ! -e "/run/switchback-netns/$name" ] || fail "the record is left"
echo ok
