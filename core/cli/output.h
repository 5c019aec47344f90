/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A result file. It appears under its name complete or not at all: written to a temporary file
 * beside it, which takes the name at the end. What is no regular file (a pipe) is written to
 * directly, and so is what standard output goes to (/dev/stdout), a file or not.
 */
#ifndef SB_CLI_OUTPUT_H
#define SB_CLI_OUTPUT_H

struct output {
	const char *path;
	char *temporary; /* NULL: written directly */
	int fd;
};

/* Opens it and tries a first write, so that an unwritable place or a full disk shows before the
 * work is done. -errno, after one line on standard error that begins with `who`. */
int output_open(struct output *output, const char *path, const char *who);
/* `result` of writing: if it is 0, makes the file visible, else removes it. Returns 0 or -errno
 * after one line on standard error. */
int output_close(struct output *output, int result, const char *who);

#endif
