/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines. A line goes to the logger that the embedding program set (sb_log_set, NCCL's for the
 * plugin) or to standard error. Threads: any. Never called on the data path.
 */
#ifndef SB_UTIL_LOG_H
#define SB_UTIL_LOG_H

#include "switchback.h"
#include <stdbool.h>

/* Lowest level that is passed on. Default: SWITCHBACK_LOG (error|warn|info|debug), warn without it.
 */
void sb_log_set_level(enum sb_log_level level);
bool sb_log_enabled(enum sb_log_level level);

void sb_log(enum sb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define sb_error(...) sb_log(SB_LOG_ERROR, __VA_ARGS__)
#define sb_warn(...)  sb_log(SB_LOG_WARN, __VA_ARGS__)
#define sb_info(...)  sb_log(SB_LOG_INFO, __VA_ARGS__)
#define sb_debug(...)                                                                              \
	do {                                                                                       \
		if (sb_log_enabled(SB_LOG_DEBUG))                                                  \
			sb_log(SB_LOG_DEBUG, __VA_ARGS__);                                         \
	} while (0)

#endif
