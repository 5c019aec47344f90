#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hosts as network namespaces, rails as veth links between them, one RDMA device per end of a rail;
# cut and restored with the tools an administrator would use. netns/README.md describes it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=netns/rails_common.sh
. "$here/rails_common.sh"
# shellcheck source=netns/rails_up.sh
. "$here/rails_up.sh"
# shellcheck source=netns/rails_cut.sh
. "$here/rails_cut.sh"

usage() {
	cat <<-'END'
	usage: rails.sh up [--hosts 2] [--rails 2] [--device none|sim|rxe] [--switch auto|none|bridge|router]
	       rails.sh down
	       rails.sh cut PORTS [--how FAULT] [--way both|in|out]
	       rails.sh restore PORTS
	       rails.sh status
	       rails.sh exec HOST COMMAND [ARGUMENT…]
	each with [--name NAME] before it: several sets of rails side by side, default "sb"
	PORTS: railR, hostH.railR, hostH or all
	FAULT: down (the default), port-down, blocked, no-address, no-device, blackhole, loss=P, delay=T,
	       duplicate=P, reorder=P, corrupt=P, rate=R; P is 1% or 0.01, T is 5ms, R is 100mbit
	END
}

main() {
	local action

	while [ "${1:-}" = --name ]; do
		[ $# -ge 2 ] || die "--name wants a name"
		set_name "$2"
		shift 2
	done
	action=${1:-}
	[ $# -eq 0 ] || shift
	case $action in
	up) rails_up "$@" ;;
	down)
		[ $# -eq 0 ] || die "down: too many arguments: '$1'"
		rails_down
		;;
	cut) rails_cut "$@" ;;
	restore)
		[ $# -eq 1 ] || die "restore: PORTS is wanted"
		rails_restore "$1"
		;;
	status)
		[ $# -eq 0 ] || die "status: too many arguments: '$1'"
		rails_status
		;;
	exec) rails_exec "$@" ;;
	-h | --help) usage ;;
	"")
		usage >&2
		exit 2
		;;
	*)
		echo "rails.sh: unknown action '$action'" >&2
		usage >&2
		exit 2
		;;
	esac
}

main "$@"
