/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ownership of a connection, biased to the application's thread: entering and leaving cost that
 * thread two plain stores and a load (no atomic read-modify-write, no fence). The monitor, which
 * comes rarely, pays for both with membarrier(2) and waits until the owner is out.
 *
 * One "inside" thread at a time (the application's, see switchback.h); any number of outsiders.
 * Not recursive.
 */
#ifndef SB_CONN_OWNER_H
#define SB_CONN_OWNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct sb_owner {
	atomic_int inside;
	atomic_int wanted;
	pthread_mutex_t outsiders;
};

/* 1 where membarrier(2) may not be relied on; set once by sb_owner_init. */
extern atomic_int sb_owner_fences;

void sb_owner_init(struct sb_owner *owner);
void sb_owner_destroy(struct sb_owner *owner);

/* Slow half of sb_owner_enter: waits until no outsider holds it. */
void sb_owner_wait(struct sb_owner *owner);

static inline void sb_owner_enter(struct sb_owner *owner)
{
	for (;;) {
		if (__builtin_expect(atomic_load_explicit(&sb_owner_fences, memory_order_relaxed),
				     0)) {
			atomic_exchange(&owner->inside, 1);
		} else {
			atomic_store_explicit(&owner->inside, 1, memory_order_relaxed);
		}
		atomic_signal_fence(memory_order_seq_cst);
		if (__builtin_expect(!atomic_load(&owner->wanted), 1)) {
			return;
		}
		sb_owner_wait(owner);
	}
}

static inline void sb_owner_leave(struct sb_owner *owner)
{
	atomic_store_explicit(&owner->inside, 0, memory_order_release);
}

/* For the monitor and the service thread. */
void sb_owner_take(struct sb_owner *owner);
void sb_owner_give(struct sb_owner *owner);

#endif
