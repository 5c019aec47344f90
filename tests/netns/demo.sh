#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo takes the fabric that is best here, says which and why not a better one, and comes to its end on it.
# $2: rxe, sim (in namespaces; rxe all the same where this kernel has one), or loopback (as an ordinary user).
set -u
# shellcheck source=tests/netns/lib/netns.sh
. "$(dirname "$0")/lib/netns.sh"
command -v jq >/dev/null || skip "no jq here"

user=()
case $device in
rxe) wanted="the kernel's Soft-RoCE" ;;
sim) wanted="simulated devices on veth rails" ;;
loopback)
	wanted="the simulated fabric"
	user=(setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all)
	chmod 777 "$work"
	"${user[@]}" test -x "$build/switchback" || skip "an ordinary user can't read $build"
	;;
esac
if [ "$device" = sim ] && "$top/netns/has_rxe.sh" >/dev/null; then
	wanted="the kernel's Soft-RoCE"
fi
"${user[@]}" "$top/netns/demo.sh" --no-install --build "$build" --plot "$work/demo.svg" >"$work/out" 2>&1 ||
	fail "exit status $?: $(tail -n 60 "$work/out")"
grep -q "^== fabric: $wanted" "$work/out" || fail "another fabric than '$wanted': $(grep '^==' "$work/out")"
if [ "$device" = loopback ]; then
	grep -q '^== not used: no rxe: it needs root' "$work/out" || fail "no reason why not rxe: $(grep '^==' "$work/out")"
	grep -q '^== not used: no network namespaces: they need root' "$work/out" || fail "no reason: $(grep '^==' "$work/out")"
fi
[ -s "$work/demo.svg" ] || ! command -v gnuplot >/dev/null || fail "no picture"
grep '^==' "$work/out"

# What it is asked for, and what it can't do.
"$top/netns/demo.sh" --help | grep -q '^usage: netns/demo.sh' || fail "--help"
"$top/netns/demo.sh" --no-install --build "$work/nothing" >"$work/out" 2>&1
[ $? = 2 ] && [ "$(grep -c "nothing: no switchback" "$work/out")" = 1 ] && [ "$(wc -l <"$work/out")" = 1 ] ||
	fail "--build of an empty folder: $(cat "$work/out")"
