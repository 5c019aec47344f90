/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"

struct source { /* of a DMA-BUF; fd -1: plain memory */
	int fd;
	uint64_t offset;
};

static struct ibv_mr *register_on(const struct sb_device *device, const struct sb_memory *memory,
				  const struct source *source)
{
	const struct sb_verbs *verbs = device->verbs;
	int access = memory->access;
	uint64_t address = (uintptr_t)memory->address;

	if (source->fd >= 0) {
		if (verbs->reg_dmabuf_mr == NULL) {
			errno = EOPNOTSUPP;
			return NULL;
		}
		return verbs->reg_dmabuf_mr(device->pd, source->offset, memory->bytes, address,
					    source->fd, access);
	}
	if ((access & IBV_ACCESS_OPTIONAL_RANGE) != 0) {
		if (verbs->reg_mr_iova2 != NULL) {
			return verbs->reg_mr_iova2(device->pd, memory->address, memory->bytes,
						   address, (unsigned int)access);
		}
		access &= ~(int)IBV_ACCESS_OPTIONAL_RANGE; /* optional means just that */
	}
	return verbs->reg_mr(device->pd, memory->address, memory->bytes, access);
}

static void report(const struct sb_device *device, const struct sb_memory *memory, bool primary,
		   int error)
{
	char hint[64] = "";

	if (error == ENOMEM) {
		strcpy(hint, "; see ulimit -l");
	} else if (error == EFAULT && memory->type == SB_MEMORY_CUDA) {
		strcpy(hint, "; GPU memory needs nvidia_peermem or DMA-BUF");
	}
	sb_log(primary ? SB_LOG_ERROR : SB_LOG_WARN,
	       "%s: registering %zu bytes of %s memory at %p failed: %s%s%s", device->name,
	       memory->bytes, memory->type == SB_MEMORY_CUDA ? "CUDA" : "host",
	       (void *)memory->address, strerror(error), hint,
	       primary ? "" : "; as a backup the device can't carry it");
}

/* EIO and ENODEV: what a device says that is dead and has not reported it yet. */
static bool is_death(int error)
{
	return error == EIO || error == ENODEV;
}

/* 0, or the reason why the memory can't be used at all. */
static int try_device(struct sb_memory *memory, const struct sb_device *device, bool primary,
		      const struct source *source)
{
	struct ibv_mr *mr;
	int error;

	memory->tried[device->index] = device;
	errno = 0;
	mr = register_on(device, memory, source);
	memory->mr[device->index] = mr;
	if (mr != NULL) {
		return 0;
	}
	error = errno != 0 ? errno : EIO;
	primary = primary && !is_death(error);
	report(device, memory, primary, error);
	return primary ? -error : 0;
}

static int fill(struct sb_memory *memory, struct sb_device **devices, int count,
		const struct source *source)
{
	int taken = 0;

	for (int i = 0; i < count; i++) {
		const struct sb_device *device = devices[i];
		bool tried = i > 0 && memory->tried[device->index] != NULL;
		int status = 0;

		if (memory->mr[device->index] == NULL && !tried && !atomic_load(&device->fatal)) {
			status = try_device(memory, device, i == 0, source);
		}
		if (status != 0) {
			return status;
		}
		taken += memory->mr[device->index] != NULL;
	}
	if (taken == 0) {
		sb_error("no living device can take %zu bytes at %p", memory->bytes,
			 (void *)memory->address);
		return -EIO;
	}
	return 0;
}

static struct sb_memory *allocate(int device_count, void *address, size_t bytes,
				  enum sb_memory_type type, int access)
{
	struct sb_memory *memory;
	size_t each = sizeof(memory->mr[0]) + sizeof(memory->tried[0]);

	memory = calloc(1, sizeof(*memory) + (size_t)device_count * each);

	if (memory != NULL) {
		memory->address = address;
		memory->bytes = bytes;
		memory->type = type;
		memory->access = access;
		memory->references = 1;
		memory->device_count = device_count;
		memory->tried = (const struct sb_device **)&memory->mr[device_count];
	}
	return memory;
}

static int check(const char *what, const void *address, size_t bytes, int count)
{
	if (bytes == 0 || count == 0 || (uintptr_t)address + bytes < bytes) {
		sb_error("%s: %zu bytes at %p on %d devices can't be registered", what, bytes,
			 address, count);
		return -EINVAL;
	}
	return 0;
}

static int create(int device_count, struct sb_device **devices, int count, void *address,
		  size_t bytes, enum sb_memory_type type, int access, const struct source *source,
		  struct sb_memory **memory)
{
	int status;

	*memory = allocate(device_count, address, bytes, type, access);
	if (*memory == NULL) {
		return -ENOMEM;
	}
	(*memory)->dmabuf = source->fd >= 0;
	status = fill(*memory, devices, count, source);
	if (status != 0) {
		sb_memory_deregister(*memory);
		*memory = NULL;
	}
	return status;
}

int sb_memory_register(struct sb_device **devices, int count, void *address, size_t bytes,
		       enum sb_memory_type type, int access, struct sb_memory **memory)
{
	const struct source plain = {.fd = -1};
	int device_count = 0;
	int status = check("memory", address, bytes, count);

