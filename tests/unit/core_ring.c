/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring collectives over pretended connections in one process: every rank's progress function is
 * called in a seeded random order, requests are refused and completed late at random.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coll/ring.h"
#include "pretended_connection.h"

/* ---- a ring of ranks ---- */

#define RANKS_MAX 8
struct world {
	int ranks;
	struct sb_connection connections[RANKS_MAX]; /* [i]: position i to i + 1 */
	struct coll_ring *rings[RANKS_MAX];
	float *in[RANKS_MAX], *out[RANKS_MAX];
	struct coll_buffer in_buffer[RANKS_MAX], out_buffer[RANKS_MAX];
	int rank_at[RANKS_MAX];
	size_t delivered;
};

static void count_delivered(void *context, size_t bytes)
{
	((struct world *)context)->delivered += bytes;
}

static void world_make(struct world *world, int ranks, size_t step, unsigned int slice_steps)
{
	memset(world, 0, sizeof(*world));
	world->ranks = ranks;
	for (int i = 0; i < ranks; i++) {
		world->rank_at[i] = (i * 3 + 1) % ranks; /* an order of its own */
	}
	if (ranks % 3 == 0) {
		for (int i = 0; i < ranks; i++) {
			world->rank_at[i] = ranks - 1 - i;
		}
	}
	for (int i = 0; i < ranks; i++) {
		struct coll_ring_config config = {
			.ranks = ranks,
			.position = i,
			.rank_at = world->rank_at,
			.to_next = &world->connections[i],
			.from_previous = &world->connections[(i + ranks - 1) % ranks],
			.step_bytes = step,
			.slice_steps = slice_steps,
			.delivered = count_delivered,
			.delivered_context = world,
		};

		world->connections[i].tag = (uint32_t)world->rank_at[i];
		assert_int_equal(coll_ring_open(&config, &world->rings[i]), 0);
	}
}

static void world_free(struct world *world)
{
	for (int i = 0; i < world->ranks; i++) {
		coll_ring_close(world->rings[i]);
	}
}

static float value(int rank, size_t i)
{
	return (float)((i * 7 + 3) % 61 * (size_t)(rank + 1));
}

static void start(struct world *world, enum coll_kind kind, size_t count, int in_place)
{
	size_t ranks = (size_t)world->ranks;
	size_t in_count = kind == COLL_REDUCE_SCATTER ? count * ranks : count;
	size_t out_count = kind == COLL_ALL_GATHER ? count * ranks : count;

	for (int i = 0; i < world->ranks; i++) {
		size_t own =
			in_place && kind == COLL_ALL_GATHER ? (size_t)world->rank_at[i] * count : 0;
		struct coll_operation operation = {kind,
						   COLL_FLOAT32,
						   COLL_SUM,
						   count,
						   &world->in_buffer[i],
						   &world->out_buffer[i],
						   0,
						   0};

		world->out[i] = malloc((out_count + 1) * sizeof(float));
		world->in[i] =
			in_place ? world->out[i] + own : malloc((in_count + 1) * sizeof(float));
		memset(world->out[i], 0xff, (out_count + 1) * sizeof(float));
		for (size_t k = 0; k < in_count; k++) {
			world->in[i][k] = value(world->rank_at[i], k);
		}
		coll_ring_register(world->rings[i], world->in[i], in_count * sizeof(float),
				   &world->in_buffer[i]);
		coll_ring_register(world->rings[i], world->out[i], out_count * sizeof(float),
				   &world->out_buffer[i]);
		assert_int_equal(coll_start(world->rings[i], &operation), 0);
	}
}

static void finish(struct world *world, int in_place)
{
	for (int i = 0; i < world->ranks; i++) {
		coll_ring_deregister(world->rings[i], &world->in_buffer[i]);
		coll_ring_deregister(world->rings[i], &world->out_buffer[i]);
		free(world->out[i]);
		if (!in_place) {
			free(world->in[i]);
		}
	}
}

