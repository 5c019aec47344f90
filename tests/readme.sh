#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test that tests/README.md names exists, and every row of the matrices is there: tests/readme.sh BUILD_FOLDER
set -uo pipefail
build=$(realpath "${1:?usage: tests/readme.sh BUILD_FOLDER}")
cd "$(dirname "$0")/.."
failed=0
fail() { echo "tests/README.md: $*"; failed=1; }

mapfile -t known < <(cd "$build" && ctest -N 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: //p')
declare -A is_test
for name in "${known[@]}"; do is_test[$name]=1; done
[ ${#known[@]} -gt 0 ] || { echo "no tests in $build"; exit 2; }

rows=$(grep -E '^\| [FAB][0-9]+ ' tests/README.md)
for row in F{1..26} A{1,2,3,4,5,6,8,11,12,13,14,16,18,20,21,22,24,26} B{27,28,30,31,32,34}; do
	line=$(grep -E "^\| $row " <<< "$rows") || { fail "row $row is missing"; continue; }
	mapfile -t named < <(grep -oE '`[^`]+`' <<< "$line" | tr -d '`')
	[ ${#named[@]} -gt 0 ] || fail "row $row names no test"
	for test in "${named[@]}"; do
		name=${test%%:*}
		[ -n "${is_test[$name]:-}" ] || { fail "row $row names $name, which is no test"; continue; }
		[ "$test" = "$name" ] && continue
		case=${test#*: }
		if [ -e "tests/unit/$name.c" ]; then source=tests/unit/$name.c; else source=core/util/mutant.h; fi
		grep -qw "$case" "$source" || fail "row $row names a case of $name that is not in $source: $case"
	done
done
[ $failed = 0 ] && echo "${#known[@]} tests, every name in tests/README.md is one of them"
exit $failed
