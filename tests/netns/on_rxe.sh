#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test of vm.list against the kernel's rxe: here if this kernel has one that works in
# namespaces, else in the guest of netns/vm.sh.
#   on_rxe.sh BUILD_FOLDER NAME
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
BUILD=$(cd "$1" && pwd)
export BUILD
read -r name limit command <<<"$(grep "^$2 " "$here/vm.list")"
if [ -z "$name" ]; then
	echo "vm.list has no test '$2'" >&2
	exit 2
fi
cd "$top" || exit 2
if netns/has_rxe.sh; then
	exec timeout "$limit" bash -c "$command"
fi
netns/vm.sh --prepare || {
	echo "skipped: no rxe here, and no guest can be made (above)"
	exit 77
}
exec netns/vm.sh --timeout "$((limit + 60))" -- bash -c "$command"
