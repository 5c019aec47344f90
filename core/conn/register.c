/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a connection: registered on the devices of all its paths, see verbs/memory.h. */
#include "conn/conn.h"

static int access_flags(const struct sb_connection *connection)
{
	return connection->device[0]->settings.relaxed_ordering == 1
		       ? SB_MEMORY_ACCESS | IBV_ACCESS_RELAXED_ORDERING
		       : SB_MEMORY_ACCESS;
}

/* GPU memory needs flushing, see flush.c. */
static int prepare(struct sb_connection *connection, enum sb_memory_type type)
{
	return type == SB_MEMORY_CUDA ? sb_flush_enable(connection) : 0;
}

int sb_register(struct sb_connection *connection, void *address, size_t bytes,
		enum sb_memory_type type, struct sb_memory **memory)
{
	int status = prepare(connection, type);

	*memory = NULL;
	return status != 0 ? status
			   : sb_memory_cache_get(connection->parts.cache, connection->device,
						 connection->device_count, address, bytes, type,
						 access_flags(connection), memory);
}

int sb_register_dmabuf(struct sb_connection *connection, void *address, size_t bytes,
		       enum sb_memory_type type, uint64_t offset, int fd, struct sb_memory **memory)
{
	int status = prepare(connection, type);

	*memory = NULL;
	return status != 0
		       ? status
		       : sb_memory_cache_get_dmabuf(connection->parts.cache, connection->device,
						    connection->device_count, address, bytes, type,
						    offset, fd, access_flags(connection), memory);
}

int sb_deregister(struct sb_connection *connection, struct sb_memory *memory)
{
	sb_memory_cache_put(connection->parts.cache, memory);
	return 0;
}
