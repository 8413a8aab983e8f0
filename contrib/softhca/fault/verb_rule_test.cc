// SPDX-License-Identifier: BSD-3-Clause
//
// Tests of rules about calls of verbs: which call fails or blocks, and that messages see none of it.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "contrib/softhca/fault/rule_test.h"

namespace bfo::softhca {
namespace {

class VerbRules : public RuleTable {
 protected:
  Decision call(ControlVerb verb, uint16_t node = 0, uint16_t device = 0) {
    VerbCall c;
    c.verb = verb;
    c.node = node;
    c.device = device;
    c.time_ns = kStart + 5 * kMs;
    return decide(*table_, c);
  }
};

TEST_F(VerbRules, NthCall_FailsAndNoOther) {
  load("oom: when verb=reg_mr node=1 call=3 do fail ENOMEM");
  EXPECT_TRUE(verbs_armed(*table_));
  EXPECT_FALSE(armed(*table_)) << "messages pay nothing for rules about calls";
  EXPECT_EQ(call(ControlVerb::kRegMr, 0).kind, ActionKind::kNone);
  EXPECT_EQ(call(ControlVerb::kCreateQp, 1).kind, ActionKind::kNone);
  EXPECT_EQ(call(ControlVerb::kRegMr, 1).kind, ActionKind::kNone);
  EXPECT_EQ(call(ControlVerb::kRegMr, 1).kind, ActionKind::kNone);
  const Decision third = call(ControlVerb::kRegMr, 1);
  EXPECT_EQ(third.kind, ActionKind::kVerbFault);
  EXPECT_EQ(third.value, unsigned{ENOMEM});
  EXPECT_EQ(third.delay_ns, 0u);
  EXPECT_EQ(call(ControlVerb::kRegMr, 1).kind, ActionKind::kNone);
  EXPECT_FALSE(verbs_armed(*table_)) << "spent";
}

TEST_F(VerbRules, OpenRangeAndEvery_FireForEver) {
  load("a: when verb=create_qp call=3.. do fail ENOMEM\nb: when verb=dereg_mr every=2 do block 1ms");
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(call(ControlVerb::kCreateQp).kind, i < 3 ? ActionKind::kNone : ActionKind::kVerbFault) << i;
    EXPECT_EQ(call(ControlVerb::kDeregMr).delay_ns, i % 2 == 0 ? kMs : 0) << i;
  }
}

TEST_F(VerbRules, WhatACallDoesNotHave_MatchesNoRuleThatAsksForIt) {
  load(
      "s: when verb=any service=UD do fail EIO\nq: when verb=any qpn=5 do fail EIO\n"
      "p: when verb=any peer=1 do fail EIO\nz: when verb=any size>=4K do fail EIO");
  EXPECT_EQ(call(ControlVerb::kAllocPd).kind, ActionKind::kNone);
  VerbCall big;
  big.verb = ControlVerb::kRegMr;
  big.size = uint64_t{5} << 32;
  big.time_ns = kStart;
  EXPECT_EQ(decide(*table_, big).kind, ActionKind::kVerbFault) << "more than 32 bits";
}

TEST_F(VerbRules, MessagesAndCalls_DoNotSeeEachOthersRules) {
  load("m: do drop\nv: when verb=create_ah do block 1s fail=ETIMEDOUT");
  EXPECT_EQ(send().kind, ActionKind::kDrop);
  EXPECT_EQ(call(ControlVerb::kCreateAh).kind, ActionKind::kVerbFault);
  EXPECT_EQ(counters("m").matched.load(), 1u);
  EXPECT_EQ(counters("v").matched.load(), 1u);
  clear(*table_, kStart + 6 * kMs);
  EXPECT_FALSE(armed(*table_));
  EXPECT_FALSE(verbs_armed(*table_));
}

TEST_F(VerbRules, ActionOnTheWorld_HitsTheDeviceOfTheCall) {
  load("f: when verb=create_qp call=2 do fail ENOMEM\nd: when verb=create_qp call=2 do port-down");
  EXPECT_EQ(call(ControlVerb::kCreateQp, 3, 1).kind, ActionKind::kNone);
  const Decision d = call(ControlVerb::kCreateQp, 3, 1);
  EXPECT_EQ(d.kind, ActionKind::kPortDown);
  EXPECT_EQ(d.node, 3);
  EXPECT_EQ(d.device, 1);
  EXPECT_EQ(counters("f").overridden.load(), 1u);
}

TEST_F(VerbRules, Report_NamesCalls) {
  load("never: when verb=create_srq call=2 do fail ENOMEM");
  call(ControlVerb::kCreateSrq);
  const std::string report = report_unfired(*table_);
  EXPECT_NE(report.find("1 calls matched"), std::string::npos) << report;
  EXPECT_NE(report.find("verb=create_srq call=2"), std::string::npos) << report;
}

}  // namespace
}  // namespace bfo::softhca
