// SPDX-License-Identifier: BSD-3-Clause
//
// precompiled_product.h: what files of the product and of the simulator include most. In the build with
// sanitizers contrib/check has clang++ compile it once for each set of flags (Makefile.am): that is half of
// what a file takes there. The other build compiles every file with no more than its own includes.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
