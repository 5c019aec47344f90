/* SPDX-License-Identifier: Apache-2.0 */
/* A process with an open device forks: the child has nothing of it, and may open its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "fabric.h"
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	ibv_free_device_list(list);
	return context;
}

/* What the child finds; an exit status. */
static int child(struct ibv_context *inherited, struct fabric *fabric)
{
	struct fabric_process_status processes[4];
	struct ibv_device_attr attr;
	struct ibv_context *own;

	if (ibv_query_device(inherited, &attr) != EIO || ibv_alloc_pd(inherited)) {
		return 1;
	}
	if (ibv_close_device(inherited)) {
		return 2;
	}
	own = open_first();
	if (!own || ibv_query_device(own, &attr)) {
		return 3;
	}
	if (fabric_processes(fabric, processes, 4) != 2) {
		return 4;
	}
	ibv_close_device(own);
	return 0;
}

static void test_child_has_its_own(void **state)
{
	struct fabric_port_status port;
	char name[FABRIC_NAME_SIZE], error[FABRIC_ERROR_SIZE];
	struct ibv_context *context;
	struct ibv_device_attr attr;
	struct fabric *fabric;
	int status;
	pid_t pid;

	(void)state;
	snprintf(name, sizeof(name), "fork-%d", getpid());
	assert_int_equal(fabric_create(name, 1, 1, NULL, error), 0);
	assert_int_equal(fabric_open(name, &fabric, error), 0);
	setenv("SWITCHBACK_FABRIC", name, 1);
	setenv("SWITCHBACK_HOST", "0", 1);
	context = open_first();
	assert_non_null(context);
	pid = fork();
	if (pid == 0) {
		_exit(child(context, fabric));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	/* The child's coming and going left the parent's device alone. */
	assert_int_equal(ibv_query_device(context, &attr), 0);
	assert_int_equal(fabric_port_status(fabric, 0, 0, &port), 0);
	assert_int_equal(port.processes, 1);
	assert_int_equal(ibv_close_device(context), 0);
	fabric_close(fabric);
	assert_int_equal(fabric_destroy(name, error), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_has_its_own),
	};

#ifdef __SANITIZE_ADDRESS__
	puts("skipped: ASan's allocator can't be used in the child of a program with threads");
	return 77;
#endif
#ifdef __SANITIZE_THREAD__
	puts("skipped: ThreadSanitizer refuses threads in the child of a program with threads");
	return 77;
#endif
	return cmocka_run_group_tests(tests, NULL, NULL);
}
