/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#define LINE_BYTES 1024

static _Atomic(nccl_logger) logger;

static void write_line(enum nccl_log_level level, const char *line)
{
	nccl_logger to = atomic_load(&logger);

	if (to != NULL) {
		to(level, level == NCCL_LOG_WARN ? NCCL_SUBSYSTEM_ALL : NCCL_SUBSYSTEM_NET,
		   "NET/" PLUGIN_NAME, 0, "NET/" PLUGIN_NAME " : %s", line);
	} else if (level == NCCL_LOG_WARN) {
		fprintf(stderr, "NET/" PLUGIN_NAME " : %s\n", line);
	}
}

static void from_core(void *context, enum sb_log_level level, const char *line)
{
	static const enum nccl_log_level levels[] = {
		[SB_LOG_ERROR] = NCCL_LOG_WARN,
		[SB_LOG_WARN] = NCCL_LOG_WARN,
		[SB_LOG_INFO] = NCCL_LOG_INFO,
		[SB_LOG_DEBUG] = NCCL_LOG_TRACE,
	};

	(void)context;
	write_line(levels[level], line);
}

void plugin_log_set(nccl_logger to)
{
	nccl_logger none = NULL;

	if (to != NULL) {
		atomic_compare_exchange_strong(&logger, &none, to);
	}
	sb_log_set(from_core, NULL);
}

void plugin_log(enum nccl_log_level level, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	write_line(level, line);
}

enum nccl_result plugin_result(int status)
{
	switch (-status) {
	case 0:
		return NCCL_SUCCESS;
	case EINVAL:
	case EMSGSIZE:
	case EBADF:
		return NCCL_INVALID_ARGUMENT;
	case EPROTO:
	case EPROTONOSUPPORT:
		return NCCL_INTERNAL_ERROR;
	case ECONNRESET:
	case ECONNREFUSED:
	case ECONNABORTED:
	case EPIPE:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENODATA:
		return NCCL_REMOTE_ERROR;
	default:
		return NCCL_SYSTEM_ERROR;
	}
}
