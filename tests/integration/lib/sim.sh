# SPDX-License-Identifier: Apache-2.0
# What the tests of the simulated device share; sourced, with the build folder as $1.
build=$(cd "$1" && pwd)
fabric=it-$$
work=$(mktemp -d)
# Stock programs are not built with the sanitizers that the library may want.
preload=
if nm -D --undefined-only "$build/sim/libibverbs.so.1" | grep -q __asan_init; then
	preload=$(gcc -print-file-name=libasan.so)
	if nm -D --undefined-only "$build/sim/libibverbs.so.1" | grep -q __ubsan; then
		preload="$preload $(gcc -print-file-name=libubsan.so)"
	fi
	export ASAN_OPTIONS=detect_leaks=0
fi
if nm -D --undefined-only "$build/sim/libibverbs.so.1" | grep -q __tsan_init; then
	preload=$(gcc -print-file-name=libtsan.so)
fi

cleanup() {
	local jobs
	jobs=$(jobs -p)
	[ -z "$jobs" ] || kill -9 $jobs 2> /dev/null
	"$build/switchback" fabric destroy "$fabric" 2> /dev/null
	rm -rf "$work"
}
trap cleanup EXIT

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

need() {
	local program
	for program in "$@"; do
		if ! command -v "$program" > /dev/null; then
			echo "skipped: no $program here (package ibverbs-utils or perftest)"
			exit 77
		fi
	done
}

fabric_make() {
	"$build/switchback" fabric create "$fabric" "$@" > /dev/null || fail "cannot make a fabric"
}

# A program with the simulated libibverbs, in the environment as it is.
run_stock() {
	LD_LIBRARY_PATH="$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD="$preload" "$@"
}

# A program as host $1 of the fabric.
on() {
	SWITCHBACK_FABRIC=$fabric SWITCHBACK_HOST=$1 run_stock "${@:2}"
}

# The same in the background, output to file $2; its process id is then in $pid.
start() {
	SWITCHBACK_FABRIC=$fabric SWITCHBACK_HOST=$1 \
		LD_LIBRARY_PATH="$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
		LD_PRELOAD="$preload" "${@:3}" > "$2" 2>&1 &
	pid=$!
}

free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		listening $port || break
	done
	echo $port
}

# Waits up to ten seconds for a condition given as a command.
wait_until() {
	local end=$((SECONDS + 10))
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.02
	done
}

listening() {
	grep -qs "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6
}

wait_listening() {
	wait_until listening "$1"
}
