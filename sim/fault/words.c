/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULT_NAMES                                                                                \
	"down, blackhole, loss=P, delay=T, corrupt=P, reorder, duplicate, slow=R, speed=R, die, "  \
	"unwritten, stuck, gid or nomem"
#define OBJECT_NAMES "context, pd, mr, cq, qp, srq, ah, channel"
#define MILLION      1000000u

const char *const fabric_object_names[FABRIC_OBJECTS] = {
	[FABRIC_CONTEXT] = "context", [FABRIC_PD] = "pd",           [FABRIC_MR] = "mr",
	[FABRIC_CQ] = "cq",           [FABRIC_QP] = "qp",           [FABRIC_SRQ] = "srq",
	[FABRIC_AH] = "ah",           [FABRIC_CHANNEL] = "channel",
};

enum value_kind { VALUE_NONE, VALUE_CHANCE, VALUE_TIME, VALUE_RATE, VALUE_INDEXES, VALUE_CALLS };

static const struct fault_name {
	const char *name;
	enum fault_kind kind;
	enum value_kind value;
	/* Taken when no value is given; 0: it must be given. */
	uint64_t without;
	/* The fault is one of the whole port or device. */
	bool both_only;
} FAULTS[] = {
	{"down", FAULT_DOWN, VALUE_NONE, 0, true},
	{"blackhole", FAULT_BLACKHOLE, VALUE_NONE, 0, false},
	{"loss", FAULT_LOSS, VALUE_CHANCE, 0, false},
	{"corrupt", FAULT_CORRUPT, VALUE_CHANCE, 0, false},
	{"duplicate", FAULT_DUPLICATE, VALUE_CHANCE, MILLION / 10, false},
	{"reorder", FAULT_REORDER, VALUE_CHANCE, MILLION / 10, false},
	{"delay", FAULT_DELAY, VALUE_TIME, 0, false},
	{"slow", FAULT_SLOW, VALUE_RATE, 0, false},
	{"die", FAULT_DIE, VALUE_NONE, 0, true},
	{"unwritten", FAULT_UNWRITTEN, VALUE_NONE, 0, true},
	{"stuck", FAULT_STUCK, VALUE_NONE, 0, true},
	{"gid", FAULT_GID, VALUE_INDEXES, 2, true},
	{"speed", FAULT_SPEED, VALUE_RATE, 0, true},
	{"nomem", FAULT_NOMEM, VALUE_CALLS,
	 FAULT_NOMEM_VALUE(FABRIC_OBJECTS_ALL, FABRIC_EVERY_CALL), true},
};

/* A decimal number and what follows it. False: no number, negative or not finite. */
static bool number_parse(const char *text, double *number, const char **unit)
{
	char *end;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.') {
		return false;
	}
	*number = strtod(text, &end);
	*unit = end;
	return end != text && *number >= 0 && *number < 1e15;
}

static int chance_parse(const char *text, uint64_t *value)
{
	const char *unit;
	double number;

	if (!number_parse(text, &number, &unit) || (*unit != '\0' && strcmp(unit, "%") != 0)) {
		return -EINVAL;
	}
	if (*unit == '%') {
		number /= 100;
	}
	if (number <= 0 || number > 1) {
		return -EINVAL;
	}
	*value = (uint64_t)(number * MILLION + 0.5);
	return *value == 0 ? -EINVAL : 0;
}

static int scaled_parse(const char *text, const char *const *units, const double *scales,
			uint64_t *value)
{
	const char *unit;
	double number;

	if (!number_parse(text, &number, &unit)) {
		return -EINVAL;
	}
	for (int i = 0; units[i]; i++) {
		if (strcmp(unit, units[i]) == 0 && number * scales[i] >= 1) {
			*value = (uint64_t)(number * scales[i] + 0.5);
			return 0;
		}
	}
	return -EINVAL;
}

int fabric_rate_parse(const char *text, uint32_t *mbps)
{
	static const char *const units[] = {"", "M", "G", NULL};
	static const double megabits[] = {1, 1, 1e3};
	uint64_t value;

	if (scaled_parse(text, units, megabits, &value) || value > UINT32_MAX) {
		return -EINVAL;
	}
	*mbps = (uint32_t)value;
	return 0;
}

static int rate_parse(const char *text, uint64_t *value)
{
	uint32_t mbps = 0;
	int code = fabric_rate_parse(text, &mbps);

	*value = mbps;
	return code;
}

/* A whole number from 1 to `most`. */
static int count_parse(const char *text, unsigned long most, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)text[0])) {
		return -EINVAL;
	}
	errno = 0;
	*value = strtoul(text, &end, 10);
	return errno || *end != '\0' || *value < 1 || *value > most ? -EINVAL : 0;
}

/* "3", "qp" or "qp:3". */
static int calls_parse(const char *text, uint64_t *value)
{
	size_t length = strcspn(text, ":");
	uint64_t calls = FABRIC_EVERY_CALL;

	for (uint32_t i = 0; i < FABRIC_OBJECTS; i++) {
		if (strlen(fabric_object_names[i]) == length &&
		    strncmp(fabric_object_names[i], text, length) == 0) {
			if (text[length] == ':' &&
			    count_parse(text + length + 1, FABRIC_EVERY_CALL - 1, &calls)) {
				return -EINVAL;
			}
			*value = FAULT_NOMEM_VALUE(1u << i, calls);
			return 0;
		}
	}
	if (count_parse(text, FABRIC_EVERY_CALL - 1, &calls)) {
		return -EINVAL;
	}
	*value = FAULT_NOMEM_VALUE(FABRIC_OBJECTS_ALL, calls);
	return 0;
}

