// SPDX-License-Identifier: BSD-3-Clause
//
// btl_gids_test.cc: which of a port's addresses are used at all, which pair two ports choose, and what is
// used towards an address that a datagram names.
#include "btl/verbs/engine/device/gids.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace bfo::test {
namespace {

using engine::GidEntry;
using engine::GidPair;
using engine::GidTable;
using engine::GidType;
using engine::PublishedGid;
using Gids = std::vector<PublishedGid>;

/// "2 10.0.0.1/24": version and address.
PublishedGid gid(const std::string& text) {
  PublishedGid made;
  made.type = text[0] == '1' ? GidType::kRoceV1 : text[0] == '2' ? GidType::kRoceV2 : GidType::kUnknown;
  const size_t slash = text.find('/');
  const std::string address = text.substr(2, slash - 2);
  const bool ipv4 = address.find(':') == std::string::npos;
  EXPECT_EQ(inet_pton(AF_INET6, ((ipv4 ? "::ffff:" : "") + address).c_str(), made.gid.raw), 1) << text;
  const int bits = slash == std::string::npos ? (ipv4 ? 24 : 64) : std::stoi(text.substr(slash + 1));
  made.subnet_bits = static_cast<uint8_t>(bits + (ipv4 ? 96 : 0));
  return made;
}

Gids gids(const std::vector<std::string>& texts) {
  Gids made;
  for (const std::string& text : texts) made.push_back(gid(text));
  return made;
}

std::string text_of(const PublishedGid& gid) {
  char text[80];
  engine::gid_text(gid, text, sizeof text);
  return text;
}

/// "10.0.0.1/24 10.0.0.2/24", or "none". The other side must see the same pair.
std::string chosen(const std::vector<std::string>& here, const std::vector<std::string>& there) {
  const Gids ours = gids(here);
  const Gids theirs = gids(there);
  const GidPair pair = engine::choose_pair(ours.data(), ours.size(), theirs.data(), theirs.size());
  const GidPair back = engine::choose_pair(theirs.data(), theirs.size(), ours.data(), ours.size());
  EXPECT_EQ(pair.found(), back.found());
  if (!pair.found() || !back.found()) return "none";
  EXPECT_EQ(text_of(ours[pair.ours]), text_of(ours[back.theirs]));
  EXPECT_EQ(text_of(theirs[pair.theirs]), text_of(theirs[back.ours]));
  return text_of(ours[pair.ours]) + " " + text_of(theirs[pair.theirs]);
}

TEST(GidPairs, ByKindThenBySubnet) {
  EXPECT_EQ(chosen({"2 fe80::1", "2 10.0.0.1"}, {"2 10.0.0.2", "2 fe80::2"}), "10.0.0.1/24 10.0.0.2/24");
  EXPECT_EQ(chosen({"2 10.0.0.1", "2 fe80::1"}, {"2 fe80::2"}), "fe80::1/64 fe80::2/64")
      << "one end has no IPv4";
  EXPECT_EQ(chosen({"2 10.0.0.1", "2 fe80::1"}, {"2 fd00::2", "2 fe80::2"}), "fe80::1/64 fe80::2/64");
  EXPECT_EQ(chosen({"2 10.0.0.1", "2 fd00::1"}, {"2 fd00::2", "2 fe80::2"}), "fd00::1/64 fd00::2/64");
  EXPECT_EQ(chosen({"2 10.0.9.1", "2 10.0.0.1"}, {"2 10.0.0.2", "2 10.0.5.2"}), "10.0.0.1/24 10.0.0.2/24");
  EXPECT_EQ(chosen({"2 10.0.0.7", "2 10.0.0.1"}, {"2 10.0.0.9", "2 10.0.0.2"}), "10.0.0.1/24 10.0.0.2/24");
}

TEST(GidPairs, VersionsAreNeverMixed) {
  EXPECT_EQ(chosen({"1 fe80::1"}, {"2 fe80::2"}), "none");
  EXPECT_EQ(chosen({"1 10.0.0.1", "2 fe80::1"}, {"1 10.0.0.2", "2 fe80::2"}), "fe80::1/64 fe80::2/64");
  EXPECT_EQ(chosen({"1 10.0.0.1", "2 fe80::1"}, {"1 10.0.0.2"}),
            "10.0.0.1/24 (RoCE v1) 10.0.0.2/24 (RoCE v1)");
  EXPECT_EQ(chosen({"? 10.0.0.1"}, {"1 10.0.0.2", "2 10.0.0.3"}), "10.0.0.1/24 10.0.0.3/24");
}

TEST(GidPairs, DifferentSubnets_AreRoutedOrNothing) {
  EXPECT_EQ(chosen({"2 10.0.0.1"}, {"2 10.0.1.1"}), "10.0.0.1/24 10.0.1.1/24");
  EXPECT_EQ(chosen({"2 10.0.0.1", "2 fe80::1"}, {"2 10.0.1.1", "2 fe80::2"}), "10.0.0.1/24 10.0.1.1/24")
      << "two networks: link-local addresses end at the router";
  EXPECT_EQ(chosen({"1 10.0.0.1"}, {"1 10.0.1.1"}), "none");
  EXPECT_EQ(chosen({"2 10.0.0.1"}, {"2 fd00::1"}), "none");
  EXPECT_EQ(chosen({}, {"2 fd00::1"}), "none");
}

TEST(GidPairs, AnyListsInAnyOrder_GiveOnePairSeenFromBothSides) {
  const std::vector<std::string> all = {"2 fe80::1",     "1 fe80::1", "2 10.0.0.1",  "1 10.0.0.1",
                                        "2 10.0.1.5/16", "2 fd00::1", "2 fd00:1::1", "2 192.168.0.1/32"};
  std::mt19937 rng(1);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> here;
    std::vector<std::string> there;
    for (const std::string& one : all) {
      if (rng() % 2) here.push_back(one);
      if (rng() % 2) there.push_back(one);
    }
    const std::string before = chosen(here, there);
    std::shuffle(here.begin(), here.end(), rng);
    std::shuffle(there.begin(), there.end(), rng);
    ASSERT_EQ(chosen(here, there), before);
  }
}

