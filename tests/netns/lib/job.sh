# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# RAIL LOG: whether all connections of two ranks are on that rail, by what `switchback perf` said last of each in its log;
# they begin on rail 0.
job_says_on() {
	awk -v rail="rail$1" '
		BEGIN { at["0 -> 1:"] = at["1 -> 0:"] = "rail0" }
		/: failover, goes on on rail|: failback to rail/ && match($0, /[0-9]+ -> [0-9]+:/) {
			at[substr($0, RSTART, RLENGTH)] = $NF
		}
		END { for (i in at) if (at[i] != rail) exit 1 }' "$2"
}
