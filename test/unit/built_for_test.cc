// SPDX-License-Identifier: BSD-3-Clause
//
// built_for_test.cc: components in the Open MPI that they were built for, and in others.
#include "common/built_for.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bfo {
namespace {

const std::vector<ClassSize> kSame = {{"opal_convertor_t", 320, 320}, {"ompi_request_t", 176, 176}};

TEST(BuiltFor, TheSameRelease_Fits) {
  EXPECT_EQ(misfit("PML bfo", "4.1.4", "4.1.4", kSame), "");
}

TEST(BuiltFor, AnotherPointRelease_Fits) {
  EXPECT_EQ(misfit("PML bfo", "5.0.7", "5.0.10rc1", kSame), "");
}

TEST(BuiltFor, AnotherMinorOrMajorRelease_IsRefusedWithBothVersions) {
  for (const char* running : {"4.0.4", "4.2.0a1", "5.1.4", "6.1.4", "41.1.4"}) {
    const std::string text = misfit("BTL verbs", "4.1.4", running, kSame);
    EXPECT_NE(
        text.find(std::string("BTL verbs is not used: it was built for Open MPI 4.1.4, and this one is ") +
                  running),
        std::string::npos)
        << text;
    EXPECT_NE(text.find("--with-openmpi"), std::string::npos);
    EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line";
  }
}

TEST(BuiltFor, OneThatDoesNotTellItsVersion_IsRefused) {
  EXPECT_NE(misfit("PML bfo", "4.1.4", nullptr, kSame).find("of a version that it does not tell"),
            std::string::npos);
}

TEST(BuiltFor, AClassOfAnotherSize_IsNamedWithBothSizes) {
  std::vector<ClassSize> classes = kSame;
  classes.push_back({"ompi_proc_t", 88, 96});
  const std::string text = misfit("PML bfo", "4.1.4", "4.1.5", classes);
  EXPECT_NE(text.find("built for Open MPI 4.1.4, and this one is 4.1.5, configured in another way: its "
                      "ompi_proc_t has 96 "
                      "bytes instead of 88"),
            std::string::npos)
      << text;
}

TEST(BuiltFor, WithoutOpenMpiInTheProcess_NoReleaseRuns) {
  EXPECT_EQ(running_release(), nullptr);
}

}  // namespace
}  // namespace bfo
