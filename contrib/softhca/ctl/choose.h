// SPDX-License-Identifier: BSD-3-Clause
//
// Finding the fabric a softhcactl command is about.
#pragma once

#include <memory>

#include "contrib/softhca/ctl/options.h"
#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca::ctl {

/// The chosen fabric, mapped; nullptr after saying on stderr why there is none.
std::unique_ptr<Fabric> choose_fabric(const Options& options);

/// Says "softhcactl: text" on stderr; returns 1.
int complain(const std::string& text);

/// Users other than this one that have fabrics, as a remark for error messages; empty when there are none.
std::string other_users();

}  // namespace bfo::softhca::ctl
