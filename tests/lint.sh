#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formatting and static analysis of the whole tree: tests/lint.sh [--tidy] [BUILD_FOLDER]
# clang-tidy takes many minutes, so it runs only with --tidy.
# BUILD_FOLDER holds compile_commands.json. Exit status: 0 clean, 1 findings, 2 usage.
set -uo pipefail
cd "$(dirname "$0")/.."
tidy=0
if [ "${1:-}" = --tidy ]; then
	tidy=1
	shift
fi
build=${1:-build}
[ -e "$build/compile_commands.json" ] || { echo "tests/lint.sh: $build has no compile_commands.json" >&2; exit 2; }

failed=0
mapfile -t sources < <(git ls-files '*.c' '*.h')
# Other versions lay out some lines differently.
if clang-format --version | grep -q 'version 14\.'; then
	echo "== clang-format: ${#sources[@]} files"
	clang-format --dry-run -Werror "${sources[@]}" || failed=1
else
	echo "not run here: clang-format: the tree is laid out by version 14, this is $(clang-format --version)"
fi

# Suppressed, each for what it can't see: memory of a NIC is bytes to one part and numbers to another; post() may clear
# the pointer that it was called with; an object goes out by its first member; the library copies the attributes.
echo "== cppcheck"
cppcheck --quiet --std=c11 -j "$(nproc)" --enable=warning,performance,portability --error-exitcode=1 \
	--suppress=missingIncludeSystem --suppress=invalidPointerCast --suppress=nullPointerRedundantCheck:plugin/comm.c \
	--suppress=memleak:sim/verbs/mr.c --suppress=returnDanglingLifetime:core/verbs/qp.c \
	-D_GNU_SOURCE -Icore -Icore/include -Isim -Isim/include core sim plugin || failed=1

if [ $tidy = 1 ]; then
	mapfile -t analysed < <(git ls-files 'core/*.c' 'sim/*.c' 'plugin/*.c')
	echo "== clang-tidy: ${#analysed[@]} files"
	printf '%s\n' "${analysed[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p "$build" 2>/dev/null || failed=1
fi
exit $failed
