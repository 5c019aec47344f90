/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can go wrong with a packet on its way: the one judge that both wires ask.
 * Pure apart from the state given; any thread, one at a time per state.
 */
#ifndef SIM_WIRE_IMPAIR_H
#define SIM_WIRE_IMPAIR_H

#include <stdbool.h>
#include <stdint.h>

/* xoshiro256**-style generator; never use rand() where a seed must replay. */
struct wire_random {
	uint64_t state[4];
};
void wire_random_seed(struct wire_random *random, uint64_t seed);
uint64_t wire_random_next(struct wire_random *random);
/* Uniform in 0 … bound - 1; 0 for bound 0. */
uint64_t wire_random_below(struct wire_random *random, uint64_t bound);
/* True in `ppm` of a million cases; draws nothing for 0 and 1000000. */
bool wire_random_chance(struct wire_random *random, uint32_t ppm);

/* Faults of one port in one direction. All zero: none. Probabilities are parts per million. */
struct wire_fault {
	bool down;      /* no carrier: nothing passes, and the port says so */
	bool blackhole; /* nothing passes, and nobody says so */
	uint32_t loss_ppm;
	uint32_t corrupt_ppm;
	uint32_t duplicate_ppm;
	uint32_t reorder_ppm;      /* packets that are held back by reorder_ns */
	uint64_t reorder_ns;       /* 0 with reorder_ppm: 50 µs */
	uint64_t delay_ns;         /* added to each packet; order is kept */
	uint64_t jitter_ns;        /* plus 0 … jitter at random; order is lost */
	uint64_t bytes_per_second; /* bandwidth; 0 unlimited */
};

/* The direction's queue: when its last byte leaves and when the last in-order packet arrives. */
struct wire_shaper {
	/* Where several processes share the queue: theirs; NULL: `own_busy_until`. */
	_Atomic uint64_t *busy_until;
	_Atomic uint64_t own_busy_until;
	uint64_t last_arrival;
};

struct wire_verdict {
	unsigned copies;        /* 0: lost; 2: duplicated */
	uint64_t arrival_ns[2]; /* when each copy gets through */
	bool corrupt; /* flip `corrupt_bit` (modulo the length in bits) in the first copy */
	uint32_t corrupt_bit;
};

/* Judges a packet of `bytes` bytes that enters the direction at `now`. */
void wire_judge(const struct wire_fault *fault, struct wire_shaper *shaper,
		struct wire_random *random, uint64_t now, uint32_t bytes,
		struct wire_verdict *verdict);

#endif
