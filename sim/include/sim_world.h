/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for tests: the simulated devices of several hosts in one process, on a network in memory,
 * in one thread and virtual time; every choice comes from one seed. The ordinary verbs work on it
 * (ibv_get_device_list(), ibv_post_send(), …), device names are as on a fabric (sbr0, sbr1, …).
 *
 * Time stands still except in sim_world_step(). Nothing blocks but what the application makes
 * block: read an async_fd or a completion channel only when it is readable (or non-blocking).
 * The same seed and the same calls give the same run, QPNs and keys included.
 *
 * Linked from sim_static, or looked up in build/sim/libibverbs.so.1 (version SWITCHBACK_SIM).
 * Threads: one per world.
 */
#ifndef SIM_SIM_WORLD_H
#define SIM_SIM_WORLD_H

#include "fabric.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_WORLD_NEVER UINT64_MAX

struct sim_world;

/* All zero: the defaults. */
struct sim_world_options {
	uint64_t start_ns;         /* the clock begins here; 0: one second */
	uint64_t latency_ns;       /* of each rail, one way; 0: 2 µs */
	uint64_t bytes_per_second; /* of each port; 0: unlimited */
	uint32_t mtu;              /* of each port; 0: 4096 */
	bool retry_seven_infinite; /* retry_cnt 7 never gives up, as on Linux rxe */
	/* With a port down: its QPs fail at once with WR_FLUSH_ERR, as on Linux rxe. Else they go
	 * on, and give up by their timers, as on ConnectX. */
	bool flush_on_port_down;
	/* A port that comes up has its GIDs at other indexes of the table than before. */
	bool gid_moves_on_return;
	/* The bytes of a WRITE appear in no order, some of them up to this much later than others;
	 * at the latest with the next completion of that device. 0: at once. */
	uint64_t placement_ns;
	/* Failed completions have garbage in all fields but those that the specification promises.
	 */
	bool vague_errors;
	/* QPNs of a host come round after so many; more than the QPs of any of its devices. 0:
	 * never in practice. */
	uint32_t qpn_count;
};

/* -EINVAL: bad counts or options, -ENOMEM. Hosts count from 0, rails too. */
int sim_world_create(uint64_t seed, uint32_t hosts, uint32_t rails,
		     const struct sim_world_options *options, struct sim_world **world);
/* Every context must have been closed: -EBUSY, and nothing is done, if not. */
int sim_world_destroy(struct sim_world *world);

/* The following ibv_get_device_list() of this thread are about this host; NULL: about the
 * environment again. What is open already keeps its host. */
void sim_world_enter(struct sim_world *world, uint32_t host);

/* The virtual clock, nanoseconds. */
uint64_t sim_world_now(const struct sim_world *world);

/* Does the next thing: a packet's arrival, a timer, a call asked for. false: nothing is left to
 * happen up to `until`, and the clock stands there (or where it was, for SIM_WORLD_NEVER). */
bool sim_world_step(struct sim_world *world, uint64_t until);

/* Calls call(context, now) at `when`, or at once in the next step if that is past. -ENOMEM. */
int sim_world_at(struct sim_world *world, uint64_t when, void (*call)(void *context, uint64_t now),
		 void *context);

/* The world's generator: 64 random bits; and a number below `bound`. */
uint64_t sim_world_random(struct sim_world *world);
uint64_t sim_world_random_below(struct sim_world *world, uint64_t bound);

/*
 * Faults, in the words of fabric.h, for packets from now on. What travels already arrives, unless
 * its port is down or dead then. "die" fails the devices that are open.
 */
int sim_world_set_fault(struct sim_world *world, const char *ports, const char *how,
			const char *way, char error[FABRIC_ERROR_SIZE]);
int sim_world_restore(struct sim_world *world, const char *ports, char error[FABRIC_ERROR_SIZE]);

/* Takes the address of a port away, and its GIDs with it, or gives it back: its IPv4 GID then
 * stands at another index. Without it nothing passes; with flush_on_port_down its QPs fail as with
 * the port down. GID_CHANGE both times. -ENODEV: that device is not open. */
int sim_world_set_address(struct sim_world *world, uint32_t host, uint32_t rail, bool present);
/* What the port reports and takes from now on: 256 … 4096, a power of two. Queue pairs that are
 * connected keep theirs. -ENODEV. */
int sim_world_set_mtu(struct sim_world *world, uint32_t host, uint32_t rail, uint32_t mtu);
/* Every packet that this port sends from now on arrives once more, `late_ns` after its first copy:
 * it may find its QP gone and another in its place. 0: no longer. -ENODEV. */
int sim_world_set_echo(struct sim_world *world, uint32_t host, uint32_t rail, uint64_t late_ns);

/* A store into an application's memory that a packet asks for. */
struct sim_world_store {
	uint32_t host, rail; /* whose memory, and the device that stores */
	enum { SIM_STORE_WRITE, SIM_STORE_SEND, SIM_STORE_READ_RESPONSE } kind;
	void *memory;
	uint64_t address; /* as the packet or the SGE names it */
	uint32_t length;
	uint32_t qpn; /* the QP that received the packet */
	uint32_t psn;
	uint64_t now;
};
/* Called before the bytes are stored. false: the bytes are not stored, but acknowledged, as a dying
 * NIC may do. NULL: nobody watches. */
typedef bool (*sim_world_observe_fn)(void *context, const struct sim_world_store *store);
void sim_world_observe(struct sim_world *world, sim_world_observe_fn observe, void *context);

/* A packet on its way. */
struct sim_world_packet {
	uint32_t from_host, from_rail; /* of the port that sends */
	uint8_t opcode;                /* of the BTH */
	uint32_t qpn, psn;             /* destination QPN */
	uint32_t payload_length;
	const char *text; /* one line for a trace */
	uint64_t now;
};
/* Called for each packet that is sent, before the faults. false: it is lost. NULL: none. */
typedef bool (*sim_world_filter_fn)(void *context, const struct sim_world_packet *packet);
void sim_world_filter(struct sim_world *world, sim_world_filter_fn filter, void *context);

#endif
