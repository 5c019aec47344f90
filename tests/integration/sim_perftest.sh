#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perftest, unchanged, on the simulated device: it links libmlx5 and libefa, whose symbols of this
# build of rdma-core the library has; write, read and send, one QP and many, polling and events.
set -u
. "$(dirname "$0")/lib/sim.sh"
need ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_send_lat
fabric_make

# perf PROGRAM ARGUMENTS: both ends, and a result line. -F: a CPU clock that perftest can't measure
# on a busy machine is no failure of ours.
perf() {
	local port
	port=$(free_port)
	start 0 "$work/server" timeout 100 "$@" -F -d sbr0 -x 1 -p "$port"
	wait_listening "$port" || fail "server of '$*' doesn't listen: $(cat "$work/server")"
	on 1 timeout 100 "$@" -F -d sbr0 -x 1 -p "$port" 127.0.0.1 > "$work/client" 2>&1 ||
		fail "client of '$*': $(cat "$work/client")"
	wait $pid || fail "server of '$*': $(cat "$work/server")"
	grep -Eq '^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+' "$work/client" ||
		fail "'$*' gives no figures: $(cat "$work/client")"
}

for program in ib_write_bw ib_read_bw ib_send_bw; do
	perf $program -s 65536 -n 300
	perf $program -s 300000 -n 30 -q 4 -b
done
perf ib_send_bw -s 10000 -n 200 -e
perf ib_read_bw -s 10000 -n 200 -e
perf ib_write_bw -s 5000 -n 100 -m 256
perf ib_write_bw -s 32 -n 1000 -I 64 --use_old_post_send
perf ib_write_lat -s 8 -n 500
perf ib_send_lat -s 64 -n 500 -I 64
echo "ok"
