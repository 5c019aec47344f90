# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests in namespaces share; sourced, with the build folder as $1 and, where a test runs on
# both, the kind of device as $2. A set of rails of its own, taken away at the end.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck disable=SC2034 # used by the tests
build=$(cd "$1" && pwd)
device=${2:-sim}
export SWITCHBACK=$build/switchback
name=t$((BASHPID % 1000000))
work=$(mktemp -d)

skip() {
	echo "skipped: $*"
	exit 77
}

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

rails() { "$top/netns/rails.sh" --name "$name" "$@"; }

# A command on a host in the background, output to file $2; the job is the command itself, so that the
# end of the test ends it.
start() {
	"$top/netns/rails.sh" --name "$name" exec "host$1" "${@:3}" >"$2" 2>&1 &
}

# Where there are few CPUs, a job that polls, and what the kernel does for it, would leave nothing to the commands that cut
# and restore: those go first.
renice -n -10 -p $$ >/dev/null 2>&1 || true
# An emulated machine that is busy may not answer for seconds: nobody is dead for that.
export SWITCHBACK_PEER_TIMEOUT=60

# A job under load, with the arguments of `switchback perf`; it goes on until job_end.
job_start() {
	local options=(--netns "$name" --check --duration 3600s --json "$work/json")
	[ "$device" != sim ] || options+=(--fabric "$name")
	rm -f "$work/json"
	nice -n 20 "$build/switchback" perf "$@" "${options[@]}" >"$work/log" 2>&1 &
	job=$!
	wait_until 90 grep -q 'messages verified' "$work/log" || job_fail "the job doesn't start"
}

job_fail() { fail "$*: $(grep -vE 'messages verified|[|+]' "$work/log" | tail -n 60)"; }

# shellcheck source=tests/netns/lib/job.sh
. "$top/tests/netns/lib/job.sh"
job_is_on() { # RAIL
	kill -0 "$job" 2>/dev/null || job_fail "the job ended"
	job_says_on "$1" "$work/log"
}

job_verified() { grep -oE '[0-9]+ messages verified' "$work/log" | tail -n 1 | cut -d' ' -f1; }
job_verified_more() { [ "$(job_verified)" -gt "$1" ]; }

# Ends it; all must have been right.
job_end() {
	kill -TERM "$job"
	wait "$job" || job_fail "the job's exit status is $?"
	[ "$(jq '.verify.errors' "$work/json")" = 0 ] || job_fail "bytes were wrong"
	[ "$(jq '.errors | length' "$work/json")" = 0 ] || job_fail "errors: $(jq .errors "$work/json")"
}

clean_up() {
	local jobs
	jobs=$(jobs -p)
	# shellcheck disable=SC2086 # a list
	[ -z "$jobs" ] || kill $jobs 2>/dev/null
	rails down >/dev/null 2>&1
	rm -rf "$work"
}
trap clean_up EXIT

[ "$(id -u)" = 0 ] || skip "namespaces need root"
command -v ip >/dev/null || skip "no ip here (package iproute2)"
unshare -n true 2>/dev/null || skip "this system forbids network namespaces"

# Until the command succeeds, at most $1 seconds.
wait_until() {
	local end=$((SECONDS + $1))
	until "${@:2}"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# The device of a host's rail, as verbs programs name it.
verbs_device() {
	if [ "$device" = sim ]; then
		echo "sbr$2"
	else
		echo "${name}h$1r$2"
	fi
}

# The index of the GID with the IPv4 address of the port.
gid_index() {
	if [ "$device" = sim ]; then
		echo 1
		return
	fi
	local gid index
	printf -v gid '0000:0000:0000:0000:0000:ffff:c612:%02x%02x' "$2" $(($1 + 1))
	for index in /sys/class/infiniband/"$(verbs_device "$1" "$2")"/ports/1/gids/*; do
		if [ "$(cat "$index" 2>/dev/null)" = "$gid" ]; then
			basename "$index"
			return
		fi
	done
	fail "host$1.rail$2 has no GID of its address"
}
