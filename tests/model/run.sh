#!/usr/bin/env bash
# Checks the model of the protocol with spin.
#   tests/model/run.sh [--small | --large | --mutants | --trail MUTANT] [--keep FOLDER]
# --small (default): exhaustive, under a minute. --large: bigger sizes, and liveness with weak fairness; about 20 minutes, 1 GiB.
# --mutants: every mutant of mutants.txt has to fail. --trail: prints how one of them fails, in the fewest steps.
# --keep: programs, output and trails stay in FOLDER.
# Exit status: 0 as it should be, 1 not, 2 usage, 77 spin or a compiler is missing.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage="usage: tests/model/run.sh [--small | --large | --mutants | --trail MUTANT] [--keep FOLDER]"
size=small keep="" mutant=""
while [ $# -gt 0 ]; do
	case $1 in
	--small | --large | --mutants) size=${1#--} ;;
	--trail | --keep)
		[ $# -gt 1 ] || { echo "$usage" >&2; exit 2; }
		if [ "$1" = --keep ]; then keep=$2; else size=trail mutant=$2; fi
		shift
		;;
	*) echo "$usage" >&2; exit 2 ;;
	esac
	shift
done
for tool in spin gcc; do
	command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
if [ -n "$keep" ]; then
	mkdir -p "$keep" && work=$(cd "$keep" && pwd) || exit 2
else
	work=$(mktemp -d) || exit 2
	trap 'rm -rf "$work"' EXIT
fi
failed=0

# build NAME safety|liveness SWITCH…
build() {
	local name=$1 kind=$2 options="-DSAFETY"
	shift 2
	mkdir -p "$work/$name" && cd "$work/$name" && rm -f ./*.trail && cp "$here/protocol.pml" . || return 1
	if [ "$kind" = liveness ]; then
		options="-DNFAIR=3"
		set -- "$@" -DLIVENESS
	fi
	# Every state is kept in full (COLLAPSE loses nothing); no bit state, no hash compaction.
	spin -a "$@" protocol.pml >spin.log 2>&1 &&
		gcc -O1 -w $options -DNOREDUCE -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM=12000 -o pan pan.c >gcc.log 2>&1 ||
		{ cat spin.log gcc.log 2>/dev/null; return 1; }
}

# Which clause of the contract the assertion in FILE belongs to.
clause() { # FILE
	case $(grep '^pan:[0-9]*:' "$1" | grep -v trail | tail -1) in
	*'assertion violated ((received&'*) echo ghost ;;
	*'assertion violated ((arrived&'*) echo early ;;
	*'assertion violated (rp[q].last_up'*) echo unproven ;;
	*'assertion violated (n==i)'*) echo request ;;
	*'assertion violated (content['*) echo bytes ;;
	*'assertion violated (group[i].incarnation>'*) echo lost ;;
	*'assertion violated ((((((((resume=='*) echo hang ;;
	*'acceptance cycle'*) echo hang ;;
	*) echo "something else: $(grep -m1 '^pan' "$1")" ;;
	esac
}

figures() { # FILE
	awk '/states, stored/ { states = $1 } /depth reached/ { sub(",", "", $6); depth = $6 }
		/elapsed time/ { time = $4 } END { printf "%9d states, depth %3d, %5.1f s", states, depth, time }' "$1"
}

# The steps of the trail in this folder, one a line.
steps() { # SWITCH…
	spin -t "$@" protocol.pml 2>&1 | sed -nE 's/^ *((sender|receiver|network|environment): .*)/\1/p'
}

# holds NAME safety|liveness SWITCH…: no error in any state
holds() {
	local name=$1 kind=$2 flags=""
	build "$@" || { failed=1; echo "FAIL $name can't be built"; return; }
	[ "$kind" = safety ] || flags="-a -f"
	./pan -m100000 $flags >out 2>&1
	if grep -q 'errors: 0' out && ! grep -Eq 'max search depth too small|out of memory|search not completed' out; then
		printf 'ok   %-10s %-8s %s  %s\n' "$name" "$kind" "$(figures out)" "${*:3}"
	else
		failed=1
		printf 'FAIL %-10s %-8s %s: %s\n' "$name" "$kind" "${*:3}" "$(clause out)"
		steps "${@:3}"
	fi
}

# breaks NAME CLAUSE[,CLAUSE] SWITCH…: the mutant is found out
breaks() {
	local name=$1 expected=$2 found
	shift 2
	build "$name" safety "-DM_$name" "$@" || { failed=1; echo "FAIL $name can't be built"; return; }
	./pan -m100000 >out 2>&1
	found=$(clause out)
	if ! grep -q 'errors: 1' out; then
		found="survives"
	fi
	case ",$expected," in
	*",$found,"*) printf 'ok   %-22s %-9s at depth %3d  %s\n' "$name" "$found" \
		"$(sed -n 's/^pan:1:.*at depth \([0-9]*\).*/\1/p' out)" "$(figures out)" ;;
	*)
		failed=1
		echo "FAIL $name: expected $expected, found $found"
		;;
	esac
}

