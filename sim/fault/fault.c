/* SPDX-License-Identifier: Apache-2.0 */
/* Faults put on ports and taken off. */
#include "words.h"
#include <errno.h>
#include <string.h>

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
	default: /* of the whole port */
		break;
	}
}

/* The link is trained anew: it goes down and comes up, unless it is down. */
static void speed_set(struct fabric_port *port, uint32_t mbps)
{
	if (atomic_exchange(&port->speed_mbps, mbps) != mbps && !atomic_load(&port->down)) {
		atomic_fetch_add(&port->link_changes, 2);
	}
}

static void gid_shift_set(struct fabric_port *port, uint32_t indexes)
{
	if (atomic_exchange(&port->gid_shift, indexes) != indexes) {
		atomic_fetch_add(&port->gid_changes, 1);
	}
}

static void nomem_set(struct fabric_port *port, uint64_t value)
{
	atomic_store(&port->nomem_kinds, 0);
	atomic_store(&port->nomem_calls, (uint32_t)value);
	atomic_store(&port->nomem_kinds, (uint32_t)(value >> 32));
}

bool fabric_allocation_fails(struct fabric_port *port, enum fabric_object kind)
{
	uint32_t calls;

	if (!(atomic_load(&port->nomem_kinds) & 1u << kind)) {
		return false;
	}
	calls = atomic_load(&port->nomem_calls);
	while (calls > 0 && calls != FABRIC_EVERY_CALL &&
	       !atomic_compare_exchange_weak(&port->nomem_calls, &calls, calls - 1)) {
	}
	return calls == 1 || calls == FABRIC_EVERY_CALL;
}

static void fault_apply(struct fabric_port *port, const struct fault *fault)
{
	switch (fault->kind) {
	case FAULT_DOWN:
		if (!atomic_exchange(&port->down, 1)) {
			atomic_fetch_add(&port->link_changes, 1);
		}
		break;
	case FAULT_DIE:
		if (!atomic_exchange(&port->dead, 1)) {
			atomic_fetch_add(&port->deaths, 1);
		}
		break;
	case FAULT_UNWRITTEN:
		atomic_store(&port->unwritten, 1);
		break;
	case FAULT_STUCK:
		atomic_store(&port->stuck, 1);
		break;
	case FAULT_GID:
		gid_shift_set(port, (uint32_t)fault->value);
		break;
	case FAULT_SPEED:
		speed_set(port, (uint32_t)fault->value);
		break;
	case FAULT_NOMEM:
		nomem_set(port, fault->value);
		break;
	default: /* of each way */
		break;
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
	atomic_store(&port->unwritten, 0);
	atomic_store(&port->stuck, 0);
	nomem_set(port, 0);
	gid_shift_set(port, 0);
	speed_set(port, 0);
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
