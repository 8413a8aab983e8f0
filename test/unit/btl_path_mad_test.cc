// SPDX-License-Identifier: BSD-3-Clause
//
// btl_path_mad_test.cc: the datagrams by which the subnet administrator is asked for a path.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "btl/verbs/engine/datagram/path_mad.h"
#include "test/unit/btl_fabric.h"

namespace bfo::test {
namespace {

using engine::Drop;
using engine::PathAnswer;

/// An answer as an administrator writes it.
std::string answer_mad() {
  std::string mad(engine::kMadBytes, '\0');
  mad[0] = 1;
  mad[1] = 3;
  mad[2] = 2;
  mad[3] = '\x81';
  for (int i = 0; i < 8; ++i) mad[8 + static_cast<size_t>(i)] = static_cast<char>(i + 1);
  mad[17] = 0x35;
  mad[96] = 0x12;  // DLID
  mad[97] = 0x34;
  mad[98] = 0x56;  // SLID
  mad[99] = 0x78;
  mad[108] = '\xab';
  mad[109] = '\xc9';
  return mad;
}
Drop read(const std::string& mad, PathAnswer* answer) {
  return engine::path_mad_read(reinterpret_cast<const uint8_t*>(mad.data()), mad.size(), answer);
}

TEST(PathMad, Request_IsWhatTheSpecificationSays) {
  engine::PathQuestion question;
  question.transaction = 0x0102030405060708;
  question.source = 0x5678;
  question.destination = 0x1234;
  uint8_t mad[engine::kMadBytes];
  engine::path_mad_ask(question, mad);
  std::string expected(engine::kMadBytes, '\0');
  expected.replace(0, 4, std::string("\1\3\2\1", 4));
  expected.replace(8, 8, "\1\2\3\4\5\6\7\10");
  expected[17] = 0x35;
  expected[55] = 0x30;  // component mask: DLID, SLID
  expected.replace(96, 4, "\x12\x34\x56\x78");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mad), sizeof mad), expected);
  question.pkey = 0x8005;
  engine::path_mad_ask(question, mad);
  EXPECT_EQ(mad[54], 0x20) << "P_Key";
  EXPECT_EQ(mad[106], 0x80);
  EXPECT_EQ(mad[107], 0x05);
}

TEST(PathMad, Answer_IsRead) {
  PathAnswer answer;
  EXPECT_EQ(read(answer_mad(), &answer), Drop::kNone);
  EXPECT_EQ(answer.transaction, 0x0102030405060708u);
  EXPECT_EQ(answer.status, 0);
  EXPECT_EQ(answer.destination, 0x1234);
  EXPECT_EQ(answer.source, 0x5678);
  EXPECT_EQ(answer.service_level, 9);
}

TEST(PathMad, AnotherVersionClassMethodOrAttribute_IsNoAnswer) {
  for (const size_t at : {0u, 1u, 2u, 3u, 16u, 17u}) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string mad = answer_mad();
      mad[at] = static_cast<char>(mad[at] ^ 1 << bit);
      PathAnswer answer;
      EXPECT_EQ(read(mad, &answer), Drop::kShape) << "byte " << at << " bit " << bit;
    }
  }
}

TEST(PathMad, AnotherLength_IsNoAnswer) {
  for (size_t length = 0; length < engine::kMadBytes; ++length) {
    PathAnswer answer;
    EXPECT_EQ(read(answer_mad().substr(0, length), &answer), Drop::kShape) << length;
  }
  PathAnswer answer;
  EXPECT_EQ(read(answer_mad() + "x", &answer), Drop::kShape);
}

TEST(PathMad, AnyBytes_AreReadWithoutHarm) {
  for (int round = 0; round < 20'000; ++round) {
    std::string mad = answer_mad();
    const int changes = 1 + round % 5;
    for (int i = 0; i < changes; ++i) {
      const uint64_t bits = test_environment().random();
      mad[bits % mad.size()] = static_cast<char>(bits >> 32);
    }
    // On the heap, at its own size: a sanitizer sees every access beyond it.
    const std::vector<uint8_t> copy(
        mad.begin(), mad.begin() + static_cast<long>(mad.size() - static_cast<size_t>(round) % 3));
    PathAnswer answer;
    const Drop why = engine::path_mad_read(copy.data(), copy.size(), &answer);
    if (why == Drop::kNone) {
      EXPECT_LE(answer.service_level, 15);
    }
  }
}

}  // namespace
}  // namespace bfo::test