static void run(struct world *world)
{
	int left = world->ranks;
	int finished[RANKS_MAX] = {0};
	long idle = 0;

	while (left > 0) {
		int i = rand_r(&seed) % world->ranks;
		int done;
		int result = coll_progress(world->rings[i], &done);

		assert_true(result >= 0);
		idle = result > 0 ? 0 : idle + 1;
		assert_true(idle < 100000); /* stuck */
		if (done && !finished[i]) {
			finished[i] = 1;
			left--;
		}
	}
}

static void check(const struct world *world, enum coll_kind kind, size_t count)
{
	size_t ranks = (size_t)world->ranks;
	float weights = (float)(ranks * (ranks + 1) / 2);

	for (int i = 0; i < world->ranks; i++) {
		size_t rank = (size_t)world->rank_at[i];

		for (size_t k = 0; k < count; k++) {
			if (kind == COLL_ALL_REDUCE) {
				assert_true(world->out[i][k] == value(0, k) * weights);
			} else if (kind == COLL_REDUCE_SCATTER) {
				assert_true(world->out[i][k] ==
					    value(0, rank * count + k) * weights);
			}
		}
		for (size_t k = 0; kind == COLL_ALL_GATHER && k < count * ranks; k++) {
			assert_true(world->out[i][k] == value((int)(k / count), k % count));
		}
	}
}

static void every_operation_is_right(void **state)
{
	static const size_t counts[] = {0, 1, 3, 16, 31, 100, 1000, 4097, 20000};
	static const struct {
		size_t step;
		unsigned int slice_steps;
	} shapes[] = {{64, 1}, {64, 8}, {256, 2}, {4096, 4}};

	(void)state;
	for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
		for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
			struct world world;

			seed = (unsigned int)(ranks * 100) + (unsigned int)s;
			world_make(&world, ranks, shapes[s].step, shapes[s].slice_steps);
			for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
				for (int kind = 0; kind < 3; kind++) {
					int in_place = kind != COLL_REDUCE_SCATTER && chance(50);

					start(&world, kind, counts[c], in_place);
					run(&world);
					check(&world, kind, counts[c]);
					finish(&world, in_place);
				}
			}
			world_free(&world);
		}
	}
}

static void all_deliveries_are_reported(void **state)
{
	struct world world;

	(void)state;
	seed = 5;
	world_make(&world, 4, 256, 2);
	start(&world, COLL_ALL_REDUCE, 10000, 0);
	run(&world);
	/* Each rank receives 2 (N - 1) / N of the data. */
	assert_int_equal(world.delivered, 4 * 2 * 3 * 10000 / 4 * sizeof(float));
	finish(&world, 0);
	world_free(&world);
}

static void bad_operations_are_refused(void **state)
{
	struct world world;
	float data[64];
	struct coll_buffer buffer = {(char *)data, sizeof(data), NULL, NULL};
	struct coll_operation good = {COLL_ALL_REDUCE, COLL_FLOAT32, COLL_SUM, 64,
				      &buffer,         &buffer,      0,        0};
	struct coll_operation bad;

	(void)state;
	world_make(&world, 2, 64, 1);
	bad = good;
	bad.count = 65;
	assert_int_equal(coll_start(world.rings[0], &bad), -EINVAL);
	bad = good;
	bad.out_offset = 4;
	assert_int_equal(coll_start(world.rings[0], &bad), -EINVAL);
	bad = good;
	bad.kind = COLL_ALL_GATHER;
	assert_int_equal(coll_start(world.rings[0], &bad), -EINVAL);
	bad = good;
	bad.kind = 77;
	assert_int_equal(coll_start(world.rings[0], &bad), -EINVAL);
	bad = good;
	bad.type = COLL_TYPES;
	assert_int_equal(coll_start(world.rings[0], &bad), -EINVAL);
	bad = good;
	bad.reduction = COLL_REDUCTIONS;
	assert_int_equal(coll_start(world.rings[0], &bad), -EINVAL);
	bad = good;
	bad.count = SIZE_MAX / 2;
	assert_int_equal(coll_start(world.rings[0], &bad), -EINVAL);
	assert_int_equal(coll_start(world.rings[0], &good), 0);
	assert_int_equal(coll_start(world.rings[0], &good), -EBUSY);
	world_free(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_operation_is_right),
		cmocka_unit_test(all_deliveries_are_reported),
		cmocka_unit_test(bad_operations_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
