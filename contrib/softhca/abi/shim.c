// SPDX-License-Identifier: BSD-3-Clause
//
// The shim: makes /dev/infiniband/uverbsN look present to programs that stat() or access() it before they ask
// libibverbs (UCX does).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int is_device(const char* path) {
  static const char prefix[] = "/dev/infiniband/uverbs";
  return path != NULL && strncmp(path, prefix, sizeof(prefix) - 1) == 0;
}

static void fill(const char* path, struct stat* info) {
  memset(info, 0, sizeof(*info));
  info->st_mode = S_IFCHR | 0666;
  info->st_nlink = 1;
  info->st_rdev = makedev(231, 192 + (unsigned)atoi(path + strlen("/dev/infiniband/uverbs")));
}

EXPORT int stat(const char* path, struct stat* info) {
  static int (*real)(const char*, struct stat*);
  if (is_device(path)) {
    fill(path, info);
    return 0;
  }
  if (real == NULL) real = (int (*)(const char*, struct stat*))dlsym(RTLD_NEXT, "stat");
  return real(path, info);
}

EXPORT int stat64(const char* path, struct stat64* info) {
  static int (*real)(const char*, struct stat64*);
  if (is_device(path)) {
    fill(path, (struct stat*)info);
    return 0;
  }
  if (real == NULL) real = (int (*)(const char*, struct stat64*))dlsym(RTLD_NEXT, "stat64");
  return real(path, info);
}

EXPORT int __xstat(int version, const char* path, struct stat* info) {
  static int (*real)(int, const char*, struct stat*);
  if (is_device(path)) {
    fill(path, info);
    return 0;
  }
  if (real == NULL) real = (int (*)(int, const char*, struct stat*))dlsym(RTLD_NEXT, "__xstat");
  if (real == NULL) {
    errno = ENOSYS;
    return -1;
  }
  return real(version, path, info);
}

EXPORT int access(const char* path, int mode) {
  static int (*real)(const char*, int);
  if (is_device(path)) return 0;
  if (real == NULL) real = (int (*)(const char*, int))dlsym(RTLD_NEXT, "access");
  return real(path, mode);
}
