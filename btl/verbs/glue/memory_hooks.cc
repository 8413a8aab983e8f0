// SPDX-License-Identifier: BSD-3-Clause
//
// memory_hooks.cc: see memory_hooks.h.
#include "btl/verbs/glue/memory_hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "common/compat/ompi_includes.h"

namespace bfo::verbs {
namespace {

constexpr size_t kBytes = 2 * 4096;

/// Pages that a test gives away. Other threads give memory away at the same time, so only these count.
struct Watched {
  std::atomic<uintptr_t> begin;
  std::atomic<bool> told;
};
Watched watched;
std::mutex one_test;

/// Registered once and never removed: the list of hooks is walked without a lock by whoever unmaps memory.
void released(void* base, size_t size, void*, bool) {
  const uintptr_t mine = watched.begin.load(std::memory_order_relaxed);
  const auto begin = reinterpret_cast<uintptr_t>(base);
  if (mine != 0 && begin < mine + kBytes && mine < begin + size)
    watched.told.store(true, std::memory_order_relaxed);
}

/// Fresh pages, mapped by the kernel and by nobody's function.
void* map_pages() {
  const long at =
      syscall(SYS_mmap, nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == -1 ? nullptr : reinterpret_cast<void*>(at);
}
void unmap_pages(void* at, size_t size) {
  syscall(SYS_munmap, at, size);
}

using Unmap = int (*)(void*, size_t);
using Remap = void* (*)(void*, size_t, size_t, int, ...);
using Map = void* (*)(void*, size_t, int, int, int, off_t);
using Advise = int (*)(void*, size_t, int);

// Each changes what is behind `pages` by `function` and leaves nothing mapped.
void by_munmap(void* function, void* pages) {
  if (reinterpret_cast<Unmap>(function)(pages, kBytes) != 0) unmap_pages(pages, kBytes);
}
void by_mremap(void* function, void* pages) {
  void* const elsewhere = map_pages();
  void* moved = MAP_FAILED;
  if (elsewhere != nullptr)
    moved =
        reinterpret_cast<Remap>(function)(pages, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere);
  if (moved == MAP_FAILED) unmap_pages(pages, kBytes);
  if (elsewhere != nullptr) unmap_pages(elsewhere, kBytes);
}
void by_mmap(void* function, void* pages) {
  reinterpret_cast<Map>(function)(pages, kBytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  unmap_pages(pages, kBytes);
}
void by_madvise(void* function, void* pages) {
  reinterpret_cast<Advise>(function)(pages, kBytes, MADV_DONTNEED);
  unmap_pages(pages, kBytes);
}

struct Way {
  const char* function;
  void (*change)(void* function, void* pages);
};
constexpr Way kWays[] = {
    {"munmap", by_munmap}, {"mremap", by_mremap}, {"mmap", by_mmap}, {"madvise", by_madvise}};

/// Is the hook called when `function` changes a mapping? True, too, when no page can be had to try it.
bool noticed(const Way& way, void* function) {
  void* const pages = map_pages();
  if (pages == nullptr) return true;
  watched.told = false;
  watched.begin = reinterpret_cast<uintptr_t>(pages);
  way.change(function, pages);
  watched.begin = 0;
  return watched.told;
}

int add_name(dl_phdr_info* info, size_t, void* names) {
  static_cast<std::vector<std::string>*>(names)->push_back(info->dlpi_name != nullptr ? info->dlpi_name : "");
  return 0;
}

/// The functions that loaded libraries call by the names in kWays, each once.
using Versions = std::vector<void*>[std::size(kWays)];

void find_versions(Versions& found) {
  std::vector<std::string> names;
  dl_iterate_phdr(add_name, &names);
  for (const std::string& name : names) {
    void* const library = dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;  // the kernel's
    for (size_t i = 0; i < std::size(kWays); ++i) {
      void* const at = dlsym(library, kWays[i].function);
      if (at != nullptr && std::find(found[i].begin(), found[i].end(), at) == found[i].end())
        found[i].push_back(at);
    }
    dlclose(library);
  }
}

BlindSpot spot(const char* function, void* at) {
  BlindSpot blind{function, "an unknown library"};
  Dl_info info;
  if (dladdr(at, &info) != 0 && info.dli_fname != nullptr)
    snprintf(blind.library, sizeof blind.library, "%s", info.dli_fname);
  return blind;
}

int loaded_so_far(dl_phdr_info* info, size_t, void* count) {
  *static_cast<uint64_t*>(count) = info->dlpi_adds;
  return 1;  // the number is the same in each entry
}

}  // namespace

BlindSpot find_blind_spot() {
  const std::lock_guard<std::mutex> lock(one_test);
  static bool registered = false;
  if (!std::exchange(registered, true)) opal_mem_hooks_register_release(released, nullptr);
  Versions versions;
  find_versions(versions);
  for (size_t i = 0; i < std::size(kWays); ++i) {
    for (void* const at : versions[i]) {
      if (!noticed(kWays[i], at)) return spot(kWays[i].function, at);
    }
  }
  return BlindSpot{nullptr, ""};
}

uint64_t libraries_loaded() {
  uint64_t count = 0;
  dl_iterate_phdr(loaded_so_far, &count);
  return count;
}

}  // namespace bfo::verbs
