#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Exit status 0 if this kernel has an rxe that carries packets between namespaces (Linux 7.2 is the
# first that does), else 1 with the reason.
set -u
here=$(cd "$(dirname "$0")" && pwd)
name=rxe$((BASHPID % 10000))

no() {
	echo "no rxe: $*"
	exit 1
}

[ "$(id -u)" = 0 ] || no "it needs root"
for command in ip rdma ibv_rc_pingpong; do
	command -v $command >/dev/null || no "the command $command is missing"
done
rdma dev >/dev/null 2>&1 || no "this kernel has no RDMA"
reason=$("$here/rails.sh" --name "$name" up --rails 1 --device rxe 2>&1) || no "$reason"
trap '"$here/rails.sh" --name "$name" down >/dev/null' EXIT
index=$(grep -l '^0000:0000:0000:0000:0000:ffff:c612:0001' /sys/class/infiniband/"$name"h0r0/ports/1/gids/* 2>/dev/null |
	head -n 1)
index=${index##*/}
"$here/rails.sh" --name "$name" exec host1 timeout 20 ibv_rc_pingpong -d "$name"h1r0 -g "${index:-1}" -n 10 >/dev/null 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10; do
	"$here/rails.sh" --name "$name" exec host0 timeout 10 ibv_rc_pingpong -d "$name"h0r0 -g "${index:-1}" -n 10 \
		198.19.0.2 >/dev/null 2>&1 && exit 0
	kill -0 %1 2>/dev/null || break
	sleep 0.5
done
kill %1 2>/dev/null
no "a ping-pong between two namespaces fails: this kernel's rxe ($(uname -r)) does not work in namespaces"
