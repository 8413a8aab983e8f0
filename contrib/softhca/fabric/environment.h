// SPDX-License-Identifier: BSD-3-Clause
//
// The environment: what the SOFTHCA_* variables say. One strict reader for the library, the wrappers (through
// softhcactl environment) and the tests: a value is understood whole or refused by the name of its variable.
#pragma once

#include <functional>
#include <string>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

struct Environment {
  FabricConfig config;             ///< for a fabric that this process creates
  std::string fabric = "default";  ///< its name
  uint32_t node = 0;               ///< the emulated host of this process
  uint32_t spin = 64;              ///< empty polls before the processor is given to somebody else
  bool strict_pages = false;       ///< fabric/pages.h
};

/// The text of a variable, or nullptr. getenv() is one.
using Lookup = std::function<const char*(const char* name)>;

/// Reads all variables; one that is empty is as one that is not set. False and one sentence that names the
/// variable, its value and what is allowed. Does not look at the fault file or the registry.
bool read_environment(const Lookup& lookup, Environment& environment, std::string& error);

}  // namespace bfo::softhca
