#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# UCX, unchanged, over its verbs transports: wire-up by datagrams, messages by RC, tag matching and
# bare transport, data checked by UCX itself. UCX wants to see character devices /dev/infiniband/uverbsN
# before it asks libibverbs: this test has a /dev of its own, in a mount namespace.
set -u
if [ -z "${SIM_UCX_INSIDE:-}" ]; then
	if ! command -v ucx_perftest > /dev/null; then
		echo "skipped: no ucx_perftest here (package ucx-utils)"
		exit 77
	fi
	if ! unshare -rm true 2> /dev/null; then
		echo "skipped: no user namespaces, or not the right to mount in one"
		exit 77
	fi
	SIM_UCX_INSIDE=1 exec unshare -rm --propagation private bash "$0" "$@"
fi
. "$(dirname "$0")/lib/sim.sh"

# /dev/shm is another one, too: nothing that this test removes can be somebody else's.
dev=$work/dev
mkdir "$dev"
mount -t tmpfs tmpfs "$dev" || fail "no tmpfs"
mkdir "$dev/shm" "$dev/infiniband"
for node in null zero random urandom; do
	touch "$dev/$node"
	mount --bind "/dev/$node" "$dev/$node" || fail "no /dev/$node"
done
for device in uverbs0 uverbs1; do
	touch "$dev/infiniband/$device"
	mount --bind /dev/null "$dev/infiniband/$device" || fail "no node to stand in"
done
ln -s /proc/self/fd "$dev/fd"
mount --rbind "$dev" /dev || fail "no /dev of our own"
umount -R -l "$dev" || fail "the new /dev can't be let go of"

fabric_make
export UCX_NET_DEVICES=sbr0:1 UCX_TLS=rc_verbs,ud_verbs,self

ucx() { # ARGUMENTS of ucx_perftest: both ends, and a result
	local port
	port=$(free_port)
	start 0 "$work/server" timeout 60 ucx_perftest -p "$port" "$@"
	wait_listening "$port" || fail "server of '$*' doesn't listen: $(cat "$work/server")"
	on 1 timeout 60 ucx_perftest -p "$port" 127.0.0.1 "$@" > "$work/client" 2>&1 ||
		fail "client of '$*': $(cat "$work/client")"
	wait $pid || fail "server of '$*': $(cat "$work/server")"
	grep -Eq '^Final: +[1-9]' "$work/client" || fail "'$*' gives no figures: $(cat "$work/client" "$work/server")"
	! grep -q ERROR "$work/client" "$work/server" || fail "'$*': $(cat "$work/client" "$work/server")"
}

ucx -t tag_lat -s 8 -n 500
ucx -t tag_bw -s 65536 -n 200
ucx -t tag_bw -s 1000000 -n 20
ucx -t ucp_put_bw -s 65536 -n 200
ucx -t ucp_get -s 65536 -n 100
for transport in rc_verbs ud_verbs; do
	ucx -d sbr0:1 -x $transport -t am_lat -s 8 -n 500
	ucx -d sbr0:1 -x $transport -D bcopy -t am_bw -s 2000 -n 500
done
ucx -d sbr0:1 -x rc_verbs -t put_lat -s 8 -n 500
ucx -d sbr0:1 -x rc_verbs -D zcopy -t get -s 60000 -n 200
"$build/switchback" fabric status "$fabric" | awk '$1 == "host1.rail0" { exit !($8 > 10000000) }' ||
	fail "the traffic went elsewhere: $("$build/switchback" fabric status "$fabric")"
echo "ok"
