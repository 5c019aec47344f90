/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of the simulated device over UDP against plain UDP with GSO/GRO and TCP, all over loopback
 * between two processes, in one run, so that the ratios mean something on a disturbed machine.
 * usage: fabric_speed [SECONDS per figure, default 2]
 */
#include "fabric.h"
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY            (16 << 20)
#define UDP_SEGMENT_BYTES 4096
#define UDP_SEGMENTS      15
#define ROUNDS            20000

static double seconds = 2;

static double clock_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(bool good, const char *what)
{
	if (!good) {
		fprintf(stderr, "fabric_speed: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* ---- one end of an RC connection ---- */

struct address {
	uint32_t qpn, rkey;
	uint64_t memory;
	union ibv_gid gid;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
	struct address own, peer;
};

static void end_open(struct end *end, const char *host)
{
	struct ibv_qp_init_attr init = {.cap = {256, 256, 1, 1, 64}, .qp_type = IBV_QPT_RC};
	struct ibv_device **list;

	setenv("SWITCHBACK_HOST", host, 1);
	list = ibv_get_device_list(NULL);
	check(list && list[0], "no device");
	end->context = ibv_open_device(list[0]);
	check(end->context, "open");
	ibv_free_device_list(list);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 1024, NULL, NULL, 0);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	check(posix_memalign((void **)&end->memory, 4096, MEMORY) == 0, "memory");
	memset(end->memory, 0, MEMORY);
	end->mr = ibv_reg_mr(end->pd, end->memory, MEMORY,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(end->qp && end->mr, "QP or MR");
	end->own.qpn = end->qp->qp_num;
	end->own.rkey = end->mr->rkey;
	end->own.memory = (uintptr_t)end->memory;
	ibv_query_gid(end->context, 1, 1, &end->own.gid);
}

static void end_connect(struct end *end, int fd)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	char ready;

	check(write(fd, &end->own, sizeof(end->own)) == sizeof(end->own), "exchange");
	check(read(fd, &end->peer, sizeof(end->peer)) == sizeof(end->peer), "exchange");
	check(ibv_modify_qp(end->qp, &attr, mask) == 0, "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = end->peer.qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = end->peer.gid, .sgid_index = 1, .hop_limit = 64}}};
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	check(ibv_modify_qp(end->qp, &attr, mask) == 0, "RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	       IBV_QP_MAX_QP_RD_ATOMIC;
	check(ibv_modify_qp(end->qp, &attr, mask) == 0, "RTS");
	/* Nobody sends before the other can receive. */
	check(write(fd, "r", 1) == 1 && read(fd, &ready, 1) == 1, "exchange");
}

static void post_write(struct end *end, size_t offset, uint32_t size, bool in_line)
{
	struct ibv_sge sge = {(uintptr_t)end->memory + offset, size, end->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
		      .num_sge = 1,
		      .opcode = IBV_WR_RDMA_WRITE,
		      .send_flags = IBV_SEND_SIGNALED | (in_line ? IBV_SEND_INLINE : 0)};

	wr.wr.rdma.remote_addr = end->peer.memory + offset;
	wr.wr.rdma.rkey = end->peer.rkey;
	check(ibv_post_send(end->qp, &wr, &bad) == 0, "post");
}

static uint64_t poll_some(struct end *end)
{
	struct ibv_wc wc[16];
	int count = ibv_poll_cq(end->cq, 16, wc);

	for (int i = 0; i < count; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "fabric_speed: completion: %s\n",
				ibv_wc_status_str(wc[i].status));
			exit(1);
		}
	}
	return (uint64_t)count;
}

/* Writes per second of one size, at most `depth` at a time. */
static double write_rate(struct end *end, uint32_t size, uint64_t depth)
{
	double start = clock_s();
	uint64_t done = 0, posted = 0;
	bool more = true;

	while (more || done < posted) {
		while (more && posted - done < depth) {
			post_write(end, posted % 8 * size, size, size <= 64);
			posted++;
		}
		done += poll_some(end);
		more = clock_s() - start < seconds;
	}
	return (double)done / (clock_s() - start);
}

/* Round trips of 8 bytes, written into each other's memory. Half of one, in µs. */
static double write_latency(struct end *end, bool first)
{
	uint64_t *box = (uint64_t *)(void *)end->memory;
	uint64_t posted = 0, done = 0;
	double start = clock_s();

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (first) {
			box[64] = i;
			post_write(end, 64 * 8, 8, true);
			posted++;
		}
		while (__atomic_load_n(&box[first ? 0 : 64], __ATOMIC_ACQUIRE) != i) {
			done += poll_some(end);
		}
		if (!first) {
			box[0] = i;
			post_write(end, 0, 8, true);
			posted++;
		}
	}
	start = clock_s() - start;
	while (done < posted) {
		done += poll_some(end);
	}
	return start / ROUNDS / 2 * 1e6;
}

/* The passive side of the writes: a receiver that polls, till the other is done. */
static void poll_until(struct end *end, struct pollfd *told)
{
	while (poll(told, 1, 0) == 0) {
		for (int i = 0; i < 64; i++) {
			poll_some(end);
		}
	}
}

static void peer_run(int fd)
{
	struct end end = {0};
	struct pollfd told = {.fd = fd, .events = POLLIN};
	char byte;

	end_open(&end, "1");
	end_connect(&end, fd);
	write_latency(&end, false);
	poll_until(&end, &told);
	check(read(fd, &byte, 1) == 1, "exchange");
	write_rate(&end, 1 << 20, 8);
	poll_until(&end, &told);
	exit(0);
}

/* ---- plain sockets ---- */

static void udp_receive(int fd, int result)
{
	static char bytes[65536];
	double start = clock_s(), gbit;
	uint64_t received = 0;

	while (clock_s() - start < seconds) {
		ssize_t got = recv(fd, bytes, sizeof(bytes), 0);

		received += got > 0 ? (uint64_t)got : 0;
	}
	gbit = (double)received * 8 / (clock_s() - start) / 1e9;
	check(write(result, &gbit, sizeof(gbit)) == sizeof(gbit), "pipe");
	exit(0);
}

/* Sends UDP as fast as it goes; a child counts what arrives. Gbit/s. */
static double udp_bandwidth(void)
{
	static char bytes[UDP_SEGMENT_BYTES * UDP_SEGMENTS];
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
	int one = 1, segment = UDP_SEGMENT_BYTES, buffer = 4 << 20, result[2];
	socklen_t length = sizeof(address);
	double gbit = 0, start;
	pid_t pid;

	setsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	check(bind(receiver, (struct sockaddr *)&address, length) == 0, "bind");
	getsockname(receiver, (struct sockaddr *)&address, &length);
	setsockopt(receiver, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	setsockopt(sender, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	check(connect(sender, (struct sockaddr *)&address, length) == 0, "connect");
	check(pipe(result) == 0, "pipe");
	pid = fork();
	if (pid == 0) {
		udp_receive(receiver, result[1]);
	}
	start = clock_s();
	while (clock_s() - start < seconds + 0.2) {
		if (send(sender, bytes, sizeof(bytes), 0) < 0) {
			sched_yield();
		}
	}
	check(read(result[0], &gbit, sizeof(gbit)) == sizeof(gbit), "pipe");
	waitpid(pid, NULL, 0);
	close(receiver);
	close(sender);
	return gbit;
}

/* A connected pair of TCP sockets over loopback. */
static void tcp_pair(int fds[2])
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	check(bind(listener, (struct sockaddr *)&address, length) == 0, "bind");
	check(listen(listener, 1) == 0, "listen");
	getsockname(listener, (struct sockaddr *)&address, &length);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fds[0], (struct sockaddr *)&address, length) == 0, "connect");
	fds[1] = accept(listener, NULL, NULL);
	close(listener);
	for (int i = 0; i < 2; i++) {
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
}

static double tcp_bandwidth(size_t size)
{
	static char bytes[1 << 20];
	uint64_t sent = 0;
	double start;
	int fds[2];
	pid_t pid;

	tcp_pair(fds);
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		while (recv(fds[1], bytes, size, 0) > 0) {
		}
		exit(0);
	}
	close(fds[1]);
	start = clock_s();
	while (clock_s() - start < seconds) {
		ssize_t got = send(fds[0], bytes, size, 0);

		sent += got > 0 ? (uint64_t)got : 0;
	}
	shutdown(fds[0], SHUT_WR);
	waitpid(pid, NULL, 0);
	close(fds[0]);
	return (double)sent * 8 / (clock_s() - start) / 1e9;
}

