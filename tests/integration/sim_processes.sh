#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Several processes of a host on one device at once: each gets its packets; one that is killed or
# stopped disturbs nobody; the next one takes its slot.
set -u
. "$(dirname "$0")/lib/sim.sh"
need ibv_rc_pingpong
fabric_make

gone() {
	! kill -0 "$1" 2> /dev/null
}

users() {
	"$build/switchback" fabric status "$fabric" | grep -c '^process'
}

users_are() {
	[ "$(users)" = "$1" ]
}

pairs=4
declare -a servers clients
for i in $(seq $pairs); do
	port=$(free_port)
	start 0 "$work/server$i" timeout 100 ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -s $((i * 3000)) -n 3000 -c
	servers[i]=$pid
	wait_listening "$port" || fail "server $i doesn't listen: $(cat "$work/server$i")"
	start 1 "$work/client$i" timeout 100 ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -s $((i * 3000)) -n 3000 -c 127.0.0.1
	clients[i]=$pid
done
# One more pair that is killed, and one that is stopped, in the midst of the others.
port=$(free_port)
start 0 "$work/victim" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000
victim=$pid
wait_listening "$port" || fail "the victim doesn't listen"
start 1 "$work/widow" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000 127.0.0.1
widow=$pid
port=$(free_port)
start 0 "$work/sleeper" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000
sleeper=$pid
wait_listening "$port" || fail "the sleeper doesn't listen"
start 1 "$work/waiter" ibv_rc_pingpong -p "$port" -d sbr0 -g 1 -n 100000000 127.0.0.1
waiter=$pid
wait_until users_are $((2 * pairs + 4)) || wait_until users_are 4 || fail "not all joined: $(users)"
kill -STOP $sleeper
kill -9 $victim
wait $victim 2> /dev/null
for i in $(seq $pairs); do
	wait ${clients[i]} || fail "client $i: $(cat "$work/client$i")"
	wait ${servers[i]} || fail "server $i: $(cat "$work/server$i")"
done
# Their peers saw silence: an error if they were sending, nothing if they were waiting.
kill -CONT $sleeper
kill -9 $sleeper $waiter $widow 2> /dev/null
wait_until users_are 0 || fail "slots are left: $("$build/switchback" fabric status "$fabric")"

# A fabric whose user was killed can be made anew; one in use can't.
port=$(free_port)
start 0 "$work/user" ibv_rc_pingpong -p "$port" -d sbr0 -g 1
wait_listening "$port" || fail "the user doesn't listen"
"$build/switchback" fabric create "$fabric" 2> "$work/err" && fail "a fabric in use was replaced"
grep -q "1 process uses it" "$work/err" || fail "unclear: $(cat "$work/err")"
kill -9 $pid
wait $pid 2> /dev/null
"$build/switchback" fabric create "$fabric" > /dev/null || fail "the fabric of a dead run stays"
echo "ok"
