/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of the simulated device over UDP against plain UDP with GSO/GRO and TCP, all over loopback
 * between two processes, in one run, so that the ratios mean something on a disturbed machine. All
 * send from, and receive into, memory of eight messages: caches help none more than the others.
 * usage: fabric_speed [SECONDS per figure, default 2]
 */
#include "fabric.h"
#include "rc_end.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define UDP_SEGMENT_BYTES 4096
#define UDP_SEGMENTS      15
#define UDP_MESSAGE       (UDP_SEGMENT_BYTES * UDP_SEGMENTS)
#define ROUNDS            20000

static double seconds = 2;

/* Meets the other process over a socket. */
static void meet(struct end *end, int fd)
{
	char ready;

	check(write(fd, &end->own, sizeof(end->own)) == sizeof(end->own), "exchange");
	check(read(fd, &end->peer, sizeof(end->peer)) == sizeof(end->peer), "exchange");
	end_connect(end);
	/* Nobody sends before the other can receive. */
	check(write(fd, "r", 1) == 1 && read(fd, &ready, 1) == 1, "exchange");
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
	meet(&end, fd);
	write_latency(&end, false);
	poll_until(&end, &told);
	check(read(fd, &byte, 1) == 1, "exchange");
	write_rate(&end, 1 << 20, 8);
	poll_until(&end, &told);
	exit(0);
}

/* ---- plain sockets ---- */

/* Memory of 8 messages, as the writes of the device use it: what is sent and received by turns. */
static char *area_new(size_t size)
{
	char *area = calloc(8, size);

	check(area, "memory");
	memset(area, 1, 8 * size);
	return area;
}

/* The next place for `length` bytes in an area. */
static char *area_next(char *area, size_t size, size_t length, size_t *at)
{
	char *place;

	*at = *at + length > 8 * size ? 0 : *at;
	place = area + *at;
	*at += length;
	return place;
}

static void udp_receive(int fd, size_t size, int result)
{
	char *area = area_new(size);
	double start = clock_s(), gbit;
	uint64_t received = 0;
	size_t at = 0;

	while (clock_s() - start < seconds) {
		ssize_t got = recv(fd, area_next(area, size, UDP_MESSAGE, &at), UDP_MESSAGE, 0);

		received += got > 0 ? (uint64_t)got : 0;
	}
	gbit = (double)received * 8 / (clock_s() - start) / 1e9;
	check(write(result, &gbit, sizeof(gbit)) == sizeof(gbit), "pipe");
	exit(0);
}

/* Sends UDP as fast as it goes; a child counts what arrives. Gbit/s. */
static double udp_bandwidth(size_t size)
{
	char *area = area_new(size);
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
	int one = 1, segment = UDP_SEGMENT_BYTES, buffer = 4 << 20, result[2];
	struct timeval patience = {.tv_usec = 10000};
	socklen_t length = sizeof(address);
	double gbit = 0, start;
	size_t at = 0;
	pid_t pid;

	/* The sender may be done before a late receiver is. */
	setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	check(bind(receiver, (struct sockaddr *)&address, length) == 0, "bind");
	getsockname(receiver, (struct sockaddr *)&address, &length);
	setsockopt(receiver, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	setsockopt(sender, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	check(connect(sender, (struct sockaddr *)&address, length) == 0, "connect");
	check(pipe(result) == 0, "pipe");
	pid = fork();
	if (pid == 0) {
		udp_receive(receiver, size, result[1]);
	}
	start = clock_s();
	while (clock_s() - start < seconds + 0.2) {
		if (send(sender, area_next(area, size, UDP_MESSAGE, &at), UDP_MESSAGE, 0) < 0) {
			sched_yield();
		}
	}
	check(read(result[0], &gbit, sizeof(gbit)) == sizeof(gbit), "pipe");
	waitpid(pid, NULL, 0);
	close(receiver);
	close(sender);
	free(area);
	return gbit;
}

/* A connected pair of UDP sockets over loopback. */
static void udp_pair(int fds[2])
{
	struct sockaddr_in addresses[2];
	socklen_t length = sizeof(addresses[0]);

	for (int i = 0; i < 2; i++) {
		struct sockaddr_in any = {.sin_family = AF_INET,
					  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};

		fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
		check(bind(fds[i], (struct sockaddr *)&any, length) == 0, "bind");
		getsockname(fds[i], (struct sockaddr *)&addresses[i], &length);
	}
	for (int i = 0; i < 2; i++) {
		check(connect(fds[i], (struct sockaddr *)&addresses[1 - i], length) == 0,
		      "connect");
	}
}

static double udp_latency(void)
{
	char box[8] = "";
	double start;
	int fds[2];
	pid_t pid;

	udp_pair(fds);
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < ROUNDS; i++) {
			check(recv(fds[1], box, 8, 0) == 8 && send(fds[1], box, 8, 0) == 8, "udp");
		}
		exit(0);
	}
	start = clock_s();
	for (int i = 0; i < ROUNDS; i++) {
		check(send(fds[0], box, 8, 0) == 8 && recv(fds[0], box, 8, 0) == 8, "udp");
	}
	start = clock_s() - start;
	waitpid(pid, NULL, 0);
	close(fds[0]);
	close(fds[1]);
	return start / ROUNDS / 2 * 1e6;
}

static volatile sig_atomic_t enough;

