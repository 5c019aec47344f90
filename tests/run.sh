#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is needed, builds, and runs every test that this machine can run; says which it could not, and why.
#   tests/run.sh [--quick] [--no-install] [BUILD_FOLDER]
# --quick leaves out the builds with sanitizers: ASan and UBSan for all tests, TSan for those with threads.
# Exit status: 0 all passed, 1 a test failed, 2 the machine lacks something that can't be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source netns/install.sh

usage="usage: tests/run.sh [--quick] [--no-install] [BUILD_FOLDER]"
quick=0 install=1 build=build vm_minutes=7
for argument; do
	case $argument in
	--quick) quick=1 ;;
	--no-install) install=0 ;;
	--help) echo "$usage"; exit 0 ;;
	-*) echo "$usage" >&2; exit 2 ;;
	*) build=$argument ;;
	esac
done
if [ $install = 1 ]; then
	install_packages build test demo
else
	export SWITCHBACK_NO_INSTALL=1
fi

configure_and_build() { # FOLDER TARGET CMAKE_ARGUMENTS…
	local folder=$1 target=$2; shift 2
	mkdir -p "$folder"
	cmake -S . -B "$folder" -G Ninja "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
	cmake --build "$folder" --target "$target" >"$folder.log" 2>&1 || { tail -50 "$folder.log"; exit 1; }
}

# Tests that a machine can't run end with 77 and a line that begins with "skipped:".
run_tests() { # FOLDER CTEST_ARGUMENTS…
	local folder=$1; shift
	ctest --test-dir "$folder" --output-on-failure "$@" || failures+=("tests in $folder")
	awk '/^[0-9]+\/[0-9]+ Testing: /{name=$3} tolower($0) ~ /^skipped/{print "not run here: " name ": " $0}' \
		"$folder/Testing/Temporary/LastTest.log"
}

failures=()
echo "== build"
configure_and_build "$build" all -DSB_VM_TESTS=ON
echo "== formatting and static analysis"
tests/lint.sh "$build" || failures+=("formatting and static analysis")
echo "== tests"
run_tests "$build" -LE rxe
echo "== tests on the kernel's rxe, in a QEMU guest where this kernel has none; they end after $vm_minutes minutes"
SWITCHBACK_VM_UNTIL=$(($(date +%s) + vm_minutes * 60)) run_tests "$build" -L rxe
if [ $quick = 0 ]; then
	echo "== build with ASan and UBSan"
	configure_and_build "$build-asan" all -DSB_VM_TESTS=OFF -DCMAKE_BUILD_TYPE=Debug -DSB_SANITIZE=address,undefined
	echo "== tests with ASan and UBSan (the model is the same program in both builds: not again)"
	run_tests "$build-asan" -LE model
	echo "== build with TSan"
	configure_and_build "$build-tsan" threads -DSB_VM_TESTS=OFF -DCMAKE_BUILD_TYPE=Debug -DSB_SANITIZE=thread
	echo "== tests with threads"
	run_tests "$build-tsan" -L threads
fi
if [ ${#failures[@]} -gt 0 ]; then
	printf 'FAILED: %s\n' "${failures[@]}"
	exit 1
fi
echo "all passed"
