/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory: one range, one MR per device, so that a request can move to another device
 * without registering anything.
 *
 * The first device of a list is the primary's: where it refuses, the registration fails. A backup
 * device that refuses gets no MR, one WARN, and its paths can't carry this memory. A dead device is
 * passed over, also the primary's, as long as another takes the memory.
 *
 * Relaxed ordering is off unless the caller asks: the completion record is written to memory after
 * the data and must not overtake it.
 */
#ifndef SB_VERBS_MEMORY_H
#define SB_VERBS_MEMORY_H

#include "verbs/device.h"

struct sb_memory {
	uint8_t *address; /* of the registered range, which is rounded out to pages */
	size_t bytes;
	enum sb_memory_type type;
	int access;     /* IBV_ACCESS_* */
	int references; /* under the cache's lock */
	bool dmabuf;
	struct sb_memory *next;         /* in the cache, by address; under its lock */
	int device_count;               /* entries of mr[] and tried[] */
	const struct sb_device **tried; /* by device index; NULL: not asked yet */
	struct ibv_mr *mr[];            /* by device index; NULL: not registered there */
};

#define SB_MEMORY_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/*
 * Registers on `count` devices, uncached (a connection's own rings). mr[] has room for device
 * indexes up to the highest of the list.
 * -EINVAL: no bytes; -ENOMEM and others: as the primary's device said, after one log line.
 */
int sb_memory_register(struct sb_device **devices, int count, void *address, size_t bytes,
		       enum sb_memory_type type, int access, struct sb_memory **memory);
/* NULL is fine. Also takes what the MRs of a dead device leave behind. */
void sb_memory_deregister(struct sb_memory *memory);

static inline bool sb_memory_on(const struct sb_memory *memory, int device_index)
{
	return device_index < memory->device_count && memory->mr[device_index] != NULL;
}
/* Only where sb_memory_on(). */
static inline uint32_t sb_memory_lkey(const struct sb_memory *memory, int device_index)
{
	return memory->mr[device_index]->lkey;
}
static inline uint32_t sb_memory_rkey(const struct sb_memory *memory, int device_index)
{
	return memory->mr[device_index]->rkey;
}

/* ---- cache of a context: the same range is registered once ---- */

struct sb_memory_cache {
	pthread_mutex_t lock;
	struct sb_memory *first;
	int device_count; /* of the context: how long mr[] is */
	size_t page_bytes;
};
void sb_memory_cache_init(struct sb_memory_cache *cache, int device_count);
/* Deregisters what is left and returns how many entries that were. */
int sb_memory_cache_destroy(struct sb_memory_cache *cache);

/*
 * Finds a range that covers this one (same type and access) and adds devices that it lacks, or
 * registers a new one, rounded out to pages. Any thread. Errors as sb_memory_register().
 */
int sb_memory_cache_get(struct sb_memory_cache *cache, struct sb_device **devices, int count,
			void *address, size_t bytes, enum sb_memory_type type, int access,
			struct sb_memory **memory);
/* The same from a DMA-BUF: `offset` of the range in `fd`; nothing is rounded, and only the very
 * same range is shared. -EOPNOTSUPP: the primary's device or the library can't. */
int sb_memory_cache_get_dmabuf(struct sb_memory_cache *cache, struct sb_device **devices, int count,
			       void *address, size_t bytes, enum sb_memory_type type,
			       uint64_t offset, int fd, int access, struct sb_memory **memory);
/* Drops one reference; the last one deregisters. */
void sb_memory_cache_put(struct sb_memory_cache *cache, struct sb_memory *memory);

#endif
