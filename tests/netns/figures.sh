#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The figures of netns/RESULTS.md: bandwidth, and blackouts and gaps per kind of cut, on simulated devices and on rxe in the
# same namespaces of one kernel. Not a test.
#   figures.sh BUILD_FOLDER "sim rxe" [CUTS_PER_KIND [ROUNDS_OF_BANDWIDTH]]
# As --fault-command it calls itself: figures.sh --fault LOG RAILS.SH_ARGUMENTS…
set -u
if [ "$1" = --fault ]; then
	# Cuts or restores, and comes back when all connections have moved, so that faults follow each other as fast as the job
	# notices them.
	log=$2 action=$5
	shift 2
	"$(dirname "$0")/../../netns/rails.sh" "$@" || exit 1
	# shellcheck source=tests/netns/lib/job.sh
	. "$(dirname "$0")/lib/job.sh"
	end=$((SECONDS + 90))
	until job_says_on "$([ "$action" = cut ] && echo 1 || echo 0)" "$log"; do
		[ "$SECONDS" -lt "$end" ] || exit 1
		sleep 0.1
	done
	exit 0
fi
cuts=${3:-5} rounds=${4:-3}
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh" "$1" sim
self=$(realpath "$0")
bridge=bridge
unshare -n ip link add sbprobe type bridge 2>/dev/null || bridge=router
# The hold-down is doubled by each fault that follows soon; it is no part of the figures.
export SWITCHBACK_HOLDDOWN_MS=50

make() {
	rails up --device "$device" --switch $bridge >"$work/up" 2>&1 || fail "up: $(cat "$work/up")"
}

bandwidth() {
	local program=ib_write_bw server options
	job_start sendrecv --min-bytes 1M --max-bytes 1M
	sleep 4
	job_end
	printf '| %s | %s |' "$device" "$(jq '.bytes * 8 / .seconds / 1e9 * 1000 | round / 1000' "$work/json")"
	for options in "-s 65536 -n 1000" "-s 1048576 -n 100"; do
		# shellcheck disable=SC2086 # lists of options
		start 1 "$work/server" timeout 120 $program -F $options -d "$(verbs_device 1 0)" -x "$(gid_index 1 0)"
		server=$!
		wait_until 60 rails exec host1 grep -qE ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 || fail "$(cat "$work/server")"
		# shellcheck disable=SC2086
		rails exec host0 timeout 120 $program -F $options -d "$(verbs_device 0 0)" -x "$(gid_index 0 0)" 198.19.0.2 \
			>"$work/client" 2>&1 || fail "$program $options: $(cat "$work/client")"
		wait $server
		awk '/^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+/ { printf " %.3f |", $4 * 8 * 1048576 / 1e9 }' "$work/client"
	done
	echo
}

row() { # LABEL PORTS HOW [WAY]
	local label=$1 ports=$2 arguments=() i
	for ((i = 0; i < cuts; i++)); do
		arguments+=(--fault "$((1000 + 20 * i))ms cut ${*:2}" --fault "$((1010 + 20 * i))ms restore $ports")
	done
	job_start sendrecv --min-bytes 64K --max-bytes 64K "${arguments[@]}" \
		--fault-command "nice -n -20 $self --fault $work/log --name $name"
	restored() { kill -0 "$job" 2>/dev/null || job_fail "$label"; [ "$(grep -c RESTORE "$work/log")" -ge "$cuts" ]; }
	wait_until 600 restored || job_fail "$label: not all cuts were made"
	wait_until 90 job_is_on 0 || job_fail "$label: no return"
	job_end
	jq -r --arg device "$device" --arg what "$label" '
		def spread: map(select(. != null)) | sort | if length == 0 then "-" else
			"\(.[length / 2 | floor] * 10 | round / 10) / \(.[-1] * 10 | round / 10)" end;
		"| \($device) | \($what) | \(.failovers | length) | \([.failovers[].blackout_ms] | spread) | \(.failbacks | length) | "
		+ "\([.failbacks[].gap_ms] | spread) | \(.verify.messages) | \(.verify.errors) |"' "$work/json" || fail "no row"
}

echo "kernel $(uname -r), $(nproc) CPUs, $bridge"
echo "| device | sendrecv, both ways, checked | ib_write_bw 64 KiB | ib_write_bw 1 MiB | (Gbit/s)"
echo "| --- | --- | --- | --- |"
for ((round = 0; round < rounds; round++)); do
	for device in $2; do
		make
		bandwidth
		rails down >/dev/null
	done
done
echo "| device | cut | failovers | blackout ms, median / worst | failbacks | gap ms, median / worst | messages verified | wrong |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
for device in $2; do
	make
	row "host's link down" host0.rail0 down
	row "switch's port down" host1.rail0 port-down
	[ $bridge = router ] || row "switch's port blocked" host1.rail0 blocked
	row "black hole both ways" host1.rail0 blackhole
	row "black hole one way" host1.rail0 blackhole in
	row "address removed" host0.rail0 no-address
	rails down >/dev/null
done
