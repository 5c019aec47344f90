/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

int socket_send(struct end *from, const void *bytes, size_t n)
{
	struct schedule *schedule = from->schedule;
	struct socket_way *way = &from->peer->in;
	struct socket_piece *piece;
	uint64_t now = schedule_now(schedule);

	if (way->closed) {
		return -EPIPE;
	}
	piece = malloc(sizeof(*piece) + n);
	if (piece == NULL) {
		return -ENOMEM;
	}
	piece->due = now + random_between(&schedule->random, 20 * SB_US, 150 * SB_US);
	if (now < way->slow_until) {
		piece->due += way->slow_by;
	}
	if (piece->due < way->last_due) {
		piece->due = way->last_due;
	}
	way->last_due = piece->due;
	piece->bytes = n;
	piece->next = NULL;
	memcpy(piece->data, bytes, n);
	if (schedule->sim_case != NULL && schedule->sim_case->tamper != NULL) {
		schedule->sim_case->tamper(from, piece->data, n);
	}
	if (way->last != NULL) {
		way->last->next = piece;
	} else {
		way->first = piece;
	}
	way->last = piece;
	return 0;
}

uint64_t socket_due(const struct end *to)
{
	return to->in.first == NULL ? SB_NEVER : to->in.first->due;
}

void socket_deliver(struct end *to, uint64_t now)
{
	struct socket_way *way = &to->in;

	while (way->first != NULL && way->first->due <= now) {
		struct socket_piece *piece = way->first;

		way->first = piece->next;
		if (way->first == NULL) {
			way->last = NULL;
		}
		if (to->connection != NULL) {
			sb_connection_oob_input(to->connection, piece->data, piece->bytes);
		}
		free(piece);
	}
}

void socket_free(struct socket_way *way)
{
	while (way->first != NULL) {
		struct socket_piece *piece = way->first;

		way->first = piece->next;
		free(piece);
	}
	way->last = NULL;
}
