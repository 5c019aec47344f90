/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts in one process on the memory wire, see sim_world.h. */
#include "sim_world.h"
#include "fault/local.h"
#include "verbs/device.h"
#include "verbs/placement.h"
#include "wire/memory.h"
#include <errno.h>
#include <stdlib.h>

#define START_DEFAULT 1000000000ULL

struct world_host {
	struct sim_host host; /* first */
	struct sim_world *world;
	uint32_t first_qpn, next_qpn;
	/* The wire's port of each device that is open. */
	struct wire_port **ports;
	/* Changes of each port's link and GIDs that its device was told of; whether it was down;
	 * how often its GIDs have moved by themselves. */
	struct world_seen {
		uint32_t link_changes, gid_changes, moves;
		bool down;
	} * seen;
	/* Of each device. */
	struct placement *placement;
};

struct sim_world {
	struct memory_wire *wire;
	/* Keeps the faults; memory of this process. */
	struct fabric *fabric;
	struct sim_world_options options;
	uint32_t hosts, rails;
	struct world_host *host;
	sim_world_observe_fn observe;
	void *observe_context;
	sim_world_filter_fn filter;
	void *filter_context;
};

static struct world_host *to_world_host(struct sim_host *host)
{
	return container_of(host, struct world_host, host);
}

/* ---- faults ---- */

static void fault_load(struct wire_fault *fault, const struct fabric_port *port,
		       enum fabric_way way)
{
	const struct fabric_impairment *impairment = &port->way[way];

	*fault = (struct wire_fault){
		.down = atomic_load(&port->down),
		.blackhole = atomic_load(&impairment->blackhole),
		.loss_ppm = atomic_load(&impairment->loss),
		.corrupt_ppm = atomic_load(&impairment->corrupt),
		.duplicate_ppm = atomic_load(&impairment->duplicate),
		.reorder_ppm = atomic_load(&impairment->reorder),
		.delay_ns = atomic_load(&impairment->delay_ns),
		.bytes_per_second = fabric_rate_mbps(port, way) * 125000ULL,
	};
}

static void port_apply(struct sim_world *world, uint32_t host, uint32_t rail)
{
	struct wire_port *port = world->host[host].ports[rail];
	const struct fabric_port *state = fabric_port(world->fabric, host, rail);
	struct wire_fault fault;

	if (port) {
		fault_load(&fault, state, FABRIC_OUT);
		memory_wire_set_fault(port, MEMORY_WIRE_OUT, &fault);
		fault_load(&fault, state, FABRIC_IN);
		memory_wire_set_fault(port, MEMORY_WIRE_IN, &fault);
	}
}

/* Tells a device what the wire can't: a flap too short for it, and GIDs at other indexes. */
static void changes_tell(struct sim_nic *nic, struct world_seen *seen)
{
	uint32_t link_changes = atomic_load(&nic->control->link_changes);
	uint32_t gid_changes = atomic_load(&nic->control->gid_changes);
	uint32_t flaps = (link_changes - seen->link_changes) / 2;

	if (flaps > 0) {
		nic_retrained(nic);
	}
	if (gid_changes != seen->gid_changes) {
		async_push_port(nic, IBV_EVENT_GID_CHANGE);
	}
	seen->link_changes = link_changes;
	seen->gid_changes = gid_changes;
}

/* To the next places in the table; nothing is left at the old ones. */
static void gids_move(struct fabric_port *port, struct world_seen *seen)
{
	uint32_t places = FABRIC_GID_TABLE / FABRIC_GIDS;

	atomic_store(&port->gid_shift, ++seen->moves % places * FABRIC_GIDS);
	atomic_fetch_add(&port->gid_changes, 1);
}

/* A port that returns may have its GIDs elsewhere. */
static void return_notice(struct sim_world *world, struct fabric_port *port,
			  struct world_seen *seen)
{
	bool down = atomic_load(&port->down);

