#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plugin lives in other people's containers: it may need libc and what rdma-core needs itself,
# nothing else, and may show nothing but NCCL's symbols. $1 is the plugin.
set -u
library=$1
status=0

wrong() {
	echo "$*" >&2
	status=1
}

if nm -D --undefined-only "$library" | grep -qE '__(asan|tsan|ubsan)'; then
	echo "skipped: sanitizers add symbols and libraries"
	exit 77
fi
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
	case $name in
	libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | ld-linux*.so.* | libnl-3.so.200 | libnl-route-3.so.200) ;;
	*) wrong "needs $name" ;;
	esac
done
[ -n "$needed" ] || wrong "needs nothing at all: is this a library?"
shown=$(nm -D --defined-only "$library" | awk '{print $3}' | sort -V | tr '\n' ' ')
expected=$(printf 'ncclNetPlugin_v%s ' 6 7 8 9 10 11 12)
[ "$shown" = "$expected" ] || wrong "shows '$shown', not '$expected'"
readelf -d "$library" | grep -q NODELETE || wrong "NCCL would unload it under its threads: no NODELETE"
foreign=$(nm -D --undefined-only "$library" | grep -E ' (ibv_|cu[A-Z]|XML_|json_|isal_|crc)')
[ -z "$foreign" ] || wrong "wants symbols of libraries that may not be there: $foreign"
newest=$(objdump -T "$library" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
# The names with new versions since are asked for by their old ones (plugin/old_libc.c).
if [ "$(uname -m)" = x86_64 ] && [ "$(printf '%s\n' GLIBC_2.31 "$newest" | sort -V | tail -1)" != GLIBC_2.31 ]; then
	wrong "wants $(objdump -T "$library" | grep "$newest" | awk '{print $NF}' | tr '\n' ' ')of $newest, newer than 2.31"
fi
echo "needs: $(echo $needed), symbols up to $newest"
exit $status
