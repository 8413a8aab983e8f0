// SPDX-License-Identifier: BSD-3-Clause
//
// built_for.h: is the Open MPI that loads a component the one that it was compiled for? Its loader compares
// no such version, and a component that is loaded into another release reads structs of another layout.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace bfo {

/// The size of the objects of a class, here and in the Open MPI that runs. Builds of one release differ in
/// it, too: those with CUDA, or with internal checks.
struct ClassSize {
  const char* name;
  size_t built;
  size_t running;
};

/// Why `component`, built for the release `built`, cannot work in the release `running` (nullptr: it does not
/// say), in one line with its newline. Empty: it can. Point releases of one minor release work with each
/// other unless a class differs.
std::string misfit(const char* component, const char* built, const char* running,
                   std::span<const ClassSize> classes);

/// The release that runs, such as "4.1.4". nullptr: its library does not say.
const char* running_release();

/// misfit() with what runs; what it says goes to standard error, by one process of a host.
bool fits_running(const char* component, const char* built, std::span<const ClassSize> classes);

}  // namespace bfo
