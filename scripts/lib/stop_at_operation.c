// A library to preload into a program: counts the program's operations on files, and stops it at a chosen operation.
// fault_campaign.py builds it.
//
//   STOP_COUNT=FILE     at the end, writes the number of operations into FILE
//   STOP_AT=N           raises STOP_SIGNAL (default 9) before operation N; if that is a write, after half of it
//   STOP_NO_EXCHANGE=1  the file system cannot swap two names (like NFS)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long operations;

static long number(const char* name) {
  const char* text = getenv(name);
  return text == NULL ? 0 : atol(text);
}

// True when this operation is the one to stop at.
static int strikes(void) { return atomic_fetch_add(&operations, 1) + 1 == number("STOP_AT"); }

static void stop(void) { raise(getenv("STOP_SIGNAL") == NULL ? SIGKILL : (int)number("STOP_SIGNAL")); }

static void count(void) {
  if (strikes()) stop();
}

static int is_regular(int file) {
  struct stat status;
  return fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

static int is_written(const char* path, int flags) {
  const int system =
      strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0;
  return (flags & (O_CREAT | O_TRUNC)) != 0 && !system;
}

__attribute__((destructor)) static void report(void) {
  const char* path = getenv("STOP_COUNT");
  if (path == NULL) return;
  char text[32];
  const int length = snprintf(text, sizeof(text), "%ld\n", (long)operations);
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file >= 0 && syscall(SYS_write, file, text, length) == length) syscall(SYS_close, file);
}

#define NEXT(result, name, ...)       \
  static result (*next)(__VA_ARGS__); \
  if (next == NULL) next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define OPEN(name)                                                        \
  int name(const char* path, int flags, ...) {                            \
    NEXT(int, #name, const char*, int, ...);                              \
    va_list more;                                                         \
    va_start(more, flags);                                                \
    const unsigned mode = (flags & O_CREAT) ? va_arg(more, unsigned) : 0; \
    va_end(more);                                                         \
    if (is_written(path, flags)) count();                                 \
    return next(path, flags, mode);                                       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                      \
  int name(int folder, const char* path, int flags, ...) {                \
    NEXT(int, #name, int, const char*, int, ...);                         \
    va_list more;                                                         \
    va_start(more, flags);                                                \
    const unsigned mode = (flags & O_CREAT) ? va_arg(more, unsigned) : 0; \
    va_end(more);                                                         \
    if (is_written(path, flags)) count();                                 \
    return next(folder, path, flags, mode);                               \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                           \
  FILE* name(const char* path, const char* mode) {            \
    NEXT(FILE*, #name, const char*, const char*);             \
    if (mode[0] != 'r' && is_written(path, O_CREAT)) count(); \
    return next(path, mode);                                  \
  }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int file, const void* bytes, size_t size) {
  NEXT(ssize_t, "write", int, const void*, size_t);
  if (is_regular(file) && strikes()) {
    const ssize_t half = next(file, bytes, size / 2);
    stop();
    return half;  // the signal was caught: a short write, which the kernel may also do
  }
  return next(file, bytes, size);
}

ssize_t writev(int file, const struct iovec* parts, int many) {
  NEXT(ssize_t, "writev", int, const struct iovec*, int);
  if (is_regular(file) && strikes()) {
    const ssize_t some = next(file, parts, 1);
    stop();
    return some;
  }
  return next(file, parts, many);
}

#define COUNTED(name, parameters, types, arguments)                 \
  int name parameters {                                             \
    static int(*next) types;                                        \
    if (next == NULL) next = (int(*) types)dlsym(RTLD_NEXT, #name); \
    count();                                                        \
    return next arguments;                                          \
  }
COUNTED(fsync, (int file), (int), (file))
COUNTED(fdatasync, (int file), (int), (file))
COUNTED(ftruncate, (int file, off_t size), (int, off_t), (file, size))
COUNTED(mkdir, (const char* path, mode_t mode), (const char*, mode_t), (path, mode))
COUNTED(rmdir, (const char* path), (const char*), (path))
COUNTED(unlink, (const char* path), (const char*), (path))
COUNTED(remove, (const char* path), (const char*), (path))
COUNTED(unlinkat, (int folder, const char* path, int flags), (int, const char*, int), (folder, path, flags))
COUNTED(symlink, (const char* target, const char* path), (const char*, const char*), (target, path))
COUNTED(rename, (const char* from, const char* to), (const char*, const char*), (from, to))

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  NEXT(int, "renameat2", int, const char*, int, const char*, unsigned);
  count();
  if (getenv("STOP_NO_EXCHANGE") != NULL) {
    errno = EINVAL;
    return -1;
  }
  return next(from_folder, from, to_folder, to, flags);
}
