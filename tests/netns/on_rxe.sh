#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test of vm.list against the kernel's rxe: here if this kernel has one that works in
# namespaces, else in the guest of netns/vm.sh.
#   on_rxe.sh BUILD_FOLDER NAME
# SWITCHBACK_VM_UNTIL, in seconds since 1970, bounds all such tests together: what does not come to its
# end by then was not run, and says so. A guest that can't be had is no failure of a test either.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
BUILD=$(cd "$1" && pwd)
export BUILD

failed=0
# Not run; what has failed once already stays failed.
skip() {
	[ $failed = 0 ] || { echo "failed with status $failed; the second time: $*"; exit $failed; }
	echo "skipped: $*"
	exit 77
}

# At most $1 seconds, less where the time for all is short: sets `seconds`.
bounded() {
	local left=$((${SWITCHBACK_VM_UNTIL:-9999999999} - $(date +%s)))
	seconds=$(($1 < left ? $1 : left))
	[ "$seconds" -gt 0 ] || skip "the time that is set for tests in a guest is used up"
}

read -r name limit command <<<"$(grep "^$2 " "${SWITCHBACK_VM_LIST:-$here/vm.list}")"
if [ -z "$name" ]; then
	echo "vm.list has no test '$2'" >&2
	exit 2
fi
cd "$top" || exit 2
reason=$(netns/has_rxe.sh) && exec timeout "$limit" bash -c "$command"
echo "$reason"

bounded 600
reason=$(timeout "$seconds" netns/vm.sh --prepare 2>&1) ||
	skip "no rxe here, and no guest can be made in $seconds s: $(tail -n 3 <<<"$reason" | paste -sd' ')"
# Sets `status`; a test that the time for all of them cut short was not run, whatever it says of that.
in_guest() {
	local begin
	bounded "$limit"
	begin=$(date +%s) status=0
	netns/vm.sh --timeout "$seconds" -- bash -c "$command" || status=$?
	if [ $status != 0 ] && [ "$seconds" -lt "$limit" ] && [ $(($(date +%s) - begin)) -ge $((seconds - 5)) ]; then
		skip "it did not come to its end in what was left of the time for tests in a guest, $seconds s"
	fi
	[ $status != 125 ] || skip "no rxe here, and a guest doesn't start or last (above)"
}

in_guest
# An emulated guest on a busy machine can stand still for seconds, in which peers and paths are taken for dead.
if [ $status != 0 ]; then
	failed=$status
	echo "== failed in the guest, with status $status; once more"
	in_guest
fi
exit $status
