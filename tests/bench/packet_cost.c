/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed number of RC writes between two devices in one process and one thread, for
 * packet_cost.sh, which counts the instructions of measured() with callgrind. Prints how many
 * packets there were, and what part of the CPU's time the kernel took.
 * usage: packet_cost BYTES MESSAGES
 */
#include "fabric.h"
#include "rc_end.h"
#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEPTH 16

void measured(struct end *sender, struct end *receiver, uint32_t bytes, uint64_t messages);

/* Not inlined and not static: callgrind finds it by its name. */
__attribute__((noinline)) void measured(struct end *sender, struct end *receiver, uint32_t bytes,
					uint64_t messages)
{
	uint64_t posted = 0, done = 0;

	while (done < messages) {
		while (posted < messages && posted - done < DEPTH) {
			post_write(sender, posted % 8 * bytes, bytes, bytes <= 64);
			posted++;
		}
		poll_some(receiver);
		done += poll_some(sender);
	}
}

static uint64_t microseconds(struct timeval time)
{
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

int main(int argc, char **argv)
{
	char name[FABRIC_NAME_SIZE], error[FABRIC_ERROR_SIZE];
	struct fabric_port_status before, after;
	struct rusage start, stop;
	struct end end[2] = {{0}};
	struct fabric *fabric;
	uint64_t user, kernel;

	if (argc != 3 || atoi(argv[1]) < 1 || atoi(argv[1]) > MEMORY / 8 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: packet_cost BYTES MESSAGES\n");
		return 2;
	}
	snprintf(name, sizeof(name), "cost-%d", getpid());
	if (fabric_create(name, 2, 1, NULL, error) || fabric_open(name, &fabric, error)) {
		fprintf(stderr, "packet_cost: %s\n", error);
		return 2;
	}
	setenv("SWITCHBACK_FABRIC", name, 1);
	end_open(&end[0], "0");
	end_open(&end[1], "1");
	end[0].peer = end[1].own;
	end[1].peer = end[0].own;
	end_connect(&end[0]);
	end_connect(&end[1]);
	measured(&end[0], &end[1], (uint32_t)atoi(argv[1]), DEPTH);
	fabric_port_status(fabric, 0, 0, &before);
	getrusage(RUSAGE_SELF, &start);
	measured(&end[0], &end[1], (uint32_t)atoi(argv[1]), (uint64_t)atoi(argv[2]));
	getrusage(RUSAGE_SELF, &stop);
	fabric_port_status(fabric, 0, 0, &after);
	user = microseconds(stop.ru_utime) - microseconds(start.ru_utime);
	kernel = microseconds(stop.ru_stime) - microseconds(start.ru_stime);
	printf("%" PRIu64 " packets out, %" PRIu64 " in, kernel %.0f %%\n",
	       after.tx_packets - before.tx_packets, after.rx_packets - before.rx_packets,
	       100.0 * (double)kernel / (double)(user + kernel + 1));
	fabric_close(fabric);
	fabric_destroy(name, error);
	return 0;
}