static void had_enough(int signal)
{
	(void)signal;
	enough = 1;
}

/* Datagrams of 8 bytes per second that arrive: one call each, or 64 by segmentation. */
static double udp_rate(bool segmented)
{
	char bytes[64 * 8] = "";
	struct timeval patience = {.tv_usec = 10000};
	int one = 1, segment = 8, fds[2], result[2];
	double rate = 0, start;
	pid_t pid;

	udp_pair(fds);
	setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	check(pipe(result) == 0, "pipe");
	if (segmented) {
		setsockopt(fds[1], IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
		setsockopt(fds[0], IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	}
	pid = fork();
	if (pid == 0) {
		uint64_t received = 0;

		signal(SIGTERM, had_enough);
		start = clock_s();
		while (!enough) {
			ssize_t got = recv(fds[1], bytes, sizeof(bytes), 0);

			received += got > 0 ? (uint64_t)got / 8 : 0;
		}
		rate = (double)received / (clock_s() - start);
		check(write(result[1], &rate, sizeof(rate)) == sizeof(rate), "pipe");
		exit(0);
	}
	start = clock_s();
	while (clock_s() - start < seconds) {
		if (send(fds[0], bytes, segmented ? sizeof(bytes) : 8, 0) < 0) {
			sched_yield();
		}
	}
	kill(pid, SIGTERM);
	check(read(result[0], &rate, sizeof(rate)) == sizeof(rate), "pipe");
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(fds[i]);
		close(result[i]);
	}
	return rate / 1e6;
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
	char *area = area_new(size);
	uint64_t sent = 0;
	size_t at = 0;
	double start;
	int fds[2];
	pid_t pid;

	tcp_pair(fds);
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		while (recv(fds[1], area_next(area, size, size, &at), size, 0) > 0) {
		}
		exit(0);
	}
	close(fds[1]);
	start = clock_s();
	while (clock_s() - start < seconds) {
		ssize_t got = send(fds[0], area_next(area, size, size, &at), size, 0);

		sent += got > 0 ? (uint64_t)got : 0;
	}
	shutdown(fds[0], SHUT_WR);
	waitpid(pid, NULL, 0);
	close(fds[0]);
	free(area);
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

/* What the others do. */
struct others {
	double udp64, udp1024, udp_us, udp_rate, udp_gso_rate, tcp64, tcp1024, tcp_both, tcp_us;
};

static void others_measure(struct others *others)
{
	others->udp64 = udp_bandwidth(65536);
	others->udp1024 = udp_bandwidth(1 << 20);
	others->udp_us = udp_latency();
	others->udp_rate = udp_rate(false);
	others->udp_gso_rate = udp_rate(true);
	others->tcp64 = tcp_bandwidth(65536);
	others->tcp1024 = tcp_bandwidth(1 << 20);
	others->tcp_both = tcp_both_ways();
	others->tcp_us = tcp_latency();
	row("UDP GSO/GRO, 64 KiB", others->udp64, "Gbit/s", 0, 0);
	row("UDP GSO/GRO, 1 MiB", others->udp1024, "Gbit/s", 0, 0);
	row("UDP 8 B one way", others->udp_us, "us", 0, 0);
	row("UDP 8 B", others->udp_rate, "M/s", 0, 0);
	row("UDP 8 B, GSO/GRO", others->udp_gso_rate, "M/s", 0, 0);
	row("TCP 64 KiB", others->tcp64, "Gbit/s", others->udp64, 0);
	row("TCP 1 MiB", others->tcp1024, "Gbit/s", others->udp1024, 0);
	row("TCP 1 MiB both ways", others->tcp_both, "Gbit/s", 0, 0);
	row("TCP 8 B one way", others->tcp_us, "us", others->udp_us, 0);
}

static void rc_rows(const char *name, const struct others *others)
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
	meet(&end, fds[0]);
	row("RC write 8 B one way", write_latency(&end, true), "us", others->udp_us,
	    others->tcp_us);
	row("RC write 8 B", write_rate(&end, 8, 200) / 1e6, "M/s", others->udp_rate, 0);
	row("RC write 64 KiB", write_rate(&end, 65536, 32) * 65536 * 8 / 1e9, "Gbit/s",
	    others->udp64, others->tcp64);
	row("RC write 1 MiB", write_rate(&end, 1 << 20, 8) * (1 << 20) * 8 / 1e9, "Gbit/s",
	    others->udp1024, others->tcp1024);
	check(write(fds[0], "b", 1) == 1, "peer");
	row("RC 1 MiB both ways", write_rate(&end, 1 << 20, 8) * (1 << 20) * 8 / 1e9, "Gbit/s", 0,
	    others->tcp_both);
	check(write(fds[0], "q", 1) == 1, "peer");
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	char name[FABRIC_NAME_SIZE], error[FABRIC_ERROR_SIZE];
	struct others others;

	if (argc > 1 && (seconds = atof(argv[1])) <= 0) {
		fprintf(stderr, "usage: fabric_speed [SECONDS]\n");
		return 2;
	}
	others_measure(&others);
	snprintf(name, sizeof(name), "speed-%d", getpid());
	if (fabric_create(name, 2, 1, NULL, error)) {
		fprintf(stderr, "fabric_speed: %s\n", error);
		return 2;
	}
	rc_rows(name, &others);
	fabric_destroy(name, error);
	return 0;
}
