// SPDX-License-Identifier: BSD-3-Clause
//
// protection_test.cc: who has something to say about missing rails, what it says, and that one process of a
// host says it.
#include "pml/bfo/glue/protection.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bfo::test {
namespace {

using glue::Btl;
using glue::JobShape;
using glue::OwnRails;
using glue::PeerGap;
using glue::PeerRails;

constexpr JobShape kCluster = {.several_hosts = true, .memory = true, .asked = false};
constexpr JobShape kOneHost = {.several_hosts = false, .memory = true, .asked = false};
constexpr JobShape kOneHostNoMemory = {.several_hosts = false, .memory = false, .asked = false};
constexpr JobShape kOneHostVerbs = {.several_hosts = false, .memory = false, .asked = true};

OwnRails rails(unsigned up, unsigned expected) {
  OwnRails own;
  own.up = up;
  own.expected = expected;
  own.modules = expected;
  own.missing = "it has no other port";
  own.remedy = "Connect a second port";
  return own;
}

OwnRails broken(Btl btl, unsigned modules) {
  OwnRails own;
  own.btl = btl;
  own.modules = modules;
  own.btl_list = "vader,self,tcp";
  own.our_version = 8;
  own.btl_version = 9;
  return own;
}

std::string text_of(unsigned min_rails, const OwnRails& own) {
  char text[1024];
  glue::tell_own(min_rails, own, "n17", text, sizeof(text));
  return text;
}

TEST(Protection, HostOfACluster_SpeaksExactlyWhenItLacksRails) {
  EXPECT_FALSE(glue::lacks_rails(2, rails(2, 2), kCluster));
  EXPECT_FALSE(glue::lacks_rails(2, rails(3, 4), kCluster)) << "three of four survive a loss";
  EXPECT_TRUE(glue::lacks_rails(2, rails(1, 1), kCluster));
  EXPECT_TRUE(glue::lacks_rails(2, rails(1, 2), kCluster));
  EXPECT_TRUE(glue::lacks_rails(2, rails(0, 0), kCluster));
  EXPECT_TRUE(glue::lacks_rails(4, rails(3, 4), kCluster));
  EXPECT_FALSE(glue::lacks_rails(1, rails(1, 2), kCluster));
  for (const Btl btl : {Btl::kLeftOut, Btl::kNotLoaded, Btl::kOtherVersion, Btl::kNoFlag}) {
    EXPECT_TRUE(glue::lacks_rails(2, broken(btl, 0), kCluster));
    EXPECT_TRUE(glue::lacks_rails(1, broken(btl, 2), kCluster));
  }
}

TEST(Protection, ZeroRailsWished_NothingIsSaid) {
  EXPECT_FALSE(glue::lacks_rails(0, rails(0, 0), kCluster));
  EXPECT_FALSE(glue::lacks_rails(0, broken(Btl::kOtherVersion, 2), kOneHostVerbs));
  PeerRails peer;
  EXPECT_EQ(glue::judge_peer(0, peer), PeerGap::kNone);
}

TEST(Protection, JobOnOneHost_SpeaksOnlyWhereRailsCarryIt) {
  EXPECT_FALSE(glue::lacks_rails(2, rails(0, 0), kOneHost)) << "shared memory, no device";
  EXPECT_FALSE(glue::lacks_rails(2, rails(1, 1), kOneHost)) << "shared memory comes first";
  EXPECT_FALSE(glue::lacks_rails(2, broken(Btl::kLeftOut, 0), kOneHostNoMemory)) << "tcp,self";
  EXPECT_FALSE(glue::lacks_rails(2, rails(0, 0), kOneHostNoMemory));
  EXPECT_TRUE(glue::lacks_rails(2, rails(1, 1), kOneHostNoMemory)) << "verbs carries the messages";
  EXPECT_TRUE(glue::lacks_rails(2, rails(0, 0), kOneHostVerbs)) << "verbs was asked for";
  EXPECT_TRUE(glue::lacks_rails(2, broken(Btl::kOtherVersion, 2), kOneHostNoMemory));
}

TEST(Protection, SentencesOfAHost_NameWhatIsMissingAndTheRemedy) {
  EXPECT_EQ(text_of(2, rails(1, 1)),
            "bfo: host n17: the job does not survive the loss of a rail, there is 1 rail: it has no other "
            "port. Connect "
            "a second port (pml_bfo_min_rails 0 silences this)");
  EXPECT_NE(text_of(2, rails(1, 2)).find("1 of 2 rails is up: "), std::string::npos);
  EXPECT_NE(text_of(2, rails(0, 2)).find("none of 2 rails is up: "), std::string::npos);
  EXPECT_NE(text_of(2, rails(0, 0)).find("no rail is up: "), std::string::npos);
  const std::string more = text_of(4, rails(3, 4));
  EXPECT_NE(more.find("3 of 4 rails are up, pml_bfo_min_rails asks for 4"), std::string::npos) << more;
  EXPECT_EQ(more.find("does not survive"), std::string::npos) << more;
  EXPECT_NE(text_of(2, broken(Btl::kLeftOut, 0)).find("btl (\"vader,self,tcp\") leaves out verbs. Add verbs"),
            std::string::npos);
  OwnRails excluded = broken(Btl::kLeftOut, 0);
  excluded.btl_list = "^verbs";
  excluded.by_name = true;
  EXPECT_NE(text_of(2, excluded).find("(\"^verbs\") leaves out verbs. Take verbs out"), std::string::npos);
  EXPECT_NE(text_of(2, broken(Btl::kNotLoaded, 0)).find("not loaded. Install mca_btl_verbs.so"),
            std::string::npos);
  EXPECT_NE(
      text_of(2, broken(Btl::kOtherVersion, 2)).find("(versions 8 and 9 of their contract). Install both"),
      std::string::npos);
  EXPECT_NE(text_of(2, broken(Btl::kNoFlag, 2)).find("btl_verbs_flags"), std::string::npos);
}

TEST(Protection, SentenceWithoutRoom_IsCut) {
  const std::string list(3000, 'x');
  OwnRails own = broken(Btl::kLeftOut, 0);
  own.btl_list = list.c_str();
  char text[1024];
  glue::tell_own(2, own, "n17", text, sizeof(text));
  EXPECT_LT(std::string(text).size(), sizeof(text));
  EXPECT_NE(std::string(text).find("leaves out verbs"), std::string::npos);
}

PeerRails met(unsigned rails, int published) {
  PeerRails peer;
  peer.rails = rails;
  peer.published = published;
  peer.own_up = 2;
  return peer;
}

TEST(Protection, Peer_IsJudgedByWhatItsOwnHostCannotKnow) {
  EXPECT_EQ(glue::judge_peer(2, met(2, 2)), PeerGap::kNone);
  EXPECT_EQ(glue::judge_peer(2, met(1, 1)), PeerGap::kNone) << "told at its host";
  EXPECT_EQ(glue::judge_peer(2, met(0, 0)), PeerGap::kNone) << "told at its host";
  EXPECT_EQ(glue::judge_peer(2, met(1, 2)), PeerGap::kNoMeeting);
  EXPECT_EQ(glue::judge_peer(2, met(0, 4)), PeerGap::kNoMeeting);
  EXPECT_EQ(glue::judge_peer(2, met(0, -1)), PeerGap::kOtherBuild);
  PeerRails own = met(1, 2);
  own.own_up = 1;
  EXPECT_EQ(glue::judge_peer(2, own), PeerGap::kOwn);
  PeerRails mixed = met(2, 2);
  mixed.others = 1;
  EXPECT_EQ(glue::judge_peer(2, mixed), PeerGap::kMixed);
  PeerRails tcp = met(0, 0);
  tcp.others = 1;
  tcp.own_up = 0;
  EXPECT_EQ(glue::judge_peer(2, tcp), PeerGap::kOwn) << "another host, by tcp";
  tcp.same_host = true;
  EXPECT_EQ(glue::judge_peer(2, tcp), PeerGap::kNone) << "the same host needs no rails";
}

TEST(Protection, SentencesAboutAPeer_NameBothHostsAndTheRemedy) {
  const auto text = [](PeerGap gap) {
    char out[1024];
    glue::tell_peer(gap, met(1, 2), "n17", "n18", "openib", out, sizeof(out));
    return std::string(out);
  };
  EXPECT_EQ(text(PeerGap::kMixed),
            "bfo: host n17: the job does not survive the loss of a rail to host n18: messages to it also go "
            "over the "
            "BTL openib, which loses them with a rail. Leave it out (--mca btl ^openib) (pml_bfo_min_rails 0 "
            "silences "
            "this)");
  EXPECT_NE(text(PeerGap::kOtherBuild).find("Install the same components on all hosts"), std::string::npos);
  EXPECT_NE(text(PeerGap::kNoMeeting).find("only 1 meet in a common network. Give"), std::string::npos);
}

TEST(Protection, TellsOfWindows) {
  char out[640];
  glue::tell_windows("n17", out, sizeof(out));
  EXPECT_STREQ(
      out,
      "bfo: host n17: one-sided communication (MPI_Win_create, ...) by osc rdma uses one rail, without "
      "this PML, and the job ends when that rail is lost; messages survive it. To have windows refused "
      "instead, leave osc rdma out (--mca osc ^rdma) (pml_bfo_min_rails 0 silences this)");
  glue::tell_lost_window("n17", "n18", out, sizeof(out));
  EXPECT_STREQ(
      out,
      "bfo: host n17: one-sided communication by osc rdma has lost a message to host n18 with its rail, "
      "and does not send it again: the job ends");
}

}  // namespace
}  // namespace bfo::test
