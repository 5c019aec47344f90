/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/impair.h"

#include <stdatomic.h>
#include <string.h>

#define MILLION          1000000u
#define NS_PER_SECOND    1000000000u
#define REORDER_DEFAULT  50000u
#define DUPLICATE_LATEST 20000u /* a second copy comes up to this much after the first */

/* SplitMix64, which spreads a small seed over the generator's state. */
static uint64_t spread(uint64_t *seed)
{
	uint64_t z = (*seed += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void wire_random_seed(struct wire_random *random, uint64_t seed)
{
	for (unsigned i = 0; i < 4; i++) {
		random->state[i] = spread(&seed);
	}
}

static uint64_t rotate(uint64_t value, unsigned by)
{
	return value << by | value >> (64 - by);
}

/* xoshiro256** by Blackman and Vigna. */
uint64_t wire_random_next(struct wire_random *random)
{
	uint64_t *s = random->state;
	uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

uint64_t wire_random_below(struct wire_random *random, uint64_t bound)
{
	return bound ? (uint64_t)((unsigned __int128)wire_random_next(random) * bound >> 64) : 0;
}

bool wire_random_chance(struct wire_random *random, uint32_t ppm)
{
	if (!ppm || ppm >= MILLION) {
		return ppm;
	}
	return wire_random_below(random, MILLION) < ppm;
}

/* When the packet's last bit has left the queue. */
static uint64_t leave(const struct wire_fault *fault, struct wire_shaper *shaper, uint64_t now,
		      uint32_t bytes)
{
	_Atomic uint64_t *busy_until =
		shaper->busy_until ? shaper->busy_until : &shaper->own_busy_until;
	uint64_t before, at;

	if (!fault->bytes_per_second) {
		return now;
	}
	before = atomic_load_explicit(busy_until, memory_order_relaxed);
	do {
		at = (before > now ? before : now) +
		     (uint64_t)bytes * NS_PER_SECOND / fault->bytes_per_second;
	} while (!atomic_compare_exchange_weak(busy_until, &before, at));
	return at;
}

void wire_judge(const struct wire_fault *fault, struct wire_shaper *shaper,
		struct wire_random *random, uint64_t now, uint32_t bytes,
		struct wire_verdict *verdict)
{
	uint64_t arrival;

	memset(verdict, 0, sizeof(*verdict));
	if (fault->down || fault->blackhole || wire_random_chance(random, fault->loss_ppm)) {
		return;
	}
	arrival = leave(fault, shaper, now, bytes) + fault->delay_ns;
	if (fault->jitter_ns) {
		arrival += wire_random_below(random, fault->jitter_ns + 1);
	} else if (wire_random_chance(random, fault->reorder_ppm)) {
		arrival += fault->reorder_ns ? fault->reorder_ns : REORDER_DEFAULT;
	} else {
		arrival = arrival > shaper->last_arrival ? arrival : shaper->last_arrival;
		shaper->last_arrival = arrival;
	}
	verdict->copies = 1;
	verdict->arrival_ns[0] = arrival;
	if (wire_random_chance(random, fault->duplicate_ppm)) {
		verdict->copies = 2;
		verdict->arrival_ns[1] = arrival + wire_random_below(random, DUPLICATE_LATEST);
	}
	if (wire_random_chance(random, fault->corrupt_ppm)) {
		verdict->corrupt = true;
		verdict->corrupt_bit = (uint32_t)wire_random_next(random);
	}
}
