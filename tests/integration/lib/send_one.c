/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program on the installed libswitchback: host 0 sends one message to host 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <switchback.h>

#define BYTES 1048576
#define TAG   7

static char data[BYTES];

static void check(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror(-result));
		exit(1);
	}
}

static struct sb_context *open_as(const char *host)
{
	struct sb_options options;
	struct sb_context *context;

	setenv("SWITCHBACK_HOST", host, 1);
	check(sb_options_init(&options), "options");
	check(sb_context_open(&options, &context), "open");
	return context;
}

static void finish(struct sb_request *request, size_t *bytes)
{
	for (int done = 0; !done;) {
		check(sb_test(request, &done, bytes), "test");
	}
}

static void close_all(struct sb_context *context, struct sb_connection *connection,
		      struct sb_memory *memory)
{
	check(sb_deregister(connection, memory), "deregister");
	check(sb_connection_close(connection), "close");
	sb_context_close(context);
}

static int receive(int peer)
{
	struct sb_context *context = open_as("1");
	struct sb_connection *connection = NULL;
	struct sb_request *request = NULL;
	struct sb_listener *listener;
	struct sb_memory *memory;
	char handle[SB_HANDLE_BYTES];
	void *buffer = data;
	size_t room = BYTES, got = 0;
	uint32_t tag = TAG;

	check(sb_listen(context, 0, handle, &listener), "listen");
	if (write(peer, handle, sizeof(handle)) != (ssize_t)sizeof(handle)) {
		return 1;
	}
	while (connection == NULL) {
		check(sb_accept(listener, &connection), "accept");
	}
	check(sb_register(connection, data, BYTES, SB_MEMORY_HOST, &memory), "register");
	while (request == NULL) {
		check(sb_recv(connection, 1, &buffer, &room, &tag, &memory, &request), "recv");
	}
	finish(request, &got);
	for (int i = 0; i < BYTES; i++) {
		if (data[i] != (char)(i * 7)) {
			fprintf(stderr, "byte %d is wrong\n", i);
			return 1;
		}
	}
	printf("received %zu bytes\n", got);
	close_all(context, connection, memory);
	check(sb_listener_close(listener), "close the listener");
	return 0;
}

static int send_to(int peer)
{
	struct sb_context *context = open_as("0");
	struct sb_connection *connection = NULL;
	struct sb_request *request = NULL;
	struct sb_pending *pending;
	struct sb_memory *memory;
	char handle[SB_HANDLE_BYTES];

	if (read(peer, handle, sizeof(handle)) != (ssize_t)sizeof(handle)) {
		return 1;
	}
	check(sb_connect(context, 0, handle, &pending), "connect");
	while (connection == NULL) {
		check(sb_connect_test(pending, &connection), "connect");
	}
	for (int i = 0; i < BYTES; i++) {
		data[i] = (char)(i * 7);
	}
	check(sb_register(connection, data, BYTES, SB_MEMORY_HOST, &memory), "register");
	while (request == NULL) {
		check(sb_send(connection, data, BYTES, TAG, memory, &request), "send");
	}
	finish(request, NULL);
	close_all(context, connection, memory);
	return 0;
}

int main(void)
{
	int pair[2], status, result;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
		return 1;
	}
	child = fork();
	if (child == 0) {
		close(pair[0]);
		return receive(pair[1]);
	}
	close(pair[1]);
	result = child > 0 ? send_to(pair[0]) : 1;
	if (child > 0 && waitpid(child, &status, 0) == child) {
		result |= status;
	}
	return result != 0;
}
