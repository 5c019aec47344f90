/* SPDX-License-Identifier: Apache-2.0 */
#include "util/param.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util/log.h"

int sb_param_int(const char *name, int64_t low, int64_t high, int64_t *value)
{
	const char *text = getenv(name);
	char *end;
	long long parsed;

	if (text == NULL || *text == '\0') {
		return 0;
	}
	errno = 0;
	parsed = strtoll(text, &end, 0);
	if (errno != 0 || end == text || *end != '\0' || parsed < low || parsed > high) {
		sb_error("%s=%s is not an integer from %lld to %lld", name, text, (long long)low,
			 (long long)high);
		return -EINVAL;
	}
	*value = parsed;
	return 0;
}

int sb_param_bool(const char *name, int *value)
{
	static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
	const char *text = getenv(name);

	if (text == NULL || *text == '\0') {
		return 0;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (strcasecmp(text, words[i]) == 0) {
			*value = (int)(i & 1);
			return 0;
		}
	}
	sb_error("%s=%s is not 0 or 1", name, text);
	return -EINVAL;
}

int sb_parse_bytes(const char *text, uint64_t *bytes)
{
	static const char suffixes[] = "kmgt";
	char *end;
	double number;
	double unit = 1;

	if (!isdigit((unsigned char)*text)) {
		return -EINVAL;
	}
	number = strtod(text, &end);
	if (*end != '\0') {
		const char *suffix = strchr(suffixes, tolower((unsigned char)*end));

		if (suffix != NULL) {
			unit = (double)(1ULL << (10 * (suffix - suffixes + 1)));
			end++;
		}
		if (strcasecmp(end, "ib") == 0 || strcasecmp(end, "b") == 0) {
			end += strlen(end);
		}
	}
	if (*end != '\0' || !isfinite(number) || number * unit > 9e18) {
		return -EINVAL;
	}
	*bytes = (uint64_t)(number * unit);
	return 0;
}

int sb_parse_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *suffix;
		double unit;
	} units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"", 1e9}};
	char *end;
	double number;

	if (!isdigit((unsigned char)*text) && *text != '.') {
		return -EINVAL;
	}
	number = strtod(text, &end);
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcmp(end, units[i].suffix) == 0 && isfinite(number) &&
		    number * units[i].unit < 9e18) {
			*ns = (uint64_t)(number * units[i].unit);
			return 0;
		}
	}
	return -EINVAL;
}
