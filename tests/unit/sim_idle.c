/* SPDX-License-Identifier: Apache-2.0 */
/* Devices on which nothing happens sleep: no thread of theirs runs, armed or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sim_pair.h"
#include <poll.h>
#include <sys/resource.h>

#define WHILE_MS 400

static struct pair pair;

/* Time that the process's threads ran for, and how often they went to sleep. */
static void used(uint64_t *ns, uint64_t *sleeps)
{
	struct timespec time;
	struct rusage usage;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	getrusage(RUSAGE_SELF, &usage);
	*ns = (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
	*sleeps = (uint64_t)usage.ru_nvcsw;
}

/* This thread waits for a completion that doesn't come; what the others do meanwhile is little. */
static void expect_sleep(void)
{
	struct pollfd fds[2] = {{.fd = pair.end[0].channel->fd, .events = POLLIN},
				{.fd = pair.end[1].channel->fd, .events = POLLIN}};
	uint64_t before, after, sleeps, more;

	used(&before, &sleeps);
	assert_int_equal(poll(fds, 2, WHILE_MS), 0);
	used(&after, &more);
	/* A loop would take all of the time, a short timer would sleep hundreds of times. */
	assert_true(after - before < WHILE_MS * PAIR_MS / 10);
	assert_true(more - sleeps < 50);
}

static void test_idle_devices_sleep(void **state)
{
	struct ibv_wc wc;

	(void)state;
	pair_make_fabric(&pair, NULL);
	expect_sleep();
	pair_connect(&pair, 14, 7);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(pair_post(&pair, IBV_WR_RDMA_WRITE, 0, 0, 100000, 1), 0);
		assert_true(pair_wait(&pair, 0, &wc, 20000 * PAIR_MS));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	/* After traffic by polling, and with both queues armed. */
	expect_sleep();
	for (int end = 0; end < 2; end++) {
		assert_int_equal(ibv_req_notify_cq(pair.end[end].cq, 0), 0);
	}
	expect_sleep();
	pair_free(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle_devices_sleep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
