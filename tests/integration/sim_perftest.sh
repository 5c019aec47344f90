#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perftest, unchanged, on the simulated device: it links libmlx5 and libefa, whose symbols of this
# build of rdma-core the library has; write, read and send, one QP and many, polling and events.
set -u
. "$(dirname "$0")/lib/sim.sh"
need ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat
fabric_make

# Bytes that ports of the fabric have received so far.
received() {
	"$build/switchback" fabric status "$fabric" | awk '/^host/ { sum += $8 } END { printf "%d\n", sum }'
}

# perf PROGRAM ARGUMENTS: both ends, a result line, and at least the bytes that it speaks of on the
# wire. -F: a CPU clock that perftest can't measure on a busy machine is no failure of ours.
perf() {
	local port before size iterations rest
	port=$(free_port)
	before=$(received)
	start 0 "$work/server" timeout 100 "$@" -F -d sbr0 -x 1 -p "$port"
	wait_listening "$port" || fail "server of '$*' doesn't listen: $(cat "$work/server")"
	on 1 timeout 100 "$@" -F -d sbr0 -x 1 -p "$port" 127.0.0.1 > "$work/client" 2>&1 ||
		fail "client of '$*': $(cat "$work/client")"
	wait $pid || fail "server of '$*': $(cat "$work/server")"
	read -r size iterations rest < <(grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+' "$work/client") ||
		fail "'$*' gives no figures: $(cat "$work/client")"
	grep -q '[1-9]' <<< "$rest" || fail "'$*' gives figures of nothing: $(cat "$work/client")"
	[ $(($(received) - before)) -ge $((size * iterations)) ] ||
		fail "'$*': $(($(received) - before)) bytes came for $iterations times $size"
}

for program in ib_write_bw ib_read_bw ib_send_bw; do
	perf $program -s 65536 -n 300
	perf $program -s 300000 -n 30 -q 4 -b
done
perf ib_send_bw -c UD -s 2048 -n 300
perf ib_send_bw --use-srq -q 4 -s 10000 -n 200
perf ib_send_bw -s 10000 -n 200 -e
perf ib_read_bw -s 10000 -n 200 -e
perf ib_write_bw -s 5000 -n 100 -m 256
perf ib_write_bw -s 32 -n 1000 -I 64 --use_old_post_send
perf ib_write_lat -s 8 -n 500
perf ib_read_lat -s 64 -n 500
perf ib_send_lat -c UD -s 64 -n 500
perf ib_send_lat -s 64 -n 500 -I 64
echo "ok"