static int value_parse(enum value_kind kind, const char *text, uint64_t *value, const char **wanted)
{
	static const char *const times[] = {"ns", "us", "ms", "s", NULL};
	static const double nanoseconds[] = {1, 1e3, 1e6, 1e9};

	switch (kind) {
	case VALUE_CHANCE:
		*wanted = "a chance such as 0.01 or 1%";
		return chance_parse(text, value);
	case VALUE_TIME:
		*wanted = "a time up to 60s such as 300us, 5ms or 1s";
		return scaled_parse(text, times, nanoseconds, value) || *value > 60000000000ULL
			       ? -EINVAL
			       : 0;
	case VALUE_RATE:
		*wanted = "a rate in Mbit/s such as 100M or 10G";
		return rate_parse(text, value);
	case VALUE_INDEXES:
		*wanted = "how many indexes, 1 to 14";
		return count_parse(text, FABRIC_GID_TABLE - FABRIC_GIDS, value);
	case VALUE_CALLS:
		*wanted = "the number of a call, or one of " OBJECT_NAMES
			  " and possibly :NUMBER, such as 3, qp or qp:3";
		return calls_parse(text, value);
	case VALUE_NONE:
	default:
		*wanted = "no value";
		return -EINVAL;
	}
}

static int way_parse(const char *way, const struct fault_name *name, struct fault *fault,
		     char *error)
{
	if (!way || strcmp(way, "both") == 0) {
		fault->ways[FABRIC_IN] = fault->ways[FABRIC_OUT] = true;
		return 0;
	}
	if (strcmp(way, "in") != 0 && strcmp(way, "out") != 0) {
		return fabric_fail(error, -EINVAL, "way '%s': both, in or out allowed", way);
	}
	if (name->both_only) {
		return fabric_fail(error, -EINVAL,
				   "fault '%s' has no direction: way '%s' is not allowed "
				   "(blackhole has one)",
				   name->name, way);
	}
	fault->ways[way[0] == 'i' ? FABRIC_IN : FABRIC_OUT] = true;
	return 0;
}

int fault_parse(const char *how, const char *way, struct fault *fault, char *error)
{
	size_t length = strcspn(how, "=");
	const char *value = how[length] == '=' ? how + length + 1 : NULL;
	const char *wanted = "a value";

	memset(fault, 0, sizeof(*fault));
	for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
		const struct fault_name *name = &FAULTS[i];

		if (strlen(name->name) != length || strncmp(name->name, how, length) != 0) {
			continue;
		}
		fault->kind = name->kind;
		fault->value = name->without;
		if (value ? value_parse(name->value, value, &fault->value, &wanted) != 0
			  : name->value != VALUE_NONE && name->without == 0) {
			if (!value) {
				value_parse(name->value, "", &fault->value, &wanted);
			}
			return fabric_fail(error, -EINVAL, "fault '%s': %s wants %s", how,
					   name->name, wanted);
		}
		return way_parse(way, name, fault, error);
	}
	return fabric_fail(error, -EINVAL, "unknown fault '%s': %s allowed", how, FAULT_NAMES);
}

/* "rail12" -> 12; false when text is not the word and a number and nothing more before `stop`. */
static bool numbered(const char *text, const char *word, char stop, uint32_t *number,
		     const char **rest)
{
	size_t length = strlen(word);
	char *end;
	unsigned long value;

	if (strncmp(text, word, length) != 0 || !isdigit((unsigned char)text[length])) {
		return false;
	}
	value = strtoul(text + length, &end, 10);
	if (*end != stop || value > UINT32_MAX) {
		return false;
	}
	*number = (uint32_t)value;
	*rest = end;
	return true;
}

/* Ports selected by a word; UINT32_MAX for every host or rail. */
int ports_parse(const struct fabric *fabric, const char *ports, uint32_t *host, uint32_t *rail,
		char *error)
{
	const char *rest;

	*host = *rail = UINT32_MAX;
	if (strcmp(ports, "all") == 0 || numbered(ports, "rail", '\0', rail, &rest) ||
	    numbered(ports, "host", '\0', host, &rest)) {
	} else if (!numbered(ports, "host", '.', host, &rest) ||
		   !numbered(rest + 1, "rail", '\0', rail, &rest)) {
		return fabric_fail(error, -EINVAL,
				   "ports '%s': railR, hostH.railR, hostH or all allowed", ports);
	}
	if ((*host != UINT32_MAX && *host >= fabric->shared->hosts) ||
	    (*rail != UINT32_MAX && *rail >= fabric->shared->rails)) {
		return fabric_fail(error, -ENODEV,
				   "no port '%s': fabric '%s' has host0 to host%u, rail0 to rail%u",
				   ports, fabric->shared->name, fabric->shared->hosts - 1,
				   fabric->shared->rails - 1);
	}
	return 0;
}
