/* SPDX-License-Identifier: Apache-2.0 */
/* What failback.c and rebuild.c share. For the owner. */
#ifndef SB_CONN_FAILBACK_H
#define SB_CONN_FAILBACK_H

#include "conn/conn.h"
#include "util/clock.h"

#define REPEAT_FIRST (10 * SB_MS) /* of a message that has no answer yet; the gap doubles */

/* About this path and incarnation, with the QP's address where the type has one. */
void sb_failback_message(struct sb_connection *connection, struct sb_path *path,
			 enum sb_control_type type, bool answer);
/* Sends this end's probe; path->own_probe_posted says whether it went out. */
void sb_failback_post_proof(struct sb_connection *connection, struct sb_path *path);
/* READY, and up, as far as the proof has got. */
void sb_failback_maybe_proven(struct sb_connection *connection, struct sb_path *path);
void sb_failback_reset_proof(struct sb_path *path);

#endif
