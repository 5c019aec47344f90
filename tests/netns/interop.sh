#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A simulated device talks to the kernel's rxe: host 0 of a rail is simulated, host 1 is rxe. Stock programs, each side as
# server and as client: ping-pongs whose bytes are checked, RDMA writes and reads, up to 1 MiB, at several MTUs.
# $2: rxe.
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"
for program in ibv_rc_pingpong ib_write_bw ib_read_bw; do
	command -v $program >/dev/null || skip "no $program here (package ibverbs-utils or perftest)"
done

rails up --rails 1 --device none >"$work/up" 2>&1 || fail "up: $(cat "$work/up")"
"$build/switchback" fabric create "$name" --hosts 2 --rails 1 --netns >/dev/null || fail "cannot make a fabric"
trap '"$build/switchback" fabric destroy "$name" 2>/dev/null; rdma link del "${name}h1r0" 2>/dev/null; clean_up' EXIT
ip netns exec "$name-host1" rdma link add "${name}h1r0" type rxe netdev rail0 || fail "cannot make an rxe device"
has_gid() { [ -n "$(device=rxe gid_index 1 0 2>/dev/null)" ]; }
wait_until 30 has_gid || fail "the rxe device gets no GID"

# What both ends of a run need: host 0 with the simulated library, host 1 with the system's.
device_options=("sbr0 1" "${name}h1r0 $(device=rxe gid_index 1 0)")
on() { # HOST COMMAND, which becomes this process
	if [ "$1" = 0 ]; then
		export SWITCHBACK_FABRIC=$name SWITCHBACK_HOST=0 SWITCHBACK_NETNS=$name-host0
		export LD_LIBRARY_PATH=$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	fi
	exec ip netns exec "$name-host$1" "${@:2}"
}
listens() { ip netns exec "$name-host$1" grep -q ":$2 .* 0A " /proc/net/tcp /proc/net/tcp6; }

# both SERVER_HOST PROGRAM ARGUMENTS: both ends of a program. The GID index is -g to some and -x to others.
both() {
	local host=$1 other=$((1 - $1)) program=$2 server which port=4853 words
	shift 2
	which=-x words="$program $*, server $([ "$host" = 0 ] && echo simulated || echo rxe)"
	[ "$program" != ibv_rc_pingpong ] || which=-g
	options() { echo "-d ${device_options[$1]/ / $which } -p $port"; }
	# shellcheck disable=SC2046 # lists of options
	(on "$host" timeout 120 "$program" $(options "$host") "$@" >"$work/server" 2>&1) &
	server=$!
	wait_until 60 listens "$host" 12F5 || fail "$words: it doesn't listen: $(cat "$work/server")"
	# shellcheck disable=SC2046
	(on "$other" timeout 120 "$program" $(options "$other") "$@" "198.19.0.$((host + 1))" >"$work/client" 2>&1) ||
		fail "$words: $(cat "$work/client" "$work/server")"
	wait $server || fail "$words: the server: $(cat "$work/server" "$work/client")"
	grep -Eq 'usec/iter|^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+' "$work/client" || fail "$words: no figures: $(cat "$work/client")"
}

for server in 0 1; do
	both $server ibv_rc_pingpong -c -s 1 -n 20
	both $server ibv_rc_pingpong -c -s 65536 -n 20 -m 256 -e
	both $server ibv_rc_pingpong -c -s 1048576 -n 10 -m 4096
	both $server ib_write_bw -F -s 1048576 -n 20 -q 2
	both $server ib_read_bw -F -s 1048576 -n 20
done
echo ok
