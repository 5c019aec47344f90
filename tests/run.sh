#!/usr/bin/env bash
# Installs what is needed, builds, and runs every test that this machine can run; says which it could not, and why.
#   tests/run.sh [--quick] [--no-install] [BUILD_FOLDER]
# Exit status: 0 all passed, 1 a test failed, 2 the machine lacks something that can't be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source netns/install.sh

quick=0 install=1 build=build
for argument; do
	case $argument in
	--quick) quick=1 ;;
	--no-install) install=0 ;;
	-*) echo "usage: tests/run.sh [--quick] [--no-install] [BUILD_FOLDER]" >&2; exit 2 ;;
	*) build=$argument ;;
	esac
done
[ $install = 0 ] || install_packages build test

configure_and_build() { # FOLDER CMAKE_ARGUMENTS…
	local folder=$1; shift
	cmake -S . -B "$folder" -G Ninja "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
	cmake --build "$folder" || exit 1
}

failed=0
echo "== build"
mkdir -p "$build"
configure_and_build "$build"
echo "== tests"
ctest --test-dir "$build" --output-on-failure || failed=1
if [ $quick = 0 ]; then
	echo "== build with ASan and UBSan"
	mkdir -p "$build-asan"
	configure_and_build "$build-asan" -DCMAKE_BUILD_TYPE=Debug -DSB_SANITIZE=address,undefined
	echo "== tests with ASan and UBSan"
	ctest --test-dir "$build-asan" --output-on-failure || failed=1
fi
exit $failed