	if (seen->down && !down && world->options.gid_moves_on_return) {
		gids_move(port, seen);
	}
	seen->down = down;
}

static void faults_apply(struct sim_world *world)
{
	for (uint32_t host = 0; host < world->hosts; host++) {
		for (uint32_t rail = 0; rail < world->rails; rail++) {
			struct sim_nic *nic = world->host[host].host.devices[rail]->nic;

			if (nic && atomic_load(&fabric_port(world->fabric, host, rail)->dead)) {
				nic_die(nic);
			}
			return_notice(world, fabric_port(world->fabric, host, rail),
				      &world->host[host].seen[rail]);
			port_apply(world, host, rail);
			if (nic && !nic->dead) {
				changes_tell(nic, &world->host[host].seen[rail]);
			}
		}
	}
}

VERBS_EXPORT int sim_world_set_fault(struct sim_world *world, const char *ports, const char *how,
				     const char *way, char error[FABRIC_ERROR_SIZE])
{
	int code = fabric_set_fault(world->fabric, ports, how, way, error);

	if (code == 0) {
		faults_apply(world);
	}
	return code;
}

VERBS_EXPORT int sim_world_restore(struct sim_world *world, const char *ports,
				   char error[FABRIC_ERROR_SIZE])
{
	int code = fabric_restore(world->fabric, ports, error);

	if (code == 0) {
		faults_apply(world);
	}
	return code;
}

/* The wire's port of a device that is open. */
static struct wire_port *port_at(const struct sim_world *world, uint32_t host, uint32_t rail)
{
	return host < world->hosts && rail < world->rails ? world->host[host].ports[rail] : NULL;
}

VERBS_EXPORT int sim_world_set_address(struct sim_world *world, uint32_t host, uint32_t rail,
				       bool present)
{
	struct wire_port *port = port_at(world, host, rail);

	if (!port) {
		return -ENODEV;
	}
	if (present) {
		struct world_seen *seen = &world->host[host].seen[rail];

		gids_move(fabric_port(world->fabric, host, rail), seen);
		seen->gid_changes++; /* the wire tells */
	}
	memory_wire_set_address(port, present);
	return 0;
}

VERBS_EXPORT int sim_world_set_mtu(struct sim_world *world, uint32_t host, uint32_t rail,
				   uint32_t mtu)
{
	struct wire_port *port = port_at(world, host, rail);

	if (!port) {
		return -ENODEV;
	}
	memory_wire_set_mtu(port, mtu);
	return 0;
}

VERBS_EXPORT int sim_world_set_echo(struct sim_world *world, uint32_t host, uint32_t rail,
				    uint64_t late_ns)
{
	struct wire_port *port = port_at(world, host, rail);

	if (!port) {
		return -ENODEV;
	}
	memory_wire_set_echo(port, late_ns);
	return 0;
}

/* ---- hosts ---- */

/* A device was opened (or closed: NULL): it is told of the faults that are there already. */
static int world_attached(struct sim_host *host, uint32_t rail, struct wire_port *port)
{
	struct world_host *world_host = to_world_host(host);
	struct sim_world *world = world_host->world;

	if (port && atomic_load(&fabric_port(world->fabric, host->number, rail)->dead)) {
		return -ENODEV;
	}
	world_host->ports[rail] = port;
	world_host->seen[rail].link_changes =
		atomic_load(&fabric_port(world->fabric, host->number, rail)->link_changes);
	world_host->seen[rail].gid_changes =
		atomic_load(&fabric_port(world->fabric, host->number, rail)->gid_changes);
	port_apply(world, host->number, rail);
	return 0;
}

static uint32_t world_address(struct sim_host *host, uint32_t rail)
{
	return 127u << 24 | (host->number + 1) << 8 | (rail + 1);
}

