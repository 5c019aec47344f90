#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `cmake --install --prefix` makes is complete: command, simulated fabric, plugin, and a program of its own that is
# built by pkg-config. Moved to another place it still is.
set -u
source=$(cd "$(dirname "$0")" && pwd)
. "$source/lib/perf.sh"
prefix=$work/moved

cmake --install "$build" --prefix "$work/prefix" >"$work/out" 2>"$work/err" || fail "cmake --install"
mv "$work/prefix" "$prefix"
switchback=$prefix/bin/switchback
make_fabric
"$switchback" devices --fabric "$fabric" >"$work/out" 2>"$work/err" || fail "devices"
grep -q 'sbr1:1 ' "$work/out" || fail "devices: no second port"
perf 0 sendrecv --max-bytes 64K --iters 10 --check
expect_verified

# The program: one process of each host, one message.
libraries=$(dirname "$(find "$prefix" -name libswitchback.so)")
sanitizer=$(sed -n 's/^SB_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
export PKG_CONFIG_PATH=$libraries/pkgconfig
flags=$(pkg-config --cflags --libs switchback) || fail "pkg-config"
# shellcheck disable=SC2086 # flags are words
"$compiler" -Wall -Wextra -Werror $sanitizer "$source/lib/send_one.c" $flags -Wl,-rpath,"$libraries" -o "$work/send_one" \
	>"$work/out" 2>"$work/err" || fail "building a program against the installation"
SWITCHBACK_FABRIC=$fabric SWITCHBACK_VERBS=$libraries/switchback/libibverbs.so.1 timeout 60 "$work/send_one" \
	>"$work/out" 2>"$work/err" || fail "the program: exit status $?"
grep -q '^received 1048576 bytes' "$work/out" || fail "the program received nothing"

# The plugin under both of its names.
for name in nccl rccl; do
	nm -D --defined-only "$libraries/lib$name-net-switchback.so" >"$work/out" 2>"$work/err" || fail "no plugin for $name"
	grep -q ncclNetPlugin_v10 "$work/out" || fail "lib$name-net-switchback.so has no ncclNetPlugin_v10"
done
echo passed