static uint64_t pump(int fd, char *bytes, size_t size)
{
	ssize_t sent = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	ssize_t got = recv(fd, bytes, size, MSG_DONTWAIT);

	if (sent <= 0 && got <= 0) {
		sched_yield();
	}
	return sent > 0 ? (uint64_t)sent : 0;
}

/* Both ends send and receive at once, each in one thread, as NCCL's proxy does. Gbit/s one way. */
static double tcp_both_ways(void)
{
	static char bytes[1 << 20];
	uint64_t sent = 0;
	double start = clock_s();
	int fds[2];
	pid_t pid;

	tcp_pair(fds);
	pid = fork();
	while (clock_s() - start < seconds) {
		sent += pump(fds[pid == 0], bytes, sizeof(bytes));
	}
	if (pid == 0) {
		exit(0);
	}
	waitpid(pid, NULL, 0);
	close(fds[0]);
	close(fds[1]);
	return (double)sent * 8 / seconds / 1e9;
}

static double tcp_latency(void)
{
	char box[8] = "";
	double start;
	int fds[2];
	pid_t pid;

	tcp_pair(fds);
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		while (recv(fds[1], box, 8, MSG_WAITALL) == 8 && send(fds[1], box, 8, 0) == 8) {
		}
		exit(0);
	}
	close(fds[1]);
	start = clock_s();
	for (int i = 0; i < ROUNDS; i++) {
		check(send(fds[0], box, 8, 0) == 8 && recv(fds[0], box, 8, MSG_WAITALL) == 8,
		      "tcp");
	}
	start = clock_s() - start;
	close(fds[0]);
	waitpid(pid, NULL, 0);
	return start / ROUNDS / 2 * 1e6;
}

