// SPDX-License-Identifier: BSD-3-Clause
//
// The commands of softhcactl. Each prints its result to stdout, or one sentence to stderr and returns
// non-zero.
#pragma once

#include "contrib/softhca/ctl/options.h"

namespace bfo::softhca::ctl {

int list(const Options& options);
int check(const Options& options);
int environment(const Options& options);
int inject(const Options& options);
int rules(const Options& options);
int clear(const Options& options);
int counters(const Options& options);
int trace(const Options& options);
int remove(const Options& options);

}  // namespace bfo::softhca::ctl
