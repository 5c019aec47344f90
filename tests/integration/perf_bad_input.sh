#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bad input: exit status 2 and one line that names the thing.
set -u
. "$(dirname "$0")/lib/perf.sh"
make_fabric

# refuse PATTERN ARGUMENTS…: `switchback ARGUMENTS` must exit with 2; one line of its errors matches.
refuse() {
	local pattern=$1 status=0
	shift
	timeout 60 "$switchback" "$@" >"$work/out" 2>"$work/err" || status=$?
	[ $status = 2 ] || fail "switchback $*: exit status $status, 2 wanted"
	[ "$(grep -c -- "$pattern" "$work/err")" = 1 ] || fail "switchback $*: no line, or several, with '$pattern'"
	! grep -q 'Gbit/s:' "$work/out" || fail "switchback $*: traffic ran all the same"
}

run=(perf sendrecv --fabric "$fabric" --max-bytes 64K --iters 10)
refuse "operation 'sendreceive'" perf sendreceive --fabric "$fabric"
refuse "argument 'more'" perf sendrecv more --fabric "$fabric"
refuse "no fabric 'nosuch'" perf sendrecv --fabric nosuch
refuse "bad.*name\|name.*'a/b'\|no fabric 'a/b'\|fabric name" perf sendrecv --fabric a/b
refuse "exclude each other" perf sendrecv --fabric "$fabric" --verbs libibverbs.so.1
refuse "/no/such/library" perf sendrecv --verbs /no/such/library --ranks-per-host 2
refuse "launcher" perf sendrecv
refuse "needs --fabric" perf sendrecv --hosts 2
refuse "needs --fabric" perf sendrecv --ranks-per-host 2 --fault "1s cut rail0"
refuse "nobody to talk to" "${run[@]}" --hosts 1 --ranks-per-host 1
refuse "fabric '$fabric' has 2" "${run[@]}" --hosts 3
refuse "--hosts 'x'" "${run[@]}" --hosts x
refuse "--hosts '0'" "${run[@]}" --hosts 0
refuse "--ranks-per-host '-1'" "${run[@]}" --ranks-per-host -1
refuse "--min-bytes '8X'" "${run[@]}" --min-bytes 8X
refuse "--max-bytes '2T'" "${run[@]}" --max-bytes 2T
refuse "--max-bytes '0'" "${run[@]}" --max-bytes 0
refuse "is above --max-bytes" "${run[@]}" --min-bytes 128K
refuse "--factor '1'" "${run[@]}" --factor 1
refuse "--iters '0'" "${run[@]}" --iters 0
refuse "exclude each other" "${run[@]}" --duration 1s
refuse "--duration '1h'" perf sendrecv --fabric "$fabric" --duration 1h
refuse "--timeout 'soon'" "${run[@]}" --timeout soon
refuse "switchback perf: unrecognized option '--nonsense'" "${run[@]}" --nonsense
for fault in "" "1s" "1s cut" "cut rail0 down" "1s mend rail0" "1s cut rail0 down both more" "1s restore rail0 down" \
	"-1s cut rail0"; do
	refuse "--fault '$fault'" "${run[@]}" --fault "$fault"
done
refuse "no port 'rail7'" "${run[@]}" --fault "1s cut rail7"
refuse "no port 'host2.rail0'" "${run[@]}" --fault "1s restore host2.rail0"
refuse "ports 'port0'" "${run[@]}" --fault "1s cut port0"
refuse "unknown fault 'unplugged'" "${run[@]}" --fault "1s cut rail0 unplugged"
refuse "fault 'loss=2'" "${run[@]}" --fault "1s cut rail0 loss=2"
refuse "way 'up'" "${run[@]}" --fault "1s cut rail0 blackhole up"
refuse "after the end of --duration" perf sendrecv --fabric "$fabric" --duration 1s --fault "2s cut rail0"

# Result files: checked before the traffic starts.
refuse "/no/such/folder/x.json: No such file" "${run[@]}" --json /no/such/folder/x.json
refuse "$work: Is a directory" "${run[@]}" --json "$work"
refuse "ends in .svg or .png" "${run[@]}" --plot "$work/x.gif"
refuse "/no/such/folder/x.svg: No such file" "${run[@]}" --plot /no/such/folder/x.svg
refuse_without_gnuplot() {
	local status=0
	PATH=/nowhere "$switchback" "${run[@]}" --plot "$work/x.svg" >"$work/out" 2>"$work/err" || status=$?
	[ $status = 2 ] && grep -q "gnuplot is not installed" "$work/err" || fail "missing gnuplot: status $status"
}
refuse_without_gnuplot