# Prints the shortest way into the error of one mutant.
trail() { # MUTANT
	local name expected switches
	while read -r name expected switches; do
		[ "$name" = "$1" ] || continue
		# shellcheck disable=SC2086 # switches are words
		build "$name" safety "-DM_$name" $switches || exit 1
		gcc -O1 -w -DSAFETY -DREACH -DNOREDUCE -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c || exit 1
		./pan -i -m60 >out 2>&1
		# shellcheck disable=SC2086
		steps "-DM_$name" $switches
		echo "violated: $(clause out)"
		return
	done <"$here/mutants.txt"
	echo "there is no mutant $1 in mutants.txt" >&2
	exit 2
}

case $size in
trail) trail "$mutant" ;;
small)
	holds faults safety -DMESSAGES=3 -DFAULTS=2 -DLOSSES=0
	holds losses safety -DMESSAGES=2 -DFAULTS=2 -DLOSSES=1
	holds connect safety -DMESSAGES=2 -DFAULTS=1 -DLOSSES=1 -DCONNECT
	holds send_ack safety -DMESSAGES=3 -DFAULTS=1 -DLOSSES=0 -DSEND_ACK
	holds progress liveness -DMESSAGES=2 -DFAULTS=1 -DLOSSES=1
	;;
large)
	holds both safety -DMESSAGES=3 -DFAULTS=2 -DLOSSES=1
	holds losses safety -DMESSAGES=3 -DFAULTS=2 -DLOSSES=2
	holds messages safety -DMESSAGES=4 -DFAULTS=2 -DLOSSES=1
	holds window safety -DMESSAGES=4 -DWINDOW=3 -DFAULTS=2 -DLOSSES=0
	holds spread safety -DMESSAGES=3 -DFAULTS=2 -DLOSSES=1 -DSPREAD
	holds connect safety -DMESSAGES=3 -DFAULTS=2 -DLOSSES=0 -DCONNECT
	holds three safety -DMESSAGES=2 -DFAULTS=3 -DLOSSES=0
	holds paths safety -DMESSAGES=2 -DFAULTS=2 -DLOSSES=0 -DPATHS=3
	holds send_ack safety -DMESSAGES=3 -DFAULTS=2 -DLOSSES=0 -DSEND_ACK
	holds progress liveness -DMESSAGES=3 -DFAULTS=2 -DLOSSES=0
	holds relief liveness -DMESSAGES=2 -DFAULTS=2 -DLOSSES=1 -DSPREAD
	;;
mutants)
	# What NO_SEQ_CHECK is judged against: without the fence, the check of the seq alone still
	# keeps every record with its own request.
	holds seq_check safety -DM_NO_FENCE -DSECOND_LINE -DFAULTS=1
	while read -r name expected switches; do
		case $name in
		'' | '#'*) ;;
		# shellcheck disable=SC2086 # switches are words
		*) breaks "$name" "$expected" $switches ;;
		esac
	done <"$here/mutants.txt"
	;;
esac
exit $failed
