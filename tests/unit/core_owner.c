/* SPDX-License-Identifier: Apache-2.0 */
/* Biased ownership: an application thread and outsiders never are inside together. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "conn/owner.h"

#define TURNS 200000

static struct sb_owner owner;
static int counter; /* not atomic on purpose: only exclusion keeps it right */
static atomic_int stop;

static void *inside(void *argument)
{
	for (int i = 0; i < TURNS; i++) {
		sb_owner_enter(&owner);
		counter++;
		sb_owner_leave(&owner);
	}
	atomic_store(&stop, 1);
	return argument;
}

static void *outside(void *argument)
{
	int *taken = argument;

	while (!atomic_load(&stop)) {
		sb_owner_take(&owner);
		counter++;
		(*taken)++;
		sb_owner_give(&owner);
	}
	return NULL;
}

static void one_inside_at_a_time(void **state)
{
	pthread_t threads[3];
	int taken[2] = {0, 0};

	(void)state;
	sb_owner_init(&owner);
	pthread_create(&threads[1], NULL, outside, &taken[0]);
	pthread_create(&threads[2], NULL, outside, &taken[1]);
	pthread_create(&threads[0], NULL, inside, NULL);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
	}
	assert_int_equal(counter, TURNS + taken[0] + taken[1]);
	sb_owner_destroy(&owner);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(one_inside_at_a_time)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
