#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command and cuts and restores rails meanwhile, at given times after its start.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
	cat <<-'END'
	usage: cut.sh [--name NAME] --at EVENT [--at EVENT …] -- COMMAND [ARGUMENT…]
	EVENT: "TIME cut PORTS [FAULT] [both|in|out]", "TIME restore PORTS" or "TIME run SHELL COMMAND",
	such as "2s cut rail0 down" and "4s restore rail0". TIME is 500ms, 2s or 1.5s; PORTS and FAULT are
	those of rails.sh. What is done, and how long it took, is written on standard error.
	The exit status is the command's; 3 if that is 0 but an event failed, or the command ended before it.
	END
}

die() {
	echo "cut.sh: $*" >&2
	exit 2
}

name=sb
at=() what=()

milliseconds() {
	[[ $1 =~ ^([0-9]+(\.[0-9]+)?)(ms|s)$ ]] || return 1
	awk -v n="${BASH_REMATCH[1]}" -v u="${BASH_REMATCH[3]}" 'BEGIN { printf "%d", u == "s" ? n * 1000 : n }'
}

event_parse() {
	local words=() time rest
	read -r -a words <<<"$1"
	time=$(milliseconds "${words[0]:-}") || die "--at '$1': it begins with a time such as 2s or 500ms"
	case ${words[1]:-}-${#words[@]} in
	cut-[345]) rest="cut ${words[2]} --how ${words[3]:-down} --way ${words[4]:-both}" ;;
	restore-3) rest="restore ${words[2]}" ;;
	run-*)
		rest=${1#*run}
		[ -n "${rest// /}" ] || die "--at '$1': a command is wanted after 'run'"
		rest="run ${rest# }"
		;;
	*) die "--at '$1': cut PORTS [FAULT] [WAY], restore PORTS or run COMMAND is wanted" ;;
	esac
	at+=("$time")
	what+=("$rest")
}

now_ms() { echo "$((${EPOCHREALTIME/[.,]/} / 1000))"; }

event_do() {
	case $1 in
	run\ *) bash -c "${1#run }" ;;
	*)
		# shellcheck disable=SC2086 # an event is words
		"$here/rails.sh" --name "$name" $1
		;;
	esac
}

# Waits until then; 1 when the command ended before.
wait_until() {
	local left
	while left=$(($1 - $(now_ms))) && [ "$left" -gt 0 ]; do
		kill -0 "$child" 2>/dev/null || return 1
		# In pieces, to notice the end of the command.
		[ "$left" -le 200 ] || left=200
		read -r -t "$(printf '0.%03d' "$left")" <>"$never" || true
	done
	kill -0 "$child" 2>/dev/null
}

events_run() {
	local start=$1 failed=0 i began order=()
	mapfile -t order < <(paste -d' ' <(printf '%s\n' "${at[@]}") <(printf '%s\n' "${!at[@]}") |
		sort -n -s -k1,1 | cut -d' ' -f2)
	for i in "${order[@]}"; do
		if ! wait_until $((start + at[i])); then
			echo "cut.sh: the command ended before: ${at[i]} ms ${what[i]}" >&2
			failed=3
			continue
		fi
		began=$(now_ms)
		if event_do "${what[i]}" >&2; then
			echo "cut.sh: $((began - start)) ms: ${what[i]} (took $(($(now_ms) - began)) ms)" >&2
		else
			echo "cut.sh: $((began - start)) ms: ${what[i]} failed" >&2
			failed=3
		fi
	done
	return "$failed"
}

clean_up() {
	[ -z "$child" ] || kill "$child" 2>/dev/null || true
	rm -rf "$work"
}

main() {
	local status=0 events=0
	while [ $# -gt 0 ]; do
		case $1 in
		--name | --at)
			[ $# -ge 2 ] || die "$1 wants a value"
			if [ "$1" = --name ]; then name=$2; else event_parse "$2"; fi
			shift 2
			;;
		-h | --help)
			usage
			exit 0
			;;
		--)
			shift
			break
			;;
		*) die "unknown argument '$1'" ;;
		esac
	done
	if [ $# = 0 ] || [ ${#at[@]} = 0 ]; then
		usage >&2
		exit 2
	fi
	child=''
	work=$(mktemp -d)
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	never=$work/never
	mkfifo "$never"
	"$@" &
	child=$!
	events_run "$(now_ms)" || events=$?
	wait "$child" || status=$?
	child=''
	[ "$status" != 0 ] || status=$events
	exit "$status"
}

main "$@"
