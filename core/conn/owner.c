/* SPDX-License-Identifier: Apache-2.0 */
#include "conn/owner.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

atomic_int sb_owner_fences = 1;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
#if !defined(__SANITIZE_THREAD__)
	/* A thread sanitizer knows atomics, not membarrier: it gets the fences. */
	if (syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) {
		atomic_store(&sb_owner_fences, 0);
	}
#endif
}

void sb_owner_init(struct sb_owner *owner)
{
	pthread_once(&once, choose);
	atomic_init(&owner->inside, 0);
	atomic_init(&owner->wanted, 0);
	pthread_mutex_init(&owner->outsiders, NULL);
}

void sb_owner_destroy(struct sb_owner *owner)
{
	pthread_mutex_destroy(&owner->outsiders);
}

void sb_owner_wait(struct sb_owner *owner)
{
	sb_owner_leave(owner);
	while (atomic_load_explicit(&owner->wanted, memory_order_acquire)) {
		sched_yield();
	}
}

void sb_owner_take(struct sb_owner *owner)
{
	pthread_mutex_lock(&owner->outsiders);
	atomic_exchange(&owner->wanted, 1);
	if (!atomic_load_explicit(&sb_owner_fences, memory_order_relaxed)) {
		syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	}
	while (atomic_load(&owner->inside)) {
		sched_yield();
	}
}

void sb_owner_give(struct sb_owner *owner)
{
	atomic_store_explicit(&owner->wanted, 0, memory_order_release);
	pthread_mutex_unlock(&owner->outsiders);
}