static void row(const char *what, double value, const char *unit, double udp, double tcp)
{
	printf("%-24s %9.2f %-7s", what, value, unit);
	if (udp > 0) {
		printf("  %5.2f of UDP", value / udp);
	}
	if (tcp > 0) {
		printf("  %5.2f of TCP", value / tcp);
	}
	printf("\n");
	fflush(stdout);
}

static void rc_rows(const char *name, double udp, double tcp64, double tcp1024, double tcp_us,
		    double tcp_both)
{
	struct end end = {0};
	int fds[2];
	pid_t pid;

	setenv("SWITCHBACK_FABRIC", name, 1);
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		peer_run(fds[1]);
	}
	close(fds[1]);
	end_open(&end, "0");
	end_connect(&end, fds[0]);
	row("RC write 8 B one way", write_latency(&end, true), "us", 0, tcp_us);
	row("RC write 8 B", write_rate(&end, 8, 200) / 1e6, "M/s", 0, 0);
	row("RC write 64 KiB", write_rate(&end, 65536, 32) * 65536 * 8 / 1e9, "Gbit/s", udp, tcp64);
	row("RC write 1 MiB", write_rate(&end, 1 << 20, 8) * (1 << 20) * 8 / 1e9, "Gbit/s", udp,
	    tcp1024);
	check(write(fds[0], "b", 1) == 1, "peer");
	row("RC 1 MiB both ways", write_rate(&end, 1 << 20, 8) * (1 << 20) * 8 / 1e9, "Gbit/s", 0,
	    tcp_both);
	check(write(fds[0], "q", 1) == 1, "peer");
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	char name[FABRIC_NAME_SIZE], error[FABRIC_ERROR_SIZE];
	double udp, tcp64, tcp1024, tcp_both, tcp_us;

	if (argc > 1 && (seconds = atof(argv[1])) <= 0) {
		fprintf(stderr, "usage: fabric_speed [SECONDS]\n");
		return 2;
	}
	udp = udp_bandwidth();
	tcp64 = tcp_bandwidth(65536);
	tcp1024 = tcp_bandwidth(1 << 20);
	tcp_both = tcp_both_ways();
	tcp_us = tcp_latency();
	row("UDP GSO/GRO", udp, "Gbit/s", 0, 0);
	row("TCP 64 KiB", tcp64, "Gbit/s", udp, 0);
	row("TCP 1 MiB", tcp1024, "Gbit/s", udp, 0);
	row("TCP 1 MiB both ways", tcp_both, "Gbit/s", 0, 0);
	row("TCP 8 B one way", tcp_us, "us", 0, 0);
	snprintf(name, sizeof(name), "speed-%d", getpid());
	if (fabric_create(name, 2, 1, NULL, error)) {
		fprintf(stderr, "fabric_speed: %s\n", error);
		return 2;
	}
	rc_rows(name, udp, tcp64, tcp1024, tcp_us, tcp_both);
	fabric_destroy(name, error);
	return 0;
}
