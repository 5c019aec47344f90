/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters from the environment. A bad value gives one line that names the variable, the value
 * and what is allowed, and -EINVAL; the caller decides whether to go on with the default.
 * Threads: as getenv(3).
 */
#ifndef SB_UTIL_PARAM_H
#define SB_UTIL_PARAM_H

#include <stddef.h>
#include <stdint.h>

/* Integer in [low, high], decimal or 0x…; *value keeps its content where the variable is unset. */
int sb_param_int(const char *name, int64_t low, int64_t high, int64_t *value);

/* 0/1, also true/false, yes/no, on/off in any case. */
int sb_param_bool(const char *name, int *value);

/* Bytes with an optional suffix K, M, G (powers of 1024, "iB" or "B" may follow). 0 or -EINVAL. */
int sb_parse_bytes(const char *text, uint64_t *bytes);

/* Duration with suffix us, ms, s, m; none means seconds. Result in nanoseconds. 0 or -EINVAL. */
int sb_parse_duration(const char *text, uint64_t *ns);

#endif
