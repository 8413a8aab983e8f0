// SPDX-License-Identifier: BSD-3-Clause
//
// built_for.cc: see built_for.h. It reads nothing of Open MPI but a text, because it is asked before anything
// of it is known to have the layout that this component was compiled with.
#include "common/built_for.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/decimal.h"
#include "common/version.h"

namespace bfo {
namespace {

// A job may end for want of the component, with its first process that gets so far: not before the reason was
// told.
constexpr unsigned kOthersWaitSeconds = 2;

bool same_minor_release(const char* a, const char* b) {
  return version_part(a, 0) == version_part(b, 0) && version_part(a, 1) == version_part(b, 1);
}

// mpirun tells each process its number on the host. One that was started without it speaks for itself.
bool first_on_host() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  return rank == nullptr || std::strcmp(rank, "0") == 0;
}

}  // namespace

std::string misfit(const char* component, const char* built, const char* running,
                   std::span<const ClassSize> classes) {
  const std::string is = running != nullptr ? running : "of a version that it does not tell";
  const std::string text = std::string("bfo: the ") + component + " is not used: it was built for Open MPI " +
                           built + ", and this one is " + is;
  const std::string remedy = ": build it for the Open MPI that runs (configure --with-openmpi=PREFIX)\n";
  if (running == nullptr || !same_minor_release(built, running)) return text + remedy;
  for (const ClassSize& c : classes) {
    if (c.built == c.running) continue;
    return text + ", configured in another way: its " + c.name + " has " + decimal(c.running) +
           " bytes instead of " + decimal(c.built) + remedy;
  }
  return "";
}

const char* running_release() {
  return static_cast<const char*>(dlsym(RTLD_DEFAULT, "opal_version_string"));
}

bool fits_running(const char* component, const char* built, std::span<const ClassSize> classes) {
  const std::string why = misfit(component, built, running_release(), classes);
  if (why.empty()) return true;
  if (first_on_host()) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, why.data(), why.size());
  } else {
    sleep(kOthersWaitSeconds);
  }
  return false;
}

}  // namespace bfo