	*memory = NULL;
	if (status != 0) {
		return status;
	}
	for (int i = 0; i < count; i++) {
		device_count =
			devices[i]->index >= device_count ? devices[i]->index + 1 : device_count;
	}
	return create(device_count, devices, count, address, bytes, type, access, &plain, memory);
}

void sb_memory_deregister(struct sb_memory *memory)
{
	if (memory == NULL) {
		return;
	}
	for (int i = 0; i < memory->device_count; i++) {
		struct ibv_mr *mr = memory->mr[i];
		const struct sb_device *device;
		int status;

		if (mr == NULL) {
			continue;
		}
		device = memory->tried[i];
		status = device->verbs->dereg_mr(mr);
		if (status != 0 && !atomic_load(&device->fatal)) {
			sb_warn("%s: ibv_dereg_mr of %zu bytes at %p: %s", device->name,
				memory->bytes, (void *)memory->address, strerror(status));
		}
	}
	free(memory);
}

void sb_memory_cache_init(struct sb_memory_cache *cache, int device_count)
{
	*cache = (struct sb_memory_cache){
		.device_count = device_count,
		.page_bytes = (size_t)sysconf(_SC_PAGESIZE),
	};
	pthread_mutex_init(&cache->lock, NULL);
}

int sb_memory_cache_destroy(struct sb_memory_cache *cache)
{
	int left = 0;

	while (cache->first != NULL) {
		struct sb_memory *memory = cache->first;

		cache->first = memory->next;
		sb_memory_deregister(memory);
		left++;
	}
	pthread_mutex_destroy(&cache->lock);
	return left;
}

/* The entry that covers [address, address + bytes), else NULL and *place where one would go. */
static struct sb_memory *find(struct sb_memory_cache *cache, const uint8_t *address, size_t bytes,
			      enum sb_memory_type type, int access, bool dmabuf,
			      struct sb_memory ***place)
{
	struct sb_memory **link = &cache->first;

	for (; *link != NULL && (*link)->address <= address; link = &(*link)->next) {
		const struct sb_memory *memory = *link;

		/* The file is only known to hold the range that came with it. */
		bool covers = dmabuf ? memory->address == address && memory->bytes == bytes
				     : address + bytes <= memory->address + memory->bytes;

		if (covers && memory->type == type && memory->access == access &&
		    memory->dmabuf == dmabuf) {
			return *link;
		}
	}
	*place = link;
	return NULL;
}

static int cache_get(struct sb_memory_cache *cache, struct sb_device **devices, int count,
		     void *address, size_t bytes, enum sb_memory_type type, int access,
		     const struct source *source, struct sb_memory **memory)
{
	struct sb_memory **place;
	int status = 0;

	pthread_mutex_lock(&cache->lock);
	*memory = find(cache, address, bytes, type, access, source->fd >= 0, &place);
	if (*memory == NULL) {
		status = create(cache->device_count, devices, count, address, bytes, type, access,
				source, memory);
		if (status == 0) {
			(*memory)->next = *place;
			*place = *memory;
		}
	} else {
		status = fill(*memory, devices, count, source);
		if (status == 0) {
			(*memory)->references++;
		} else {
			*memory = NULL;
		}
	}
	pthread_mutex_unlock(&cache->lock);
	return status;
}

int sb_memory_cache_get(struct sb_memory_cache *cache, struct sb_device **devices, int count,
			void *address, size_t bytes, enum sb_memory_type type, int access,
			struct sb_memory **memory)
{
	const struct source plain = {.fd = -1};
	uintptr_t mask = cache->page_bytes - 1;
	uintptr_t start = (uintptr_t)address & ~mask;
	uintptr_t end = ((uintptr_t)address + bytes + mask) & ~mask;
	int status = check("memory", address, bytes, count);

	*memory = NULL;
	if (status != 0) {
		return status;
	}
	return cache_get(cache, devices, count, (uint8_t *)address - ((uintptr_t)address - start),
			 end - start, type, access, &plain, memory);
}

int sb_memory_cache_get_dmabuf(struct sb_memory_cache *cache, struct sb_device **devices, int count,
			       void *address, size_t bytes, enum sb_memory_type type,
			       uint64_t offset, int fd, int access, struct sb_memory **memory)
{
	const struct source source = {.fd = fd, .offset = offset};
	int status = check("DMA-BUF", address, bytes, count);

	*memory = NULL;
	if (status == 0 && fd < 0) {
		sb_error("DMA-BUF: %d is no file descriptor", fd);
		status = -EBADF;
	}
	return status != 0 ? status
			   : cache_get(cache, devices, count, address, bytes, type, access, &source,
				       memory);
}

void sb_memory_cache_put(struct sb_memory_cache *cache, struct sb_memory *memory)
{
	struct sb_memory **link = &cache->first;

	pthread_mutex_lock(&cache->lock);
	if (--memory->references == 0) {
		while (*link != memory) {
			link = &(*link)->next;
		}
		*link = memory->next;
	} else {
		memory = NULL;
	}
	pthread_mutex_unlock(&cache->lock);
	sb_memory_deregister(memory);
}
