/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases share: the plugin, one communicator, memory, and pairs of comms in this process.
 */
#ifndef TESTS_NCCL_CASES_H
#define TESTS_NCCL_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fixture.h"

#define BUFFER_BYTES (4u << 20)

extern struct net net;
extern void *context;
extern int device_count;  /* physical ones */
extern uint8_t *out, *in; /* BUFFER_BYTES each */

struct link {
	struct ends ends;
	void *out_memory, *in_memory; /* of all of `out` and `in` */
};
void link_open(int device, int type, struct link *link);
void link_close(struct link *link);

/* A send from `out` + offset, repeated until the plugin takes it. */
void *sent(struct link *link, size_t offset, size_t bytes, int tag);
/* A receive into `in` + offset. */
void *expected(struct link *link, size_t offset, size_t bytes, int tag);
/* Message `number` sent, received and compared; nothing may be written behind it. */
void exchange(struct link *link, size_t bytes, size_t room, uint64_t number);

void test_properties(void **state);
void test_sizes(void **state);
void test_early_listener_close(void **state);
void test_listener_reuse(void **state);
void test_send_before_receive(void **state);
void test_group_by_tags(void **state);
void test_oldest_group_only(void **state);
void test_many_requests(void **state);
void test_optional_completion(void **state);
void test_flush(void **state);
void test_wrong_use(void **state);
void test_nobody_there(void **state);
void test_oversize(void **state);
void test_close_in_flight(void **state);
void test_close_after_send(void **state);
void test_flush_after_close(void **state);
void test_virtual_device(void **state);
void test_flush_after_cut(void **state);
void test_communicators(void **state);

#endif
