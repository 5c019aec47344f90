# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by rails.sh: names, the record of what was made, and what is missing.
#
# What exists is recorded in $state before it is made, so that `down` finds all of it after a crash:
#   config       hosts, rails, device, switch, netem: NAME=VALUE
#   hostH.env    environment of a process on that host: NAME=VALUE, one a line
#   hook.NS.DEV  faults set on packets at that device, one "KEY VALUE" a line

: "${SWITCHBACK_NETNS_STATE:=/run/switchback-netns}"
rail_mtu=9000 # leaves room for 4096 bytes and headers; the usual size of real rails
netem_limit=1000000

die() {
	echo "rails.sh: $*" >&2
	exit 2
}

set_name() {
	[[ $1 =~ ^[A-Za-z][A-Za-z0-9_]{0,7}$ ]] ||
		die "--name '$1': a letter and up to 7 letters, digits or '_' are wanted"
	name=$1
	state=$SWITCHBACK_NETNS_STATE/$name
	fab=$name-fab
}
set_name sb

host_ns() { echo "$name-host$1"; }

# The fabric's end of a host's rail, and of its management link. At most 15 characters.
fab_port() { echo "h$1r$2"; }
fab_manage() { echo "h$1m"; }

# 198.18.0.0/15 is set aside for tests of network devices: rails below, management above.
rail_address() { echo "198.18.$2.$(($1 + 1))"; }
manage_address() { echo "198.19.0.$(($1 + 1))"; }
manage_gateway=198.19.0.254

device_name() { echo "${name}h$1r$2"; }

require_commands() {
	local command
	for command; do
		command -v "$command" >/dev/null ||
			die "the command '$command' is missing; install $(package_of "$command")"
	done
}

package_of() {
	case $1 in
	ip | tc | bridge | rdma) echo "the package iproute2" ;;
	nft) echo "the package nftables" ;;
	modprobe) echo "the package kmod" ;;
	*) echo "the package that has it" ;;
	esac
}

require_root() {
	[ "$(id -u)" = 0 ] || die "this needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN): run it with sudo"
	require_commands ip tc
}

# Reads the record into variables; 1 when there is none.
config_read() {
	local key value
	[ -f "$state/config" ] || return 1
	hosts='' rails='' device='' switch='' netem='' complete=''
	while IFS='=' read -r key value; do
		case $key in
		hosts | rails | device | switch | netem | complete) printf -v "$key" '%s' "$value" ;;
		*) die "$state/config: unknown entry '$key'; 'rails.sh --name $name down' clears it away" ;;
		esac
	done <"$state/config"
	[[ $hosts =~ ^[0-9]+$ && $rails =~ ^[0-9]+$ ]] || die "$state/config is damaged: remove $state"
}

config_write() {
	mkdir -p "$state"
	printf '%s=%s\n' hosts "$hosts" rails "$rails" device "$device" switch "$switch" netem "$netem" \
		complete "$1" >"$state/config.new"
	mv "$state/config.new" "$state/config"
}

require_up() {
	require_root
	config_read || die "no rails named '$name' (rails.sh up makes them)"
	[ "$complete" = yes ] || die "rails '$name' were left half made: run 'rails.sh --name $name up' again"
}

namespace_exists() { [ -e "/run/netns/$1" ] || [ -e "/var/run/netns/$1" ]; }

all_namespaces() {
	local host
	echo "$fab"
	for ((host = 0; host < hosts; host++)); do
		host_ns "$host"
	done
}

# The ports that PORTS means, one "HOST RAIL" a line.
ports_parse() {
	local host rail
	if [[ $1 =~ ^rail([0-9]{1,3})$ ]]; then
		rail=$((10#${BASH_REMATCH[1]}))
		[ "$rail" -lt "$rails" ] || die "'$1': there are rails 0 to $((rails - 1))"
		for ((host = 0; host < hosts; host++)); do
			echo "$host $rail"
		done
	elif [[ $1 =~ ^host([0-9]{1,3})(\.rail([0-9]{1,3}))?$ ]]; then
		host=$((10#${BASH_REMATCH[1]}))
		[ "$host" -lt "$hosts" ] || die "'$1': there are hosts 0 to $((hosts - 1))"
		if [ -n "${BASH_REMATCH[2]}" ]; then
			rail=$((10#${BASH_REMATCH[3]}))
			[ "$rail" -lt "$rails" ] || die "'$1': there are rails 0 to $((rails - 1))"
			echo "$host $rail"
			return
		fi
		for ((rail = 0; rail < rails; rail++)); do
			echo "$host $rail"
		done
	elif [ "$1" = all ]; then
		for ((host = 0; host < hosts; host++)); do
			for ((rail = 0; rail < rails; rail++)); do
				echo "$host $rail"
			done
		done
	else
		die "'$1': railR, hostH.railR, hostH or all is wanted"
	fi
}

# The switchback command, for simulated devices.
switchback_command() {
	local candidate
	for candidate in "${SWITCHBACK:-}" "$here/../build/switchback" "$(command -v switchback || true)"; do
		if [ -n "$candidate" ] && [ -x "$candidate" ]; then
			realpath "$candidate"
			return
		fi
	done
	die "the switchback command was not found: build it (cmake -S . -B build && cmake --build build)" \
		"or set SWITCHBACK to its path"
}

rails_exec() {
	local host line
	local -a environment=()
	[ $# -ge 2 ] || die "exec: HOST and COMMAND are wanted"
	require_up
	[[ $1 =~ ^(host)?([0-9]{1,3})$ ]] || die "exec: '$1': hostH is wanted"
	host=$((10#${BASH_REMATCH[2]}))
	[ "$host" -lt "$hosts" ] || die "exec: '$1': there are hosts 0 to $((hosts - 1))"
	shift
	while IFS= read -r line; do
		environment+=("$line")
	done <"$state/host$host.env"
	exec ip netns exec "$(host_ns "$host")" env "${environment[@]}" "$@"
}
