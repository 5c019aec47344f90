#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unmodified NCCL, as PyTorch brings it, over the plugin and a simulated fabric with two rails, on a
# machine with two GPUs. Prints a table (RESULTS.md keeps the last one).
#
#   tests/nccl/real.sh pack [BUILD]    here: collects all that the run needs in BUILD/real
#   tests/nccl/real.sh run [BUILD]     there: needs only python3 with PyTorch, this folder and
#                                      BUILD/real (both may have been copied from another machine
#                                      whose glibc is not newer)
#
# REAL_LOGS=FOLDER keeps what the ranks printed; NCCL_DEBUG=INFO makes that longer.
# The two ranks pretend to be two hosts (NCCL_HOSTID), so that NCCL has to use the network.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${2:-$here/../../build}" && pwd) || exit 2
pack=$build/real

make_pack() {
	mkdir -p "$pack/lib"
	cp "$build/libnccl-net-switchback.so" "$build/sim/libibverbs.so.1" "$build/switchback" "$pack" || exit 2
	# Libraries that a bare machine may lack: libnl, ISA-L, jansson, expat.
	ldd "$pack/libnccl-net-switchback.so" "$pack/libibverbs.so.1" "$pack/switchback" |
		awk '/=> \// {print $3}' | sort -u | grep -Ev '/(libc|libm|ld-linux[^/]*|libpthread|libdl)\.so' |
		xargs -I{} cp -L {} "$pack/lib"
	strip --strip-debug "$pack"/*.so* "$pack/switchback" 2> /dev/null
	du -sh "$pack"
}

# name, environment..., -- phases...: starts both ranks, waits; status in $status
run() {
	local name=$1 settings=() rank pids=() began=$SECONDS
	shift
	while [ "$1" != -- ]; do
		settings+=("$1")
		shift
	done
	shift
	for rank in 0 1; do
		env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
			NCCL_HOSTID="real-host-$rank" NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_MNNVL_ENABLE=0 \
			NCCL_CUMEM_HOST_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_SOCKET_IFNAME=lo \
			NCCL_DEBUG="${NCCL_DEBUG:-WARN}" CUBLAS_WORKSPACE_CONFIG=:4096:8 \
			SWITCHBACK_FABRIC="$fabric" SWITCHBACK_HOST=$rank SWITCHBACK_VERBS="$pack/libibverbs.so.1" \
			REAL_REPORT="$work/$name" REAL_SWITCHBACK="$pack/switchback" PYTHONUNBUFFERED=1 \
			"${settings[@]}" timeout -k 5 "$limit" python3 "$here/real.py" "$@" > "$work/$name.$rank.log" 2>&1 &
		pids+=($!)
	done
	port=$((port + 1))
	status=0
	for rank in 0 1; do
		wait "${pids[$rank]}" || status=$?
	done
	ended=$(date +%s.%N)
	echo "$name: status $status after $((SECONDS - began)) s" >&2
	if [ $status != 0 ] && [ "${expect_failure:-no}" = no ]; then
		tail -n 15 "$work/$name".*.log >&2
	fi
	"$pack/switchback" fabric restore "$fabric" all
}

report() { # name, jq-like path in Python
	python3 - "$work/$1.0" "$2" <<- 'PYTHON'
		import json, sys
		try:
		    value = json.load(open(sys.argv[1]))
		    for key in sys.argv[2].split("."):
		        value = value[key]
		    print(f"{value:.3g}" if isinstance(value, float) else value)
		except (OSError, KeyError, ValueError):
		    print("-")
	PYTHON
}

same_digests() {
	python3 - "$work/$1" "$work/$2" <<- 'PYTHON'
		import json, sys
		try:
		    a, b = ([json.load(open(f"{name}.{rank}"))["digests"] for rank in (0, 1)] for name in sys.argv[1:])
		    print(f"{sum(len(x) for x in a)} equal bit for bit" if a == b and a[0] else "DIFFERENT")
		except (OSError, KeyError, ValueError):
		    print("DIFFERENT: some are missing")
	PYTHON
}

row() { # name, words
	echo "| $2 | $(report "$1" operations) | $(report "$1" wrong) | $(report "$1" cuts) | $(report "$1" disturbed_longest_s) | $(report "$1" latency_us) | $(report "$1" bus_gb_s) | $(report "$1" ddp.digest) | $(report "$1" ddpcut.digest) |"
}

# How a run without failover took the cut.
fate() {
	if [ "$(report "$1" cut_survived)" = True ]; then
		echo "went on"
	elif [ -s "$work/$1.cut" ]; then
		echo "job failed $(awk -v cut="$(cat "$work/$1.cut")" -v end="$2" 'BEGIN {printf "%.1f", end - cut}') s after the cut"
	else
		echo "did not get as far as the cut"
	fi
}

run_all() {
	work=$(mktemp -d) || exit 2
	fabric=real-$$
	port=29500
	trap '"$pack/switchback" fabric destroy "$fabric" 2> /dev/null; [ -z "${REAL_LOGS:-}" ] || cp "$work"/*.log "$REAL_LOGS"; rm -rf "$work"' EXIT
	export LD_LIBRARY_PATH=$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	"$pack/switchback" fabric create "$fabric" --hosts 2 --rails 2 > /dev/null || exit 2
	local plugin=(NCCL_NET_PLUGIN="$pack/libnccl-net-switchback.so")

	limit=90
	run socket NCCL_NET=Socket NCCL_NET_PLUGIN=none -- results speed ddp
	limit=150
	run plugin "${plugin[@]}" NCCL_NET_MERGE_LEVEL=LOC -- results speed ddp disturb ddpcut cut
	local plugin_end=$ended
	limit=80
	run merged "${plugin[@]}" NCCL_NET_FORCE_MERGE=sbr0,sbr1 REAL_FAULTS=blackhole,down DISTURB_SECONDS=15 \
		-- results disturb
	expect_failure=yes
	limit=65
	run off "${plugin[@]}" NCCL_NET_MERGE_LEVEL=LOC SWITCHBACK_FAILOVER=0 -- speed cut
	local off_end=$ended
	run stock NCCL_NET_PLUGIN=none NCCL_NET=IB NCCL_NET_MERGE_LEVEL=LOC NCCL_IB_TIMEOUT=18 \
		LD_LIBRARY_PATH="$pack:$LD_LIBRARY_PATH" -- speed cut
	local stock_end=$ended

	echo "PyTorch $(report socket torch), NCCL $(report socket nccl), 2 x $(report socket gpu), $(uname -sr), glibc $(getconf GNU_LIBC_VERSION)"
	echo
	echo "| transport | operations | wrong | cuts | longest operation with cuts (s) | 8 B all-reduce (us) | 64 MiB all-reduce (GB/s, bus) | DDP losses | with cuts |"
	echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
	row socket "NCCL's sockets"
	row plugin "plugin"
	row merged "plugin, both ports as one device"
	row off "plugin, failover off"
	row stock "NCCL's own IB transport on the same fabric"
	echo
	echo "Results of the plugin and of the sockets: $(same_digests plugin socket); as one device: $(same_digests merged socket)."
	echo "A cut that nobody repairs: plugin $(fate plugin "$plugin_end"); failover off: $(fate off "$off_end"); NCCL's own IB transport (NCCL_IB_TIMEOUT=18): $(fate stock "$stock_end")."
	[ "$(report plugin wrong)" = 0 ] && [ "$(report merged wrong)" = 0 ] && [ "$(report plugin cut_survived)" = True ] &&
		[ "$(report plugin ddp.digest)" = "$(report socket ddp.digest)" ] &&
		[ "$(report plugin ddpcut.digest)" = "$(report plugin ddp.digest)" ] &&
		[[ "$(same_digests plugin socket)$(same_digests merged socket)" != *DIFFERENT* ]]
}

case ${1:-} in
pack) make_pack ;;
run) run_all ;;
*)
	sed -n '3,14s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
