# Sourced by the tests of `switchback perf`: a fabric of its own, a work folder, and small helpers.
# SPDX-License-Identifier: Apache-2.0
build=$1
switchback=$build/switchback
name=$(basename "$0" .sh)
fabric=t-${name//_/-}-$$
work=$(mktemp -d "${TMPDIR:-/tmp}/switchback-$name.XXXXXX")
unset "${!SWITCHBACK_@}"

clean_up() {
	local job
	for job in $(jobs -p); do
		kill -9 "$job" 2>/dev/null
	done
	wait 2>/dev/null
	"$switchback" fabric destroy "$fabric" 2>/dev/null
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

fail() {
	echo "FAILED: $*" >&2
	[ ! -s "$work/out" ] || { echo "-- last output:"; tail -n 60 "$work/out"; } >&2
	[ ! -s "$work/err" ] || { echo "-- last errors:"; tail -n 20 "$work/err"; } >&2
	exit 1
}

make_fabric() { # [HOSTS [RAILS]]
	"$switchback" fabric create "$fabric" --hosts "${1:-2}" --rails "${2:-2}" >/dev/null || fail "fabric create"
}

# perf STATUS OPERATION OPTIONS…: runs it on the fabric and wants that exit status. Leaves $work/out,
# $work/err and $work/json.
perf() {
	local wanted=$1 status=0
	shift
	rm -f "$work/json"
	"$switchback" fabric restore "$fabric" all
	timeout 120 "$switchback" perf "$1" --fabric "$fabric" --json "$work/json" "${@:2}" \
		>"$work/out" 2>"$work/err" || status=$?
	if [ $status != "$wanted" ]; then
		fail "perf $*: exit status $status, $wanted wanted"
	fi
}

# json FILTER: jq's answer about the last run.
json() {
	jq -r "$1" "$work/json"
}

# expect FILTER: a condition on the last run's JSON.
expect() {
	[ "$(json "$1")" = true ] || fail "not so: $1; failovers $(json '.failovers|length'), failbacks \
$(json '.failbacks|length'), verify $(json '.verify | tostring'), errors $(json '.errors|length')"
}

# The result of a run that must be right in every byte.
expect_verified() {
	expect '.verify.errors == 0 and .verify.messages > 0 and (.errors | length) == 0'
}

# wait_until SECONDS COMMAND…: until it succeeds.
wait_until() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05
	done
}

# The pid of a rank of the run whose output goes to $work/out.
rank_pid() {
	sed -n "s/^rank $1: .*pid \([0-9]*\),.*/\1/p" "$work/out"
}
