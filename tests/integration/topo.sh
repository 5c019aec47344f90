#!/usr/bin/env bash
# switchback topo: its forms, its options, its errors. $1 is the build folder.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset NCCL_TOPO_FILE NCCL_TOPO_DUMP_FILE SWITCHBACK_SYSFS SWITCHBACK_BACKUP
topo() { "$build/switchback" topo "$@"; }
fail() { echo "FAILED: $*"; exit 1; }
machines=../topo/machines

# The tree for a person: each GPU with its NIC and its backup.
topo --file $machines/hgx8.xml >"$work/text"
grep -Eq '^4 .* mlx5_5/1 +PIX +48 +mlx5_4/1 +nearest port of GPU 5, neighbour of GPU 4$' "$work/text" || fail "text: $(cat "$work/text")"
grep -Eq '^GPU4 +NVL +NVL +NVL +NVL +LOC +NVL +NVL +NVL +PXN +PXN +PXN +PXN +PIX +PXN +PXN +PXN *$' "$work/text" || fail "matrix: $(cat "$work/text")"

# JSON can be read and says the same.
topo --file $machines/hgx8.xml --json >"$work/json"
jq -e '
	(.hosts[0].gpus | map(.dev) == [range(8)])
	and (.hosts[0].gpus[4] | .nic == "mlx5_5/1" and .backup == "mlx5_4/1" and .path == "PIX" and .bandwidth_gbyte_s == 48)
	and (.hosts[0].ports[] | select(.name == "mlx5_0") | .backups[0].port == "mlx5_1/1")
	and (.hosts[0].paths | length == 8 * 16)
	and (.hosts[0].paths[] | select(.from == "GPU 0 0000:19:00.0" and .to == "NET mlx5_1/1") | .type == "PXN")
	and (.hosts[0].paths[] | select(.from == "GPU 0 0000:19:00.0" and .to == "GPU 7 0000:cb:00.0") | .bandwidth_gbyte_s == 370.8)
	and (.graph.links | length == 2 * 8 * 6 + 2)
' "$work/json" >/dev/null || fail "json"

# A dump read back is the same file again; the graph too.
topo --file $machines/four_nic.xml --dump "$work/one.xml" --graph >"$work/one.graph"
topo --file "$work/one.xml" --dump "$work/two.xml" --graph >"$work/two.graph"
cmp "$work/one.xml" "$work/two.xml" || fail "dump"
cmp "$work/one.graph" "$work/two.graph" || fail "graph"
NCCL_TOPO_DUMP_FILE="$work/three.xml" topo --file $machines/four_nic.xml >/dev/null
cmp "$work/one.xml" "$work/three.xml" || fail "NCCL_TOPO_DUMP_FILE"

# The picture has a node and a line for each.
topo --file $machines/l20_switch.xml --dot >"$work/dot"
[ "$(grep -c 'label=.*fillcolor' "$work/dot")" = 13 ] || fail "dot nodes"
if command -v dot >/dev/null; then
	dot -Tsvg "$work/dot" -o "$work/svg" || fail "Graphviz refuses the picture"
fi

# A sysfs root elsewhere: a machine without GPU.
mkdir -p "$work/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0" "$work/sys/class/infiniband/mlx5_0/ports/1" "$work/sys/bus/pci/devices"
ln -s ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0 "$work/sys/bus/pci/devices/0000:01:00.0"
ln -s ../../../bus/pci/devices/0000:01:00.0 "$work/sys/class/infiniband/mlx5_0/device"
echo "100 Gb/sec (4X EDR)" >"$work/sys/class/infiniband/mlx5_0/ports/1/rate"
for how in --sysfs env; do
	if [ $how = env ]; then
		SWITCHBACK_SYSFS=$work topo >"$work/text" 2>"$work/warnings"
	else
		topo --sysfs "$work" >"$work/text" 2>"$work/warnings"
	fi
	grep -q 'mlx5_0/1 .*none: no other port on this host' "$work/text" || fail "$how: $(cat "$work/text")"
	grep -q '0000:01:00.0/max_link_speed' "$work/warnings" || fail "$how: no warning about the link"
done

# The override of backups.
SWITCHBACK_BACKUP=mlx5_0:mlx5_7 topo --file $machines/hgx8.xml >"$work/text"
grep -Eq '^0 .* mlx5_0/1 .* mlx5_7/1 +as configured$' "$work/text" || fail "override"

# Errors: exit status 2 and one line that names the thing.
expect_error() { # TEXT ARGUMENTS…
	local text=$1 status=0
	shift
	topo "$@" >"$work/out" 2>"$work/err" || status=$?
	[ $status = 2 ] || fail "status $status of: $*"
	grep -q -- "$text" "$work/err" || fail "no \"$text\" from: $*: $(cat "$work/err")"
}
expect_error 'nowhere.xml' --file "$work/nowhere.xml"
echo '<system version="1"><cpu/></system>' >"$work/bad.xml"
expect_error 'bad.xml:1: <cpu> lacks the attribute numaid' --file "$work/bad.xml"
expect_error 'sysfs root' --sysfs "$work/nowhere"
expect_error 'usage: switchback topo' --frob
expect_error 'dump /dev/full: No space left' --file $machines/hgx8.xml --dump /dev/full
[ -c /dev/full ] || fail "a dump took the place of a device"
topo --file $machines/four_nic.xml --dump /dev/stdout --dot | cat >"$work/pipe"
topo --file $machines/four_nic.xml --dump /dev/stdout --dot >"$work/file"
cmp "$work/pipe" "$work/file" || fail "dump to standard output: a pipe and a file differ"
grep -q '<system ' "$work/file" && grep -q '^graph topology' "$work/file" || fail "dump to standard output"
[ -L /dev/stdout ] || fail "a dump took the place of /dev/stdout"
expect_error '"extra" is not an option' extra
SWITCHBACK_BACKUP=mlx5_0 expect_error 'SWITCHBACK_BACKUP' --file $machines/hgx8.xml
echo ok
