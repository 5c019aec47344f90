/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An in-memory network in virtual time: one thread, every choice from one seed.
 *
 * Ports attach with their GID and send to each other's GID. A packet crosses the sender's outward
 * direction, the link (base latency and bandwidth) and the receiver's inward direction; each
 * direction has its faults. Between two ports order is kept unless a fault breaks it.
 * memory_wire_step() advances the virtual clock to the next event: an arrival, a device's deadline,
 * or a call that was asked for with memory_wire_at(). Same seed, same calls: same run.
 *
 * Threads: one. Callbacks may call any function here except memory_wire_destroy, _step and detach
 * of the port that is being called.
 */
#ifndef SIM_WIRE_MEMORY_H
#define SIM_WIRE_MEMORY_H

#include "wire/impair.h"
#include "wire/wire.h"

struct memory_wire;

struct memory_wire_options {
	uint64_t seed;
	uint64_t start_ns;         /* the clock begins here */
	uint64_t latency_ns;       /* one way; 0: 2 µs */
	uint64_t bytes_per_second; /* of each port, out; 0: unlimited */
	uint32_t mtu;              /* reported by query; 0: 4096 */
};

/* -ENOMEM. */
int memory_wire_create(const struct memory_wire_options *options, struct memory_wire **wire);
/* Ports still attached are detached; packets on their way are forgotten. */
void memory_wire_destroy(struct memory_wire *wire);

/* The table for devices; the first argument of attach is the struct memory_wire. transmit gives
 * -EAGAIN only when memory is exhausted; flush and wake have nothing to do. */
extern const struct wire_ops memory_wire_ops;

uint64_t memory_wire_now(const struct memory_wire *wire);
/* The wire's generator, so that whoever drives the test draws from the same seed. */
struct wire_random *memory_wire_random(struct memory_wire *wire);

/* Does the next event. false: nothing will ever happen any more, or the next event is after
 * `until`; the clock then stands at `until` (unless that is RC_NO_DEADLINE). */
bool memory_wire_step(struct memory_wire *wire, uint64_t until);

/* Calls `run` of the port's device at the present time: after posting work. */
void memory_wire_kick(struct wire_port *port);

/* Calls call(context, now) at `when` (or at once if that has passed). -ENOMEM. Ties keep the order
 * of asking. memory_wire_cancel: true if it had not been called yet. `id` may be
 * NULL. */
typedef void (*memory_wire_call_fn)(void *context, uint64_t now);
int memory_wire_at(struct memory_wire *wire, uint64_t when, memory_wire_call_fn call, void *context,
		   uint64_t *id);
bool memory_wire_cancel(struct memory_wire *wire, uint64_t id);

enum memory_wire_way { MEMORY_WIRE_OUT, MEMORY_WIRE_IN };
/* Sets the faults of a direction for packets that enter it from now on. A change of `down` (of
 * either direction) changes the port's state and calls its device's event; packets already on
 * their way to a port that is down when they arrive are lost. */
void memory_wire_set_fault(struct wire_port *port, enum memory_wire_way way,
			   const struct wire_fault *fault);
void memory_wire_get_fault(const struct wire_port *port, enum memory_wire_way way,
			   struct wire_fault *fault);

/* Takes the port's address away, or gives it back. Without it nothing passes. The device is told
 * either way (WIRE_GID_CHANGE). */
void memory_wire_set_address(struct wire_port *port, bool present);
/* What query reports of this port from now on. */
void memory_wire_set_mtu(struct wire_port *port, uint32_t mtu);
/* Each packet that the port sends from now on comes once more, `late_ns` after the first copy and
 * after all else: it may outlive the queue pair that it was for. 0: no longer. */
void memory_wire_set_echo(struct wire_port *port, uint64_t late_ns);

/* For tests that aim at one packet: called for every packet when it is sent, before the faults.
 * false: lost. NULL: none. */
typedef bool (*memory_wire_filter_fn)(void *context, struct wire_port *from,
				      const struct rc_view *packet, uint64_t now);
void memory_wire_set_filter(struct memory_wire *wire, memory_wire_filter_fn filter, void *context);
/* Called for every packet that is delivered, for traces. NULL: none. */
typedef void (*memory_wire_trace_fn)(void *context, const struct wire_port *from_or_null,
				     const struct wire_port *to, const struct rc_view *packet,
				     uint64_t now);
void memory_wire_set_trace(struct memory_wire *wire, memory_wire_trace_fn trace, void *context);

struct memory_wire_counters {
	uint64_t sent, delivered, lost, corrupted, duplicated, unroutable;
};
void memory_wire_counters(const struct memory_wire *wire, struct memory_wire_counters *counters);

#endif
