/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_BYTES     1024
#define REASONS        64 /* remembered at once, at most */
#define REPEAT_SECONDS 10

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

/*
 * What fails for good fails all connections of a port, or to a peer, with the same words: the first
 * one is told as a WARN, those that follow soon as INFO. A line of a connection is "connection …:
 * reason; paths: …".
 */
static bool repeats(const char *line)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		uint64_t reason;
		time_t at;
	} told[REASONS];
	const char *reason = strncmp(line, "connection ", 11) == 0 ? strstr(line, ": ") : NULL;
	const char *end = reason != NULL ? strstr(reason, "; paths: ") : NULL;
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
	struct timespec now;
	bool again;

	if (end == NULL) {
		return false;
	}
	for (; reason < end; reason++) {
		hash = (hash ^ (uint8_t)*reason) * 0x100000001b3ull;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&lock);
	again = told[hash % REASONS].reason == hash &&
		now.tv_sec - told[hash % REASONS].at < REPEAT_SECONDS;
	if (!again) {
		told[hash % REASONS].reason = hash;
		told[hash % REASONS].at = now.tv_sec;
	}
	pthread_mutex_unlock(&lock);
	return again;
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
	write_line(level == SB_LOG_WARN && repeats(line) ? NCCL_LOG_INFO : levels[level], line);
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
