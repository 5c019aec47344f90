#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plugin as NCCL's proxy drives it, in namespaces: every byte verified while rails go down and become black holes.
# $2: sim or rxe.
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"
verbs=-
[ "$device" != sim ] || verbs=$build/sim/libibverbs.so.1

rails up --device "$device" >"$work/up" 2>&1 || fail "up --device $device: $(cat "$work/up")"
for faults in down blackhole; do
	# The command is not as nice as the ranks (lib/netns.sh).
	nice -n 20 timeout 200 "$build/tests/nccl_proxy" "$build/libnccl-net-switchback.so" "$verbs" 12 --comms 1 \
		--seconds 4 --faults $faults --period 1 --verbose --netns "$name" \
		--fault-command "nice -n -20 $top/netns/rails.sh --name $name" >"$work/log" 2>&1 ||
		fail "$faults: $(tail -n 80 "$work/log")"
	tail -n 1 "$work/log"
	grep -qE "faults $faults \\(([2-9]|[1-9][0-9])\\)" "$work/log" || fail "$faults: fewer than two faults"
done
echo ok