# Environment of the ranks.
for setting in SWITCHBACK_STALL_MS=fast SWITCHBACK_HOLDDOWN_MS=-3 SWITCHBACK_ALL_DOWN_TIMEOUT=never \
	NCCL_IB_TC=300 NCCL_IB_ADDR_FAMILY=4 SWITCHBACK_FAILOVER=maybe SWITCHBACK_BACKUP=nonsense SWITCHBACK_EVENTS=/no/such/folder/events; do
	status=0
	env "$setting" timeout 60 "$switchback" "${run[@]}" >"$work/out" 2>"$work/err" || status=$?
	[ $status = 2 ] || fail "$setting: exit status $status, 2 wanted"
	[ "$(grep -c "${setting%%=*}" "$work/err")" = 1 ] || [ "${setting%%=*}" = SWITCHBACK_BACKUP ] && grep -q "${setting%%=*}" "$work/err" || fail "$setting: the variable is not named"
done

# Devices are there, but no port of them can be used: the reason is told.
export NCCL_IB_GID_INDEX=77 SWITCHBACK_CONNECT_TIMEOUT=1
refuse "^switchback perf: rank 0 .*without an active port" "${run[@]}"
unset NCCL_IB_GID_INDEX SWITCHBACK_CONNECT_TIMEOUT

# A disk that is full: at the end (/dev/full), and before the start (a small tmpfs, where one can be made).
status=0
"$switchback" "${run[@]}" --json /dev/full >"$work/out" 2>"$work/err" || status=$?
[ $status = 2 ] && [ "$(grep -c '/dev/full: No space left on device' "$work/err")" = 1 ] || fail "/dev/full: status $status"
"$switchback" "${run[@]}" --json /dev/stdout >"$work/out" 2>"$work/err" || fail "--json /dev/stdout: exit status $?"
[ -L /dev/stdout ] && grep -q '^sendrecv' "$work/out" && grep -q '"op": "sendrecv"' "$work/out" || fail "--json /dev/stdout"
mkdir "$work/small"
if unshare -rm mount -t tmpfs -o size=16k none "$work/small" 2>/dev/null; then
	status=0
	unshare -rm sh -c 'mount -t tmpfs -o size=16k none "$1" && shift && exec "$@"' sh "$work/small" \
		"$switchback" "${run[@]}" --json "$work/small/x.json" >"$work/out" 2>"$work/err" || status=$?
	[ $status = 2 ] && [ "$(grep -c 'x.json: No space left on device' "$work/err")" = 1 ] || fail "full disk: status $status"
	! grep -q 'Gbit/s:' "$work/out" || fail "full disk: traffic ran all the same"
else
	echo "a full tmpfs was not tried: mount namespaces are not allowed here"
fi
[ -z "$(find "$work" -name '*.tmp')" ] || fail "a temporary file was left behind"

# The other commands.
refuse "'12x' is no process id" status 12x
refuse "process 1 does not use switchback" status 1
refuse "usage" status --json --prometheus
refuse "usage" devices more
refuse "unknown command 'perform'" perform
refuse "devices: --fabric nosuch: no fabric 'nosuch'" devices --fabric nosuch
refuse "switchback fabric cut: unrecognized option '--haw'" fabric cut "$fabric" rail0 --haw down

# What is asked for is no error: it goes to standard output.
for command in "" fabric "fabric create" "fabric cut" perf devices status topo; do
	# shellcheck disable=SC2086 # words
	"$switchback" $command --help >"$work/out" 2>"$work/err" || fail "$command --help: exit status $?"
	grep -q "^usage: switchback ${command%% *}" "$work/out" && [ ! -s "$work/err" ] || fail "$command --help"
done

# Standard output that can't be written.
for command in --help "devices --fabric $fabric" "devices --json --fabric $fabric" status "status --json" \
	"fabric status $fabric" "topo" "perf --help"; do
	status=0
	# shellcheck disable=SC2086 # words
	"$switchback" $command >/dev/full 2>"$work/err" || status=$?
	[ $status = 2 ] && [ "$(grep -c 'standard output' "$work/err")" = 1 ] || fail "$command >/dev/full: exit status $status"
done

# Events that can't be written are missed by someone: said, the job goes on.
SWITCHBACK_EVENTS=/dev/full SWITCHBACK_LOG=WARN "$switchback" "${run[@]}" >"$work/out" 2>"$work/err" ||
	fail "SWITCHBACK_EVENTS=/dev/full: exit status $?"
[ "$(grep -c 'SWITCHBACK_EVENTS=/dev/full: No space left' "$work/err")" = 2 ] || fail "events lost: not once for each process"
SWITCHBACK_LOG=loud "$switchback" devices --fabric "$fabric" >"$work/out" 2>"$work/err" || fail "SWITCHBACK_LOG"
[ "$(grep -c 'SWITCHBACK_LOG=loud' "$work/err")" = 1 ] || fail "SWITCHBACK_LOG=loud: not said"
echo passed
