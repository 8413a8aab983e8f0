// SPDX-License-Identifier: BSD-3-Clause
//
// precompiled.h: what most unit tests include and nobody changes. contrib/check has it compiled once for all
// of them (Makefile.inc): it is a third of what a test takes to compile. No test may rely on it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
