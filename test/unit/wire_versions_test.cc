// SPDX-License-Identifier: BSD-3-Clause
//
// wire_versions_test.cc: records of builds that meet, do not meet, or cannot be read, and what is said then.
#include "common/wire_versions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/version.h"

namespace bfo {
namespace {

constexpr uint32_t kMagic = 0x12345678;

PeerRecord read(const WireRecord& record, WireVersions ours, uint16_t first = 1) {
  return read_record(&record, sizeof record, kMagic, first, ours);
}

TEST(Versions, Ranges_MeetWhenEachUnderstandsTheOther) {
  EXPECT_TRUE(meet({3, 3}, {3, 3}));
  EXPECT_TRUE(meet({4, 3}, {3, 2}));
  EXPECT_TRUE(meet({3, 2}, {4, 3}));
  EXPECT_FALSE(meet({4, 4}, {3, 3}));
  EXPECT_FALSE(meet({3, 3}, {4, 4}));
  EXPECT_FALSE(meet({9, 4}, {3, 1}));
}

TEST(Versions, RecordOfTheSameBuild_IsRead) {
  const PeerRecord found = read(make_record(kMagic, {3, 2}, 0, 0), {3, 2});
  EXPECT_EQ(found.state, RecordState::kRead);
  EXPECT_EQ(found.versions.version, 3);
  EXPECT_EQ(found.versions.oldest, 2);
  EXPECT_STREQ(found.build, kBuild);
}

TEST(Versions, RangesThatDoNotMeet_AreToldWithBothVersions) {
  for (const WireVersions theirs : {WireVersions{2, 2}, WireVersions{9, 4}}) {
    const PeerRecord found = read(make_record(kMagic, theirs, 0, 0), {3, 3});
    EXPECT_EQ(found.state, RecordState::kOther);
    EXPECT_EQ(found.versions.version, theirs.version);
  }
}

TEST(Versions, WithoutARecord_ThePeerHasNone) {
  EXPECT_EQ(read_record(nullptr, 0, kMagic, 1, {1, 1}).state, RecordState::kAbsent);
}

TEST(Versions, RecordThatIsCutOrForeign_IsDamaged) {
  WireRecord record = make_record(kMagic, {3, 3}, 2, 8);
  std::vector<char> bytes(sizeof record + 16);
  memcpy(bytes.data(), &record, sizeof record);
  const auto state = [&](size_t size) {
    const std::vector<char> exact(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    return read_record(exact.data(), size, kMagic, 1, {3, 3}).state;
  };
  EXPECT_EQ(state(bytes.size()), RecordState::kRead);
  for (size_t size = 1; size < bytes.size(); ++size) EXPECT_EQ(state(size), RecordState::kDamaged) << size;
  record.magic ^= 1;
  EXPECT_EQ(read(record, {3, 3}).state, RecordState::kDamaged);
  record = make_record(kMagic, {3, 4}, 0, 0);  // the oldest is newer than the newest
  EXPECT_EQ(read(record, {3, 3}).state, RecordState::kDamaged);
  record = make_record(kMagic, {3, 3}, 0, 0);
  record.header_bytes = 8;
  EXPECT_EQ(read(record, {3, 3}).state, RecordState::kDamaged);
}

TEST(Versions, BuildOfAPeer_IsPrintable) {
  WireRecord record = make_record(kMagic, {4, 4}, 0, 0);
  memset(record.build, 'x', sizeof record.build);  // no end
  record.build[1] = '\x1b';
  record.build[2] = '\n';
  const PeerRecord found = read(record, {3, 3});
  EXPECT_EQ(std::string(found.build), "x??" + std::string(sizeof record.build - 4, 'x'));
}

std::string refusal(const PeerRecord& theirs, size_t size = 768) {
  std::vector<char> out(size);
  const size_t length = refusal_text(out.data(), size, "PML bfo", {"here", 1}, {3, 2}, {"there", 70}, theirs);
  EXPECT_EQ(length, strlen(out.data()));
  return out.data();
}

TEST(Versions, Refusal_IsOneLineThatNamesHostsVersionsAndBuilds) {
  WireRecord record = make_record(kMagic, {5, 4}, 0, 0);
  snprintf(record.build, sizeof record.build, "0.9.9");
  EXPECT_EQ(
      refusal(read(record, {3, 2})),
      "bfo: the PML bfo of rank 1 on host here (wire versions 2 to 3, build " + std::string(kBuild) +
          ") and that of rank 70 on host there (wire versions 4 to 5, build 0.9.9) do not understand each "
          "other: install one build of openmpi-bfo on both hosts\n");
  EXPECT_NE(refusal({}).find("there (no wire version, an older build)"), std::string::npos);
  PeerRecord damaged;
  damaged.state = RecordState::kDamaged;
  EXPECT_NE(refusal(damaged).find("there (a record that cannot be read)"), std::string::npos);
  EXPECT_EQ(refusal({}, 40).size(), 39u);
}

TEST(Versions, Build_BeginsWithTheRelease) {
  EXPECT_EQ(std::string(kBuild).rfind(BFO_VERSION, 0), 0u) << kBuild;
}

}  // namespace
}  // namespace bfo
