/* SPDX-License-Identifier: Apache-2.0 */
#include "util/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

static _Atomic(sb_log_fn) logger;
static void *_Atomic logger_context;
static atomic_int lowest = -1;

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};

static int level_from_environment(void)
{
	const char *value = getenv("SWITCHBACK_LOG");
	static const char *const names[] = {"error", "warn", "info", "debug"};

	for (int i = 0; value != NULL && i < 4; i++) {
		if (strcasecmp(value, names[i]) == 0) {
			return i;
		}
	}
	if (value != NULL && *value != '\0') {
		atomic_store(&lowest, SB_LOG_WARN);
		sb_warn("SWITCHBACK_LOG=%s is none of error, warn, info and debug; going on with "
			"warn",
			value);
	}
	return SB_LOG_WARN;
}

void sb_log_set(sb_log_fn fn, void *context)
{
	atomic_store(&logger_context, context);
	atomic_store(&logger, fn);
}

void sb_log_set_level(enum sb_log_level level)
{
	atomic_store(&lowest, (int)level);
}

bool sb_log_enabled(enum sb_log_level level)
{
	int limit = atomic_load_explicit(&lowest, memory_order_relaxed);

	if (limit < 0) {
		limit = level_from_environment();
		atomic_store(&lowest, limit);
	}
	return (int)level <= limit || atomic_load_explicit(&logger, memory_order_relaxed) != NULL;
}

void sb_log(enum sb_log_level level, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	va_list arguments;
	sb_log_fn fn = atomic_load(&logger);

	if (!sb_log_enabled(level)) {
		return;
	}
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (fn != NULL) {
		fn(atomic_load(&logger_context), level, line);
		return;
	}
	fprintf(stderr, "switchback[%d] %s: %s\n", (int)getpid(), level_names[level], line);
}
