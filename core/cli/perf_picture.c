/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidth over time: as characters, and through gnuplot. */
#include "perf_result.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/clock.h"

#define WIDTH  72
#define HEIGHT 5

static double seconds(const struct perf_result *result)
{
	return (double)(result->end_ns - result->start_ns) / 1e9;
}

/* Mean of a rail over a column of the picture. */
static double column_mean(const struct perf_result *result, int rail, int column)
{
	size_t from = result->steps * (size_t)column / WIDTH;
	size_t to = result->steps * (size_t)(column + 1) / WIDTH;
	double sum = 0;

	to = to > from ? to : from + 1;
	for (size_t i = from; i < to && i < result->steps; i++) {
		sum += result->gbit[i * (size_t)result->rails + (size_t)rail];
	}
	return sum / (double)(to - from);
}

static void print_rail(const double *columns, int rail, double top)
{
	for (int row = HEIGHT; row > 0; row--) {
		printf("%8.2f |", top * row / HEIGHT);
		for (int i = 0; i < WIDTH; i++) {
			double level = columns[i] / top * HEIGHT;

			putchar(level >= row - 0.25 ? '#' : level >= row - 0.75 ? '.' : ' ');
		}
		putchar('\n');
	}
	printf("   rail%-2d +", rail);
	for (int i = 0; i < WIDTH; i++) {
		putchar('-');
	}
	putchar('\n');
}

static void print_faults(const struct perf_shared *shared, const struct perf_result *result)
{
	const struct perf_options *options = shared->options;
	char line[WIDTH + 1];

	memset(line, ' ', WIDTH);
	line[WIDTH] = '\0';
	for (int i = 0; i < options->fault_count; i++) {
		const struct perf_fault *fault = &options->faults[i];
		int column = (int)(perf_ms(result, fault->done_ns) / 1e3 / seconds(result) * WIDTH);

		if (fault->done_ns != 0 && column >= 0 && column < WIDTH) {
			line[column] = fault->restore ? 'R' : 'X';
		}
	}
	if (options->fault_count > 0) {
		printf("%8s  %s\n", "", line);
	}
	printf("%8s 0 s%*.1f s\n", "", WIDTH - 3, seconds(result));
	if (options->fault_count > 0) {
		printf("%8s X cut, R restore\n", "");
	}
}

void perf_picture_print(const struct perf_shared *shared, const struct perf_result *result)
{
	double columns[WIDTH];
	double top = 0;

	if (result->steps < 10) {
		return;
	}
	for (int rail = 0; rail < result->rails; rail++) {
		for (int i = 0; i < WIDTH; i++) {
			double value = column_mean(result, rail, i);

			top = value > top ? value : top;
		}
	}
	if (top <= 0) {
		return;
	}
	printf("\nGbit/s over time\n");
	for (int rail = 0; rail < result->rails; rail++) {
		for (int i = 0; i < WIDTH; i++) {
			columns[i] = column_mean(result, rail, i);
		}
		print_rail(columns, rail, top);
	}
	print_faults(shared, result);
}

/* ---- gnuplot ---- */

bool perf_plot_possible(void)
{
	const char *path = getenv("PATH");
	char *copy = strdup(path != NULL ? path : "/usr/bin:/bin");
	char *rest = copy;
	char *folder;
	bool found = false;

	while (copy != NULL && !found && (folder = strsep(&rest, ":")) != NULL) {
		char *name;

		if (asprintf(&name, "%s/gnuplot", folder) >= 0) {
			found = access(name, X_OK) == 0;
			free(name);
		}
	}
	free(copy);
	return found;
}

static void write_marks(FILE *script, const struct perf_shared *shared,
			const struct perf_result *result)
{
	for (int i = 0; i < shared->options->fault_count; i++) {
		const struct perf_fault *fault = &shared->options->faults[i];

		if (fault->done_ns != 0) {
			double t = perf_ms(result, fault->done_ns) / 1e3;
			const char *color = fault->restore ? "#2a9d2a" : "#cc2222";

			fprintf(script,
				"set arrow from %f, graph 0 to %f, graph 1 nohead dashtype 2 "
				"linecolor rgb '%s'\n",
				t, t, color);
		}
	}
}

static void write_script(FILE *script, const struct perf_shared *shared,
			 const struct perf_result *result, const char *type)
{
	fprintf(script, "set terminal %s size 1000,480\n",
		strcmp(type, "png") == 0 ? "pngcairo" : "svg");
	fprintf(script, "set title '%s, %d ranks on %d hosts' noenhanced\n",
		perf_op_names[shared->options->op], shared->options->ranks, shared->options->hosts);
	fprintf(script, "set xlabel 'seconds (dashed: red cut, green restore)'\n"
			"set ylabel 'Gbit/s'\nset yrange [0:*]\nset grid\nset key outside right\n");
	write_marks(script, shared, result);
	fprintf(script, "plot ");
	for (int rail = 0; rail < result->rails; rail++) {
		fprintf(script, "%s'-' using 1:2 with lines linewidth 1.5 title 'rail%d'",
			rail == 0 ? "" : ", ", rail);
	}
	fprintf(script, "\n");
	for (int rail = 0; rail < result->rails; rail++) {
		for (size_t i = 0; i < result->steps; i++) {
			fprintf(script, "%f %f\n", (double)i * SB_TIMELINE_STEP_MS / 1e3,
				result->gbit[i * (size_t)result->rails + (size_t)rail]);
		}
		fprintf(script, "e\n");
	}
}

int perf_plot_write(const struct perf_shared *shared, const struct perf_result *result,
		    const char *type, int fd)
{
	int pipe_fds[2];
	int status = -1;
	FILE *script;
	pid_t child;

	if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
		return -errno;
	}
	child = fork();
	if (child < 0) {
		int error = errno;

		close(pipe_fds[0]);
		close(pipe_fds[1]);
		return -error;
	}
	if (child == 0) {
		dup2(pipe_fds[0], STDIN_FILENO);
		dup2(fd, STDOUT_FILENO);
		execlp("gnuplot", "gnuplot", "-", (char *)NULL);
		_exit(127);
	}
	close(pipe_fds[0]);
	signal(SIGPIPE, SIG_IGN); /* gnuplot may give up */
	script = fdopen(pipe_fds[1], "w");
	if (script != NULL) {
		write_script(script, shared, result, type);
		fclose(script);
	} else {
		close(pipe_fds[1]);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}
