/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to print counters on standard output. */
#ifndef SB_CLI_STATUS_FORMAT_H
#define SB_CLI_STATUS_FORMAT_H

#include "stats/counters.h"

struct status_format {
	void (*begin)(const struct status_format *format);
	sb_counters_fn context; /* its context argument is the format */
	void (*end)(const struct status_format *format);
};

extern const struct status_format status_text, status_json, status_prometheus;

#endif