static uint32_t world_qpn(struct sim_host *host)
{
	struct world_host *world_host = to_world_host(host);
	uint32_t count = world_host->world->options.qpn_count;
	uint32_t turn = world_host->next_qpn++;

	return (world_host->first_qpn + (count ? turn % count : turn)) & 0xffffff;
}

/* ---- stores ---- */

static void world_settle(struct sim_host *host, uint32_t rail)
{
	placement_settle(&to_world_host(host)->placement[rail]);
}

static void settle_late(void *context, uint64_t now)
{
	(void)now;
	placement_settle(context);
}

/* false: the store is to be made at once. */
static bool place_in_parts(struct world_host *host, uint32_t rail, const struct rc_store *store)
{
	struct sim_world *world = host->world;
	struct placement *placement = &host->placement[rail];
	struct wire_random *random = memory_wire_random(world->wire);
	uint64_t late = 1 + wire_random_below(random, world->options.placement_ns);

	placement_settle(placement);
	return !memory_wire_at(world->wire, store->now + late, settle_late, placement, NULL) &&
	       placement_begin(placement, random, store);
}

static bool world_store(struct sim_host *host, uint32_t rail, const struct rc_store *store)
{
	struct sim_world *world = to_world_host(host)->world;
	struct sim_world_store told = {
		.host = host->number,
		.rail = rail,
		.kind = store->kind == RC_STORE_WRITE  ? SIM_STORE_WRITE
			: store->kind == RC_STORE_SEND ? SIM_STORE_SEND
						       : SIM_STORE_READ_RESPONSE,
		.memory = store->host,
		.address = store->address,
		.length = store->length,
		.qpn = store->qpn,
		.psn = store->psn,
		.now = store->now,
	};

	if (world->observe && !world->observe(world->observe_context, &told)) {
		return false;
	}
	return store->kind != RC_STORE_WRITE || !world->options.placement_ns ||
	       !place_in_parts(to_world_host(host), rail, store);
}

static int host_init(struct sim_world *world, uint32_t number)
{
	struct world_host *host = &world->host[number];

	host->world = world;
	/* Far from 0 and 1, and from the other hosts': a QPN of another is nobody's here. */
	host->first_qpn = 0x10000 + (uint32_t)sim_world_random_below(world, 0xe00000);
	host->host.control = world->fabric;
	host->host.wire_ops = &memory_wire_ops;
	host->host.wire = world->wire;
	host->host.number = number;
	host->host.rails = world->rails;
	host->host.next_qpn = world_qpn;
	host->host.observe = world_store;
	host->host.settle = world->options.placement_ns ? world_settle : NULL;
	host->host.attached = world_attached;
	host->host.retry_seven_infinite = world->options.retry_seven_infinite;
	host->host.flush_on_port_down = world->options.flush_on_port_down;
	host->host.vague_errors = world->options.vague_errors;
	host->ports = calloc(world->rails, sizeof(*host->ports));
	host->seen = calloc(world->rails, sizeof(*host->seen));
	host->placement = calloc(world->rails, sizeof(*host->placement));
	if (!host->ports || !host->seen || !host->placement) {
		return -ENOMEM;
	}
	return host_make_devices(&host->host, world_address);
}

static void world_free(struct sim_world *world)
{
	for (uint32_t i = 0; world->host && i < world->hosts; i++) {
		if (world->host[i].host.devices) {
			host_free_devices(&world->host[i].host);
		}
		free(world->host[i].ports);
		free(world->host[i].seen);
		free(world->host[i].placement);
	}
	free(world->host);
	if (world->fabric) {
		fabric_local_free(world->fabric);
	}
	if (world->wire) {
		memory_wire_destroy(world->wire);
	}
	free(world);
}

