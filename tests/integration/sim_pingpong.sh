#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs of rdma-core, unchanged, on the simulated device: ibv_devices, ibv_devinfo,
# ibv_rc_pingpong between two processes, polling and with events, of many sizes and MTUs; then the
# ping-pongs by shared receive queue and by datagrams.
set -u
. "$(dirname "$0")/lib/sim.sh"
need ibv_devices ibv_devinfo ibv_rc_pingpong ibv_srq_pingpong ibv_ud_pingpong
fabric_make

on 0 ibv_devices > "$work/devices" || fail "ibv_devices failed"
grep -q 'sbr1 .*0102$' "$work/devices" || fail "ibv_devices doesn't list sbr1: $(cat "$work/devices")"
on 1 ibv_devinfo -v > "$work/devinfo" || fail "ibv_devinfo failed"
for line in 'hca_id:.*sbr0' 'hca_id:.*sbr1' 'fw_ver:.*switchback' 'max_qp:.*16384' 'max_srq:.*1048576' \
	'atomic_cap:.*ATOMIC_NONE' 'state:.*PORT_ACTIVE' 'link_layer:.*Ethernet' 'active_mtu:.*4096' \
	'active_width:.*4X' 'active_speed:.*25.0 Gbps'; do
	grep -q "$line" "$work/devinfo" || fail "ibv_devinfo doesn't show '$line': $(cat "$work/devinfo")"
done
grep -q 'GID\[ *1\]:.*::ffff:127\..*RoCE v2' "$work/devinfo" || fail "ibv_devinfo shows no IPv4 GID"

# No fabric: no devices and no complaint. A wrong one: no devices and a line that names the variable.
SWITCHBACK_FABRIC='' run_stock ibv_devices > "$work/out" 2> "$work/err" || fail "no fabric is no error"
[ ! -s "$work/err" ] || fail "no fabric, and yet: $(cat "$work/err")"
for wrong in "SWITCHBACK_FABRIC=$fabric SWITCHBACK_HOST=" "SWITCHBACK_FABRIC=$fabric SWITCHBACK_HOST=2" \
	"SWITCHBACK_FABRIC=$fabric SWITCHBACK_HOST=x" "SWITCHBACK_FABRIC=nobody SWITCHBACK_HOST=0"; do
	(
		export ${wrong?}
		run_stock ibv_devices
	) > /dev/null 2> "$work/err" && fail "$wrong was taken"
	[ "$(grep -c '^libibverbs (switchback): SWITCHBACK_' "$work/err")" = 1 ] ||
		fail "$wrong: not one clear line: $(cat "$work/err")"
done

pingpong() {
	local port program=${program:-ibv_rc_pingpong}
	port=$(free_port)
	start 0 "$work/server" timeout 60 $program -p "$port" -d sbr0 -g 1 "$@"
	wait_listening "$port" || fail "server of '$*' doesn't listen: $(cat "$work/server")"
	on 1 timeout 60 $program -p "$port" -d sbr0 -g 1 "$@" 127.0.0.1 > "$work/client" 2>&1 ||
		fail "client of '$*': $(cat "$work/client")"
	wait $pid || fail "server of '$*': $(cat "$work/server")"
	grep -q 'usec/iter' "$work/client" || fail "'$*' measured nothing: $(cat "$work/client")"
}

for events in "" -e; do
	for size in 1 4096 65536 1048576 8388608; do
		iterations=500
		[ $size -gt 100000 ] && iterations=20
		pingpong $events -s $size -n $iterations
	done
	for mtu in 256 512 1024 2048 4096; do
		pingpong $events -m $mtu -s 10000 -n 100
	done
done
# -c checks what arrives.
pingpong -c -s 100000 -n 50
# GID 0 is the link-local one.
pingpong -g 0 -n 50
for events in "" -e; do
	program=ibv_srq_pingpong pingpong $events -q 4 -s 20000 -n 500
	program=ibv_ud_pingpong pingpong $events -s 2000 -n 300
done
echo "ok"