// ---- the table of a port

GidEntry entry(int index, const std::string& text, uint32_t interface = 0) {
  const PublishedGid from = gid(text);
  return GidEntry{index, from.type, from.subnet_bits, interface, from.gid};
}

std::vector<int> indices(const GidTable& table) {
  std::vector<int> found;
  for (size_t i = 0; i < table.count; ++i) found.push_back(table.entries[i].index);
  return found;
}

GidTable usable(const std::vector<GidEntry>& entries, int fixed = -1) {
  return engine::usable_gids(entries.data(), entries.size(), fixed);
}

TEST(GidTables, BestFirst_NullEntriesLeftOut) {
  EXPECT_EQ(indices(usable({entry(0, "1 fe80::1"), entry(1, "2 fe80::1"), entry(2, "2 ::/64"),
                            entry(3, "1 10.0.0.1"), entry(4, "2 10.0.0.1"), entry(5, "2 fd00::1")})),
            (std::vector<int>{4, 5, 1, 3, 0}));
  EXPECT_EQ(usable({}).count, 0);
  EXPECT_EQ(usable({entry(0, "2 ::/64"), entry(1, "2 fe80::/64")}).count, 0);
}

TEST(GidTables, IndexNamedByTheUser_IsTheOnlyOne) {
  const std::vector<GidEntry> entries = {entry(0, "1 fe80::1"), entry(3, "2 10.0.0.1"),
                                         entry(5, "2 fe80::1", 9)};
  EXPECT_EQ(indices(usable(entries, 0)), (std::vector<int>{0}));
  EXPECT_EQ(indices(usable(entries, 5)), (std::vector<int>{5}));
  EXPECT_EQ(usable(entries, 4).count, 0);
}

TEST(GidTables, LinkLocalAddressOfAVlan_IsLeftOut) {
  const std::vector<GidEntry> entries = {entry(0, "2 fe80::1", 7), entry(1, "2 10.0.0.1", 7),
                                         entry(2, "2 fe80::1", 8), entry(3, "2 10.0.5.1", 8)};
  EXPECT_EQ(indices(usable(entries)), (std::vector<int>{1, 3, 0}));
}

TEST(GidTables, MoreThanThereIsRoomFor_KeepsEachKind) {
  std::vector<GidEntry> entries = {entry(0, "1 fe80::1"), entry(1, "2 fe80::1"), entry(2, "2 fd00::1")};
  for (int i = 3; i < 40; ++i) entries.push_back(entry(i, "2 10.0." + std::to_string(i) + ".1"));
  const GidTable table = usable(entries);
  EXPECT_EQ(indices(table), (std::vector<int>{3, 4, 5, 6, 7, 2, 1, 0}));
}

