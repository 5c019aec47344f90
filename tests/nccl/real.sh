#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unmodified NCCL, as PyTorch brings it, over the plugin and a simulated fabric with two rails, on a
# machine with two GPUs. Prints tables (RESULTS.md keeps the last ones). Takes about eight minutes.
#
#   tests/nccl/real.sh pack [BUILD]    here: collects all that the run needs in BUILD/real
#   tests/nccl/real.sh run [BUILD]     there: needs only python3 with PyTorch, this folder and
#                                      BUILD/real (both may have been copied from another machine
#                                      whose glibc is not newer)
#
# REAL_LOGS=FOLDER keeps what the ranks printed; NCCL_DEBUG=INFO makes that longer. REAL_ROUNDS,
# DISTURB_SECONDS and DDP_STEPS make it shorter or longer.
# The two ranks pretend to be two hosts (NCCL_HOSTID), so that NCCL has to use the network.
# REAL_GPUS=1: both ranks on one GPU.
# Exit status: 0 all as it has to be, 1 not so (the tables say what), 2 usage or environment.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${2:-$here/../../build}" && pwd) || exit 2
pack=$build/real
rounds=${REAL_ROUNDS:-9}
budget=535 # seconds for all of it: machines are lent for ten minutes

make_pack() {
	mkdir -p "$pack/lib"
	cp "$build/libnccl-net-switchback.so" "$build/sim/libibverbs.so.1" "$build/switchback" \
		"$build/bench/fabric_speed" "$pack" || exit 2
	# Libraries that a bare machine may lack: libnl, ISA-L, jansson, expat.
	ldd "$pack/libnccl-net-switchback.so" "$pack/libibverbs.so.1" "$pack/switchback" |
		awk '/=> \// {print $3}' | sort -u | grep -Ev '/(libc|libm|ld-linux[^/]*|libpthread|libdl|libibverbs)\.so' |
		xargs -I{} cp -L {} "$pack/lib"
	strip --strip-debug "$pack"/*.so* "$pack/switchback" "$pack/fabric_speed" 2> /dev/null
	du -sh "$pack"
}

# name, environment..., -- phases...: starts both ranks.
begin() {
	local name=$1 settings=() rank left=$((budget - SECONDS))
	shift
	[ "$limit" -le $left ] || limit=$((left > 1 ? left : 1))
	while [ "$1" != -- ]; do
		settings+=("$1")
		shift
	done
	shift
	for rank in 0 1; do
		env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$((rank % ${REAL_GPUS:-2})) MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
			NCCL_HOSTID="real-host-$rank" NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_MNNVL_ENABLE=0 \
			NCCL_CUMEM_HOST_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_SOCKET_IFNAME=lo \
			NCCL_DEBUG="${NCCL_DEBUG:-WARN}" CUBLAS_WORKSPACE_CONFIG=:4096:8 \
			SWITCHBACK_FABRIC="$fabric" SWITCHBACK_HOST=$rank SWITCHBACK_VERBS="$pack/libibverbs.so.1" \
			REAL_REPORT="$work/$name" REAL_SWITCHBACK="$pack/switchback" PYTHONUNBUFFERED=1 REAL_ROUNDS="$rounds" \
			"${settings[@]}" timeout -k 5 "$limit" python3 "$here/real.py" "$@" > "$work/$name.$rank.log" 2>&1 &
		pids[$name.$rank]=$!
	done
	port=$((port + 1))
}

# name: waits for both ranks and writes when each of them ended.
await() {
	local name=$1 rank status=0 code
	for rank in 0 1; do
		code=0
		wait "${pids[$name.$rank]}" || code=$?
		date +%s.%N > "$work/$name.$rank.end"
		unset "pids[$name.$rank]"
		[ $code = 0 ] || status=$code
	done
	echo "$(date +%T) $name: status $status" >&2
	if [ $status != 0 ] && [ "${expect_failure:-no}" = no ]; then
		tail -n 15 "$work/$name".[01].log >&2
	fi
	"$pack/switchback" fabric restore "$fabric" all
}

run() {
	begin "$@"
	await "$1"
}

# The transports in turn, each first in a third of the rounds: what disturbs the machine disturbs all of them alike.
speed_rounds() {
	local number name deadline order=(speed-socket speed-plugin speed-off speed-stock)
	limit=230
	begin speed-socket NCCL_NET=Socket NCCL_NET_PLUGIN=none -- rounds
	begin speed-plugin "${plugin[@]}" -- rounds
	begin speed-off "${plugin[@]}" SWITCHBACK_FAILOVER=0 "${quick_end[@]}" -- rounds cut
	begin speed-stock "${stock[@]}" -- rounds
	for ((number = 0; number < rounds; number++)); do
		order=("${order[@]:1}" "${order[0]}")
		for name in "${order[@]}"; do
			touch "$work/$name.turn$number"
			deadline=$((SECONDS + 60))
			until [ -e "$work/$name.done$number" ]; do
				if ! kill -0 "${pids[$name.0]}" 2> /dev/null; then
					echo "$name ended before round $number did" >&2
					break
				elif [ $SECONDS -ge $deadline ]; then
					echo "$name does not come to the end of round $number" >&2
					kill "${pids[$name.0]}" "${pids[$name.1]}" 2> /dev/null
					break
				fi
				sleep 0.01
			done
		done
	done
	expect_failure=yes await speed-off # first: its end is timed
	await speed-socket
	await speed-plugin
	await speed-stock
}

# What NCCL's own transport said where it was not accepted.
explain_stock() {
	grep -qs '"cut"' "$work/stock.0" && return
	echo "NCCL's own IB transport did not get as far as the cut:" >&2
	grep -hE 'NET/|WARN|ibv|IBV|Error' "$work/stock.0.log" | head -n 25 >&2
}

run_all() {
	declare -gA pids
	ulimit -c 0 # ranks without failover abort
	work=$(mktemp -d) || exit 2
	fabric=real-$$
	port=29500
	trap '"$pack/switchback" fabric destroy "$fabric" 2> /dev/null; [ -z "${REAL_LOGS:-}" ] || cp "$work"/*.log "$work"/*.[01] "$work"/*.xml "$REAL_LOGS"; rm -rf "$work"' EXIT
	export LD_LIBRARY_PATH=$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	"$pack/switchback" fabric create "$fabric" --hosts 2 --rails 2 > /dev/null || exit 2
	plugin=(NCCL_NET_PLUGIN="$pack/libnccl-net-switchback.so")
	# After an error PyTorch's watchdog sleeps four times this long for traces of other ranks, by default a minute.
	quick_end=(TORCH_NCCL_DUMP_ON_TIMEOUT=0 TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=100 TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC=100)

	# NCCL's own transport. NCCL asks for libibverbs.so before libibverbs.so.1; 2.28.9 takes -1 for a pointer where
	# GPU-initiated networking finds no mlx5 device.
	mkdir "$work/verbs"
	ln -s "$pack/libibverbs.so.1" "$work/verbs/libibverbs.so.1"
	ln -s "$pack/libibverbs.so.1" "$work/verbs/libibverbs.so"
	stock=(NCCL_NET_PLUGIN=none NCCL_NET=IB NCCL_GIN_TYPE=0 NCCL_NET_MERGE_LEVEL=LOC NCCL_IB_GID_INDEX=1
		LD_LIBRARY_PATH="$work/verbs:$LD_LIBRARY_PATH")

	limit=100
	run socket NCCL_NET=Socket NCCL_NET_PLUGIN=none DDP_STEPS=500 -- results ddp
	limit=270
	run plugin "${plugin[@]}" -- results disturb ddp ddpcut cut
	limit=80
	run merged "${plugin[@]}" REAL_PLACE=1 NCCL_NET_FORCE_MERGE=sbr0,sbr1 REAL_FAULTS=blackhole,down DISTURB_SECONDS=15 \
		NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH -- results disturb
	speed_rounds
	limit=75
	expect_failure=yes run stock "${stock[@]}" NCCL_IB_TIMEOUT=18 NCCL_DEBUG=INFO "${quick_end[@]}" -- few cut
	explain_stock
	LD_LIBRARY_PATH="$work/verbs:$LD_LIBRARY_PATH" timeout 60 "$pack/fabric_speed" 1 > "$work/fabric_speed" 2>&1 ||
		echo "fabric_speed ended with status $?" >> "$work/fabric_speed"
	python3 "$here/real_table.py" "$work"
}

case ${1:-} in
pack) make_pack ;;
run) run_all ;;
*)
	sed -n '3,16s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
