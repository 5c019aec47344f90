#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What becomes of a guest that dies: vm.sh and on_rxe.sh with a QEMU that is a script and a kernel that is an empty file.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "FAILED: $*: $(cat "$work/out")" >&2
	exit 1
}

[ "$(uname -m)" = x86_64 ] || { echo "skipped: only x86_64 machines run the guest"; exit 77; }
# Packages are taken as installed, the kernel as fetched.
mkdir -p "$work/bin" "$work/cache/kernel"
touch "$work/cache/kernel/vmlinuz" "$work/cache/kernel/initramfs"
echo 1.0 >"$work/cache/kernel/version"
echo "$work/cache/kernel" >"$work/cache/newest"
printf '#!/bin/sh\necho "install ok installed"\n' >"$work/bin/dpkg-query"
# Each start takes a word off the plan: "die" before the command begins, "hang" then, "fall" while it runs, "oops" as well but
# with the kernel's words, "stay" in it; a number is the exit status of the command.
cat >"$work/bin/qemu-system-x86_64" <<'END'
#!/bin/bash
share=$(sed -n 's/.*path=\([^,]*\),mount_tag=share.*/\1/p' <<<"$*")
read -r word rest <"$PLAN"
echo "$rest" >"$PLAN"
case $word in
die) exit 7 ;;
hang) exec tail -f /dev/null ;;
esac
: >"$share/started"
case $word in
fall) exit 0 ;;
oops)
	echo "Oops: 0000 [#1] SMP" >"$(sed -n 's/.*-serial file:\([^ ]*\).*/\1/p' <<<"$*")"
	exit 0
	;;
stay) exec tail -f /dev/null ;;
esac
echo "$word" >"$share/status"
END
chmod 755 "$work/bin/"*
export PATH=$work/bin:$PATH PLAN=$work/plan SWITCHBACK_VM_CACHE=$work/cache SWITCHBACK_VM_BOOT_LIMIT=2
export SWITCHBACK_VM_LIST=$work/list
printf '%s\n' "one 2 true" "two 1000 true" >"$work/list"

# expect STATUS PLAN REST COMMAND: its status, and what is left of the plan.
expect() {
	local status=0
	echo "$2" >"$PLAN"
	"${@:4}" >"$work/out" 2>&1 || status=$?
	[ "$status" = "$1" ] || fail "$2: status $status instead of $1"
	[ "$(xargs <"$PLAN")" = "$3" ] || fail "$2: '$(cat "$PLAN")' is left instead of '$3'"
}
guest=("$top/netns/vm.sh" --timeout 2 -- true)
expect 0 "0 1" 1 "${guest[@]}"
expect 5 "5 0" 0 "${guest[@]}"
expect 6 "die 6 0" 0 "${guest[@]}"
expect 6 "hang 6 0" 0 "${guest[@]}"
expect 125 "die die 0" 0 "${guest[@]}"
expect 4 "fall 4 0" 0 "${guest[@]}"
expect 125 "fall fall 0" 0 "${guest[@]}"
expect 123 "oops 0" 0 "${guest[@]}"
expect 124 "stay 0" 0 "${guest[@]}"

if "$top/netns/has_rxe.sh" >"$work/out"; then
	echo "not tried: on_rxe.sh without an rxe in this kernel"
	exit 0
fi
test=("$top/tests/netns/on_rxe.sh" "$work" one)
expect 0 "die 0 1" 1 "${test[@]}"
expect 1 "1 1 0" 0 "${test[@]}"
expect 0 "1 0 1" 1 "${test[@]}"
expect 123 "oops oops 0" 0 "${test[@]}"
expect 124 "stay stay 0" 0 "${test[@]}"
expect 77 "die die 0" 0 "${test[@]}"
grep -q "^skipped: .*doesn't start or last" "$work/out" || fail "no reason"
SWITCHBACK_VM_UNTIL=$(date +%s) expect 77 "0" 0 "${test[@]}"
grep -q '^skipped: .*used up' "$work/out" || fail "no reason"
SWITCHBACK_VM_UNTIL=$(($(date +%s) + 15)) expect 77 "stay 0" 0 "$top/tests/netns/on_rxe.sh" "$work" two
grep -q '^skipped: .*did not come to its end' "$work/out" || fail "no reason"
# What failed once is not excused by the time.
SWITCHBACK_VM_UNTIL=$(($(date +%s) + 15)) expect 1 "1 stay 0" 0 "$top/tests/netns/on_rxe.sh" "$work" two
grep -q '^failed with status 1; the second time: .*did not come to its end' "$work/out" || fail "no reason"
# Nothing is installed where that is not wanted, and nothing fetched: no guest, and the reason.
printf '#!/bin/sh\nexit 1\n' >"$work/bin/dpkg-query"
SWITCHBACK_NO_INSTALL=1 expect 77 "0" 0 "${test[@]}"
grep -q '^skipped: .*missing packages:.*qemu' "$work/out" || fail "no reason"
echo ok