static int world_init(struct sim_world *world, uint64_t seed)
{
	const struct sim_world_options *options = &world->options;
	struct memory_wire_options wire = {
		.seed = seed,
		.start_ns = options->start_ns ? options->start_ns : START_DEFAULT,
		.latency_ns = options->latency_ns,
		.bytes_per_second = options->bytes_per_second,
		.mtu = options->mtu,
	};
	int code = memory_wire_create(&wire, &world->wire);

	world->fabric = fabric_local_create(world->hosts, world->rails);
	world->host = calloc(world->hosts, sizeof(*world->host));
	if (code == 0 && (!world->fabric || !world->host)) {
		code = -ENOMEM;
	}
	for (uint32_t i = 0; code == 0 && i < world->hosts; i++) {
		code = host_init(world, i);
	}
	return code;
}

VERBS_EXPORT int sim_world_create(uint64_t seed, uint32_t hosts, uint32_t rails,
				  const struct sim_world_options *options,
				  struct sim_world **result)
{
	struct sim_world *world;
	int code;

	if (hosts < 1 || hosts > FABRIC_HOSTS_MAX || rails < 1 || rails > FABRIC_RAILS_MAX) {
		return -EINVAL;
	}
	world = calloc(1, sizeof(*world));
	if (!world) {
		return -ENOMEM;
	}
	if (options) {
		world->options = *options;
	}
	world->hosts = hosts;
	world->rails = rails;
	code = world_init(world, seed);
	if (code) {
		world_free(world);
		return code;
	}
	*result = world;
	return 0;
}

VERBS_EXPORT int sim_world_destroy(struct sim_world *world)
{
	for (uint32_t host = 0; host < world->hosts; host++) {
		for (uint32_t rail = 0; rail < world->rails; rail++) {
			if (world->host[host].host.devices[rail]->references > 0) {
				return -EBUSY;
			}
		}
	}
	host_enter(NULL);
	world_free(world);
	return 0;
}

VERBS_EXPORT void sim_world_enter(struct sim_world *world, uint32_t host)
{
	host_enter(world && host < world->hosts ? &world->host[host].host : NULL);
}

/* ---- time and chance ---- */

VERBS_EXPORT uint64_t sim_world_now(const struct sim_world *world)
{
	return memory_wire_now(world->wire);
}

VERBS_EXPORT bool sim_world_step(struct sim_world *world, uint64_t until)
{
	return memory_wire_step(world->wire, until);
}

VERBS_EXPORT int sim_world_at(struct sim_world *world, uint64_t when,
			      void (*call)(void *context, uint64_t now), void *context)
{
	uint64_t id;

	return memory_wire_at(world->wire, when, call, context, &id);
}

VERBS_EXPORT uint64_t sim_world_random(struct sim_world *world)
{
	return wire_random_next(memory_wire_random(world->wire));
}

VERBS_EXPORT uint64_t sim_world_random_below(struct sim_world *world, uint64_t bound)
{
	return wire_random_below(memory_wire_random(world->wire), bound);
}

/* ---- watching ---- */

VERBS_EXPORT void sim_world_observe(struct sim_world *world, sim_world_observe_fn observe,
				    void *context)
{
	world->observe = observe;
	world->observe_context = context;
}

static bool world_packet(void *context, struct wire_port *from, const struct rc_view *view,
			 uint64_t now)
{
	struct sim_world *world = context;
	char text[160];
	struct sim_world_packet packet = {
		.opcode = view->header.opcode,
		.qpn = view->header.qpn,
		.psn = view->header.psn,
		.payload_length = view->payload_length,
		.text = rc_packet_text(view, text, sizeof(text)),
		.now = now,
	};

	for (uint32_t i = 0; i < world->hosts * world->rails; i++) {
		if (world->host[i / world->rails].ports[i % world->rails] == from) {
			packet.from_host = i / world->rails;
			packet.from_rail = i % world->rails;
		}
	}
	return world->filter(world->filter_context, &packet);
}

VERBS_EXPORT void sim_world_filter(struct sim_world *world, sim_world_filter_fn filter,
				   void *context)
{
	world->filter = filter;
	world->filter_context = context;
	memory_wire_set_filter(world->wire, filter ? world_packet : NULL, world);
}
