#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job: an all-reduce between two hosts over two rails; one rail is cut and restored under load.
#   netns/demo.sh [--no-install] [--build FOLDER] [--plot FILE.svg]
# --build: a folder where all is built already; without it, `build` is built.
# Exit status: 0 every byte was right, and the failover and the failback really happened; 1 not so; 2 the machine
# lacks something that can't be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source netns/install.sh

install=1 build='' plot=''
usage="usage: netns/demo.sh [--no-install] [--build FOLDER] [--plot FILE.svg]"
while [ $# -gt 0 ]; do
	case $1 in
	--no-install) install=0 ;;
	--build | --plot) [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; } ;;&
	--build) build=$2; shift ;;
	--plot) plot=$2; shift ;;
	--help) echo "$usage"; exit 0 ;;
	*) echo "$usage" >&2; exit 2 ;;
	esac
	shift
done
built=$build
build=$(realpath "${build:-build}")
plot=${plot:-$build/demo.svg}
export SWITCHBACK=$build/switchback

# Each kind of fabric has three functions: KIND_why says why it is taken (or can't be), KIND_up makes two hosts with two
# rails and sets `perf_options`, KIND_down takes all of it away. The first kind that can be had is used.
fabric_kinds=(rxe netns sim)
rails=demo$((BASHPID % 10000))

rails_up() {
	local begin=$SECONDS
	netns/rails.sh --name "$rails" up --device "$1"
	# The ranks poll: where there are few CPUs, the commands that cut and restore go first.
	perf_options=(--netns "$rails" --fault-command "nice -n -10 netns/rails.sh --name $rails")
	# An emulated machine takes seconds for what others do in one.
	pace=$((1 + (SECONDS - begin) / 4))
}
rails_down() {
	netns/rails.sh --name "$rails" down >/dev/null
}

rxe_why() {
	netns/has_rxe.sh || return 1
	echo "the kernel's Soft-RoCE (rxe) in two network namespaces, its rails cut with ip and tc"
}
rxe_up() { rails_up rxe; }
rxe_down() { rails_down; }

netns_why() {
	if [ "$(id -u)" != 0 ]; then
		echo "no network namespaces: they need root"
		return 1
	fi
	if ! unshare -n ip link add sbprobe0 type veth peer name sbprobe1 2>/dev/null; then
		echo "no network namespaces: this kernel or container forbids them, or has no veth"
		return 1
	fi
	echo "simulated devices on veth rails in two network namespaces, their rails cut with ip and tc"
}
netns_up() {
	rails_up sim
	perf_options+=(--fabric "$rails")
}
netns_down() { rails_down; }

sim_why() {
	echo "the simulated fabric: needs no hardware, no kernel module and no root; faults are set exactly in time"
}
sim_up() {
	fabric=demo-$$
	"$build/switchback" fabric create "$fabric" --hosts 2 --rails 2 >/dev/null
	perf_options=(--fabric "$fabric")
	pace=1
}
sim_down() {
	"$build/switchback" fabric destroy "$fabric"
}

if [ -n "$built" ] && [ ! -x "$SWITCHBACK" ]; then
	echo "demo.sh: --build $built: no switchback is built there" >&2
	exit 2
fi
[ $install = 0 ] || install_packages build demo
if [ -z "$built" ]; then
	echo "== build"
	mkdir -p "$build"
	{ cmake -S . -B "$build" -G Ninja && cmake --build "$build" --target switchback sim_verbs; } >"$build.log" 2>&1 ||
		{ cat "$build.log"; exit 1; }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kind=""
for candidate in "${fabric_kinds[@]}"; do
	if ! reason=$("${candidate}_why"); then
		echo "== not used: $reason"
		continue
	fi
	trap '"${candidate}_down"; rm -rf "$work"' EXIT
	if "${candidate}_up"; then
		kind=$candidate
		echo "== fabric: $reason"
		break
	fi
	echo "== not used: $reason: it could not be set up (above)"
done
[ -n "$kind" ] || { echo "no kind of fabric can be had here" >&2; exit 2; }

cut=$((3 * pace)) restored=$((6 * pace))
echo "== all-reduce of 4 MiB, 2 hosts with 2 processes each, rail0 cut at $cut s and restored at $restored s"
status=0
"$build/switchback" perf all_reduce "${perf_options[@]}" --hosts 2 --ranks-per-host 2 --max-bytes 4M --check \
	--duration $((9 * pace))s --fault "${cut}s cut rail0 down" --fault "${restored}s restore rail0" --json "$work/result.json" --plot "$plot" || status=$?
[ $status = 0 ] || { echo "== FAILED: exit status $status" >&2; exit $status; }

verdict=$(jq -r --argjson cut $((cut * 1000 - 1)) --argjson restored $((restored * 1000 - 1)) '
	if .verify.errors != 0 or .verify.messages == 0 then "bytes were wrong or none were verified"
	elif ([.failovers[] | select(.from == "rail0" and .t_ms > $cut)] | length) == 0 then "no failover happened"
	elif ([.failbacks[] | select(.to == "rail0" and .t_ms > $restored)] | length) == 0 then "no failback happened"
	elif (.errors | length) != 0 then .errors[0]
	else "ok" end' "$work/result.json")
if [ "$verdict" != ok ]; then
	echo "== FAILED: $verdict" >&2
	exit 1
fi
echo "== all $(jq .verify.messages "$work/result.json") messages right; the job survived the cut and went back. Picture: $plot"
