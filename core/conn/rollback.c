/* SPDX-License-Identifier: Apache-2.0 */
/* The sender takes a SYNC's stock: what has arrived is done, what a fence swallowed is sent again.
 */
#include "conn/conn.h"

#include <errno.h>

#include "util/mutant.h"

static uint64_t oldest_kept(const struct sb_connection *connection)
{
	return connection->head > SB_WINDOW ? connection->head - SB_WINDOW : 1;
}

static bool covered(const struct sb_control *sync, uint64_t seq)
{
	uint64_t bit = seq - sync->resume;

	if (seq < sync->resume) {
		return true;
	}
	return bit < SB_WINDOW && (sync->received[bit / 64] >> (bit % 64) & 1);
}

/* Returns 1 when the group has to be sent again. */
static uint32_t settle(struct sb_connection *connection, const struct sb_control *sync,
		       struct sb_send_group *group)
{
	bool fenced = group->started && group->path >= 0 &&
		      group->incarnation <= sync->fenced[group->path];

	if (SB_MUTANT(ROLLBACK_EVERYTHING)) {
		fenced = group->started;
	} else if (SB_MUTANT(ROLLBACK_BY_OWN_VIEW)) {
		fenced = group->started && group->path >= 0 &&
			 !sb_path_up(&connection->path[group->path]);
	}

	if (covered(sync, group->seq)) {
		if (group->state == SB_SEND_SENT || group->state == SB_SEND_POSTED) {
			sb_send_complete(group);
		}
		return 0;
	}
	if (group->state == SB_SEND_DONE) {
		if (fenced) {
			sb_connection_fail(connection, -ENODATA,
					   "message %llu was acknowledged on %s but never reached "
					   "the receiver's memory: that NIC lost it "
					   "(SWITCHBACK_SEND_ACK=1 survives this)",
					   (unsigned long long)group->seq,
					   sb_path_name(&connection->path[group->path]));
		}
		return 0;
	}
	if (fenced) {
		group->state = SB_SEND_POSTED;
		group->started = false;
		group->path = sync->new_path;
		return 1;
	}
	if (group->state == SB_SEND_POSTED && !group->started &&
	    (group->path < 0 || !sb_path_up(&connection->path[group->path]))) {
		group->path = sync->new_path;
	}
	return 0;
}

void sb_send_rollback(struct sb_connection *connection, const struct sb_control *sync)
{
	uint32_t count = 0;

	for (uint64_t seq = oldest_kept(connection); seq < connection->head; seq++) {
		struct sb_send_group *group = sb_send_group_of(connection, seq);

		if (group->seq != seq || group->state == SB_SEND_FREE) {
			continue;
		}
		if (settle(connection, sync, group) != 0) {
			count++;
			if (seq < connection->transmit) {
				connection->transmit = seq;
			}
		}
	}
	struct sb_send_group *matching = sb_send_group_of(connection, connection->head);

	if (matching->state == SB_SEND_MATCHING &&
	    (matching->path < 0 || !sb_path_up(&connection->path[matching->path]))) {
		matching->path = sync->new_path;
	}
	if (count > 0) {
		sb_count(&connection->replayed, count);
		sb_connection_event(connection, SB_EVENT_REPLAY, NULL, count, "rolled back");
	}
}