// ---- towards one address

TEST(OwnGid, NearestAddressOfTheType) {
  const GidTable ours = usable({entry(0, "1 fe80::1"), entry(1, "2 fe80::1"), entry(3, "2 10.0.0.1"),
                                entry(4, "2 10.0.5.1"), entry(6, "1 10.0.5.1")});
  const auto towards = [&](const std::string& text) {
    const GidEntry* own = engine::own_gid_for(ours, gid(text).gid, gid(text).type);
    return own == nullptr ? -1 : own->index;
  };
  EXPECT_EQ(towards("2 10.0.5.9"), 4);
  EXPECT_EQ(towards("2 10.0.0.9"), 3);
  EXPECT_EQ(towards("2 10.0.7.9"), 3) << "over a router";
  EXPECT_EQ(towards("1 10.0.5.9"), 6);
  EXPECT_EQ(towards("1 fe80::9"), 0);
  EXPECT_EQ(towards("2 fe80::9"), 1);
  EXPECT_FALSE(engine::reaches(ours, gid("2 fd00::9").gid, GidType::kRoceV2));
  EXPECT_TRUE(engine::reaches(ours, gid("2 10.0.5.9").gid, GidType::kRoceV2));
  const GidTable second = usable({entry(1, "2 fe80::1")});
  EXPECT_EQ(engine::own_gid_for(second, gid("1 fe80::9").gid, GidType::kRoceV1), nullptr);
}

TEST(OwnGid, AnswersWithThePairThatItsPeerChose) {
  // What one end chooses by both lists, the other one finds by the address in the first datagram.
  const std::vector<std::string> all = {"2 fe80::1",  "1 fe80::1",  "2 10.0.0.1",
                                        "1 10.0.0.1", "2 10.0.1.5", "2 fd00::1"};
  for (unsigned mine = 1; mine < 64; ++mine) {
    for (unsigned yours = 1; yours < 64; ++yours) {
      std::vector<GidEntry> ours;
      Gids own;
      Gids theirs;
      for (unsigned i = 0; i < all.size(); ++i) {
        if (mine >> i & 1) ours.push_back(entry(static_cast<int>(i), all[i]));
        if (mine >> i & 1) own.push_back(gid(all[i]));
        if (yours >> i & 1) theirs.push_back(gid(all[i]));
      }
      const GidPair pair = engine::choose_pair(own.data(), own.size(), theirs.data(), theirs.size());
      if (!pair.found()) continue;
      const GidTable table = usable(ours);
      const PublishedGid& heard = theirs[pair.theirs];
      const GidEntry* const answer = engine::own_gid_for(table, heard.gid, heard.type);
      ASSERT_NE(answer, nullptr);
      EXPECT_EQ(memcmp(answer->gid.raw, own[pair.ours].gid.raw, 16), 0) << mine << " " << yours;
      EXPECT_EQ(answer->type, own[pair.ours].type);
    }
  }
}

TEST(OwnGid, OthersOfThePeer_BestFirst) {
  const GidTable ours = usable({entry(1, "2 fe80::1"), entry(3, "2 10.0.0.1"), entry(5, "1 fe80::1")});
  const Gids theirs = gids({"1 fe80::2", "2 fd00::2", "2 fe80::2", "2 10.0.0.2"});
  uint8_t ranked[engine::kMaxGids];
  ASSERT_EQ(engine::rank_theirs(ours, theirs.data(), theirs.size(), ranked), 3u);
  EXPECT_EQ(ranked[0], 3);
  EXPECT_EQ(ranked[1], 2);
  EXPECT_EQ(ranked[2], 0);
}

TEST(GidText, AsPeopleWriteIt) {
  EXPECT_EQ(text_of(gid("2 10.0.0.1/16")), "10.0.0.1/16");
  EXPECT_EQ(text_of(gid("1 fe80::1")), "fe80::1/64 (RoCE v1)");
  const Gids two = gids({"2 10.0.0.1", "2 fe80::1"});
  char text[64];
  engine::gids_text(two.data(), 2, text, sizeof text);
  EXPECT_STREQ(text, "10.0.0.1/24, fe80::1/64");
  engine::gids_text(two.data(), 0, text, sizeof text);
  EXPECT_STREQ(text, "no address");
  char small[8];
  engine::gids_text(two.data(), 2, small, sizeof small);
  EXPECT_STREQ(small, "10.0.0.");
}

}  // namespace
}  // namespace bfo::test
