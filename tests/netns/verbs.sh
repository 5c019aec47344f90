#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Stock verbs programs in namespaces: ping-pong over each rail, and the events of a port whose netdev
# loses its carrier or its address. $2: sim or rxe.
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"
for program in ibv_devinfo ibv_rc_pingpong ibv_asyncwatch; do
	command -v $program >/dev/null || skip "no $program here (package ibverbs-utils)"
done
if [ "$device" = sim ] && nm -D --undefined-only "$build/sim/libibverbs.so.1" | grep -qE '__(a|t)san_init'; then
	skip "stock programs don't load a library with sanitizers"
fi

rails up --device "$device" >"$work/up" 2>&1 || fail "up --device $device: $(cat "$work/up")"
rails exec host0 ibv_devinfo -v -d "$(verbs_device 0 1)" >"$work/devinfo" || fail "ibv_devinfo failed"
grep -q 'active_mtu:.*4096' "$work/devinfo" || fail "no RDMA MTU of 4096: $(cat "$work/devinfo")"
grep -q 'GID.*198\.18\.1\.1' "$work/devinfo" || fail "no GID of the rail's address: $(cat "$work/devinfo")"

pingpong() { # RAIL ARGUMENTS
	local rail=$1 server
	shift
	start 1 "$work/server" timeout 60 ibv_rc_pingpong -d "$(verbs_device 1 "$rail")" -g "$(gid_index 1 "$rail")" "$@"
	server=$!
	wait_until 30 rails exec host1 bash -c 'grep -q ":4853 .* 0A " /proc/net/tcp /proc/net/tcp6' ||
		fail "the server doesn't listen: $(cat "$work/server")"
	rails exec host0 timeout 60 ibv_rc_pingpong -d "$(verbs_device 0 "$rail")" -g "$(gid_index 0 "$rail")" "$@" \
		198.19.0.2 >"$work/client" 2>&1 || fail "ping-pong on rail$rail: $(cat "$work/client")"
	wait $server || fail "server on rail$rail: $(cat "$work/server")"
	grep -q 'usec/iter' "$work/client" || fail "nothing measured: $(cat "$work/client")"
}
pingpong 0 -n 100
pingpong 1 -n 100 -e
pingpong 1 -n 20 -s 1000000 -m 4096

# The events of the port; a second process on the device sees them as well.
for watcher in 1 2; do
	start 0 "$work/events$watcher" stdbuf -oL ibv_asyncwatch -d "$(verbs_device 0 0)"
done
seen() { # COUNT WORDS
	for watcher in 1 2; do
		[ "$(grep -c "$2" "$work/events$watcher")" -ge "$1" ] || return 1
	done
}
wait_until 30 seen 1 'async event FD' || fail "ibv_asyncwatch doesn't start: $(cat "$work/events1")"
rails cut host0.rail0
wait_until 30 seen 1 PORT_ERR || fail "no PORT_ERR: $(cat "$work/events1" "$work/events2")"
rails exec host0 ibv_devinfo -d "$(verbs_device 0 0)" | grep -q PORT_DOWN || fail "the port isn't down"
rails restore rail0
wait_until 30 seen 1 PORT_ACTIVE || fail "no PORT_ACTIVE: $(cat "$work/events1")"
# The far end of the cable.
rails cut host1.rail0
wait_until 30 seen 2 PORT_ERR || fail "no PORT_ERR of the far end: $(cat "$work/events1")"
rails restore rail0
wait_until 30 seen 2 PORT_ACTIVE || fail "no second PORT_ACTIVE: $(cat "$work/events1")"
pingpong 0 -n 50

# The address goes and comes.
changes=$(grep -c GID_CHANGE "$work/events1")
rails exec host0 ip addr del 198.18.0.1/24 dev rail0
wait_until 30 seen $((changes + 1)) GID_CHANGE || fail "no GID_CHANGE: $(cat "$work/events1")"
rails exec host0 ibv_devinfo -v -d "$(verbs_device 0 0)" | grep -q '198\.18\.0\.1' &&
	fail "the GID is left though the address is gone"
rails exec host0 ip addr add 198.18.0.1/24 dev rail0
has_gid() { rails exec host0 ibv_devinfo -v -d "$(verbs_device 0 0)" | grep -q '198\.18\.0\.1'; }
wait_until 30 has_gid || fail "the GID doesn't come back with the address"
if [ "$device" = sim ]; then
	pingpong 0 -n 50
fi
echo ok
