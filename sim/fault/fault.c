/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULT_NAMES "down, blackhole, loss=P, delay=T, corrupt=P, reorder, duplicate, slow=R or die"
#define MILLION     1000000u

enum fault_kind {
	FAULT_DOWN,
	FAULT_BLACKHOLE,
	FAULT_LOSS,
	FAULT_CORRUPT,
	FAULT_DUPLICATE,
	FAULT_REORDER,
	FAULT_DELAY,
	FAULT_SLOW,
	FAULT_DIE,
};

enum value_kind { VALUE_NONE, VALUE_CHANCE, VALUE_TIME, VALUE_RATE };

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
};

struct fault {
	enum fault_kind kind;
	uint64_t value;
	bool ways[FABRIC_WAYS];
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

static int value_parse(enum value_kind kind, const char *text, uint64_t *value, const char **wanted)
{
	static const char *const times[] = {"ns", "us", "ms", "s", NULL};
	static const double nanoseconds[] = {1, 1e3, 1e6, 1e9};
	static const char *const rates[] = {"", "M", "G", NULL};
	static const double megabits[] = {1, 1, 1e3};

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
		return scaled_parse(text, rates, megabits, value) || *value > UINT32_MAX ? -EINVAL
											 : 0;
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

static int fault_parse(const char *how, const char *way, struct fault *fault, char *error)
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
static int ports_parse(const struct fabric *fabric, const char *ports, uint32_t *host,
		       uint32_t *rail, char *error)
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

static void way_apply(struct fabric_impairment *way, const struct fault *fault)
{
	uint32_t value = (uint32_t)fault->value;

	switch (fault->kind) {
	case FAULT_BLACKHOLE:
		atomic_store(&way->blackhole, 1);
		break;
	case FAULT_LOSS:
		atomic_store(&way->loss, value);
		break;
	case FAULT_CORRUPT:
		atomic_store(&way->corrupt, value);
		break;
	case FAULT_DUPLICATE:
		atomic_store(&way->duplicate, value);
		break;
	case FAULT_REORDER:
		atomic_store(&way->reorder, value);
		break;
	case FAULT_SLOW:
		atomic_store(&way->rate_mbps, value);
		break;
	case FAULT_DELAY:
		atomic_store(&way->delay_ns, fault->value);
		break;
	case FAULT_DOWN:
	case FAULT_DIE:
		break;
	}
}

static void fault_apply(struct fabric_port *port, const struct fault *fault)
{
	if (fault->kind == FAULT_DOWN && !atomic_exchange(&port->down, 1)) {
		atomic_fetch_add(&port->link_changes, 1);
	}
	if (fault->kind == FAULT_DIE && !atomic_exchange(&port->dead, 1)) {
		atomic_fetch_add(&port->deaths, 1);
	}
	for (int way = 0; way < FABRIC_WAYS; way++) {
		if (fault->ways[way]) {
			way_apply(&port->way[way], fault);
		}
	}
}

static void fault_remove(struct fabric_port *port)
{
	for (int way = 0; way < FABRIC_WAYS; way++) {
		struct fabric_impairment *impairment = &port->way[way];

		atomic_store(&impairment->blackhole, 0);
		atomic_store(&impairment->loss, 0);
		atomic_store(&impairment->corrupt, 0);
		atomic_store(&impairment->duplicate, 0);
		atomic_store(&impairment->reorder, 0);
		atomic_store(&impairment->rate_mbps, 0);
		atomic_store(&impairment->delay_ns, 0);
	}
	atomic_store(&port->dead, 0);
	if (atomic_exchange(&port->down, 0)) {
		atomic_fetch_add(&port->link_changes, 1);
	}
}

/* Changes the selected ports, by `fault` or back to none, and wakes whoever it concerns. */
static int ports_change(struct fabric *fabric, const char *ports, const struct fault *fault,
			char *error)
{
	uint32_t host, rail;
	uint64_t now;
	int code = ports_parse(fabric, ports, &host, &rail, error);

	if (code) {
		return code;
	}
	code = fabric_lock(fabric);
	if (code) {
		return fabric_fail(error, code, "fabric '%s' is locked: %s", fabric->shared->name,
				   strerror(-code));
	}
	now = fabric_clock_ns();
	for (uint32_t h = 0; h < fabric->shared->hosts; h++) {
		for (uint32_t r = 0; r < fabric->shared->rails; r++) {
			struct fabric_port *port = fabric_port(fabric, h, r);

			if ((host != UINT32_MAX && h != host) ||
			    (rail != UINT32_MAX && r != rail)) {
				continue;
			}
			if (fault) {
				fault_apply(port, fault);
			} else {
				fault_remove(port);
			}
			atomic_store(&port->changed_ns, now);
		}
	}
	atomic_store(&fabric->shared->changed_ns, now);
	atomic_fetch_add(&fabric->shared->generation, 1);
	fabric_unlock(fabric);
	fabric_kick(fabric);
	return 0;
}

int fabric_set_fault(struct fabric *fabric, const char *ports, const char *how, const char *way,
		     char error[FABRIC_ERROR_SIZE])
{
	struct fault fault;
	int code = fault_parse(how, way, &fault, error);

	return code ? code : ports_change(fabric, ports, &fault, error);
}

int fabric_check_fault(const struct fabric *fabric, const char *ports, const char *how,
		       const char *way, char error[FABRIC_ERROR_SIZE])
{
	uint32_t host, rail;
	struct fault fault;
	int code = how ? fault_parse(how, way, &fault, error) : 0;

	return code ? code : ports_parse(fabric, ports, &host, &rail, error);
}

int fabric_restore(struct fabric *fabric, const char *ports, char error[FABRIC_ERROR_SIZE])
{
	return ports_change(fabric, ports, NULL, error);
}
