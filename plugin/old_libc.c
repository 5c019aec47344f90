/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What glibc 2.32 to 2.34 gave a new version, asked for by the old one, so that the plugin loads
 * into containers back to glibc 2.31 wherever it was built. The linker turns every call of NAME, in
 * all archives, into one of __wrap_NAME (plugin.cmake). For x86-64, whose oldest version is 2.2.5.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#define STAT_VERSION 1 /* struct stat of x86-64, for __xstat() */

#define OLD(result, name, version, ...)                                                            \
	__asm__(".symver old_" #name "," #name "@GLIBC_" version);                                 \
	result old_##name(__VA_ARGS__)
/* The same arguments: wrapped as it is. */
#define SAME(result, name, version, arguments, ...)                                                \
	OLD(result, name, version, __VA_ARGS__);                                                   \
	result __wrap_##name(__VA_ARGS__);                                                         \
	result __wrap_##name(__VA_ARGS__)                                                          \
	{                                                                                          \
		return old_##name arguments;                                                       \
	}

SAME(int, dlclose, "2.2.5", (library), void *library)
SAME(char *, dlerror, "2.2.5", (), void)
SAME(void *, dlopen, "2.2.5", (file, mode), const char *file, int mode)
SAME(void *, dlsym, "2.2.5", (library, name), void *library, const char *name)
SAME(void *, dlvsym, "2.2.5", (library, name, version), void *library, const char *name,
     const char *version)
SAME(int, pthread_create, "2.2.5", (thread, attributes, start, argument), pthread_t *thread,
     const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
SAME(int, pthread_join, "2.2.5", (thread, result), pthread_t thread, void **result)
SAME(int, pthread_once, "2.2.5", (once, routine), pthread_once_t *once, void (*routine)(void))
SAME(int, pthread_setname_np, "2.12", (thread, name), pthread_t thread, const char *name)
SAME(int, pthread_sigmask, "2.2.5", (how, set, before), int how, const sigset_t *set,
     sigset_t *before)

/* These two were no functions of the library before 2.33. */
OLD(int, __xstat, "2.2.5", int version, const char *path, struct stat *status);
OLD(int, __fxstat, "2.2.5", int version, int fd, struct stat *status);
int __wrap_stat(const char *path, struct stat *status);
int __wrap_fstat(int fd, struct stat *status);

int __wrap_stat(const char *path, struct stat *status)
{
	return old___xstat(STAT_VERSION, path, status);
}

int __wrap_fstat(int fd, struct stat *status)
{
	return old___fxstat(STAT_VERSION, fd, status);
}
