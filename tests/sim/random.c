/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

/* SplitMix64: small, and good from any seed. */
uint64_t random_next(struct random *random)
{
	uint64_t z = random->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t random_between(struct random *random, uint64_t low, uint64_t high)
{
	return low + random_next(random) % (high - low + 1);
}

bool random_chance(struct random *random, unsigned percent)
{
	return random_next(random) % 100 < percent;
}
