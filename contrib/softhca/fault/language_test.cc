// SPDX-License-Identifier: BSD-3-Clause
//
// Tests of the fault language: what each word means, where a mistake is reported, and that text survives the
// way to a rule and back.
#include <gtest/gtest.h>

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/link_speed.h"

namespace bfo::softhca {
namespace {

Rule parse_one(std::string_view text) {
  const ParseResult parsed = parse_rules(text);
  for (const Problem& problem : parsed.problems) ADD_FAILURE() << format_problem("text", problem);
  EXPECT_EQ(parsed.rules.size(), 1u) << text;
  return parsed.rules.empty() ? Rule{} : parsed.rules.front();
}

std::string first_problem(std::string_view text) {
  const ParseResult parsed = parse_rules(text);
  return parsed.problems.empty() ? "" : format_problem("f", parsed.problems.front());
}

TEST(Language, EmptyTextAndComments_GiveNoRule) {
  const ParseResult parsed = parse_rules("\n  # comment with \xc3\xa4\n\t\r\n#\n");
  EXPECT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed.rules.empty());
}

TEST(Language, KillRail1_IsReadFieldByField) {
  const Rule rule =
      parse_one("kill: when device=softhca1 node=3 port=2 size>=16K offset=50% count=1 do port-down");
  EXPECT_STREQ(rule.name, "kill");
  EXPECT_EQ(rule.match.device, 1);
  EXPECT_EQ(rule.match.node, 3);
  EXPECT_EQ(rule.match.port, 2);
  EXPECT_EQ(rule.match.peer_node, kAnyId);
  EXPECT_EQ(rule.match.size_min, 16384u);
  EXPECT_EQ(rule.match.size_max, ~0u);
  EXPECT_EQ(rule.match.opcode_mask, kRequestOpcodes);
  EXPECT_EQ(rule.match.direction_mask, 1);
  EXPECT_TRUE(rule.action.offset_is_percent);
  EXPECT_EQ(rule.action.offset, 50u);
  EXPECT_EQ(rule.trigger.count, 1u);
  EXPECT_FALSE(rule.trigger.timed);
  EXPECT_EQ(rule.action.kind, ActionKind::kPortDown);
  EXPECT_EQ(rule.action.duration_ns, 0u);
}

TEST(Language, EveryAction_HasItsKind) {
  const std::pair<const char*, ActionKind> cases[] = {
      {"drop", ActionKind::kDrop},
      {"one-way", ActionKind::kDrop},
      {"drop-ack", ActionKind::kDropAck},
      {"delay 5ms", ActionKind::kDelay},
      {"duplicate", ActionKind::kDuplicate},
      {"reorder", ActionKind::kReorder},
      {"corrupt xor=0x80", ActionKind::kCorrupt},
      {"complete LOC_PROT_ERR", ActionKind::kStatus},
      {"late-write 50ms", ActionKind::kLateWrite},
      {"lose 1%", ActionKind::kLose},
      {"release", ActionKind::kReleaseLate},
      {"port-down for=1s", ActionKind::kPortDown},
      {"port-up", ActionKind::kPortUp},
      {"port-flap down=1ms up=2ms", ActionKind::kPortDown},
      {"rate 100", ActionKind::kSetRate},
      {"latency 5us", ActionKind::kSetLatency},
      {"speed 100G", ActionKind::kSetSpeed},
      {"event DEVICE_SPEED_CHANGE", ActionKind::kRaiseEvent},
      {"device-fatal", ActionKind::kDeviceFatal},
      {"lid 17", ActionKind::kLidChange},
      {"gid 0xabc", ActionKind::kGidChange},
      {"gids v1,v2-ipv4@5,-,v2-ipv6", ActionKind::kGidTable},
      {"pkey 0x8001", ActionKind::kPkeyChange},
      {"sm-change", ActionKind::kSmChange},
      {"client-reregister", ActionKind::kClientReregister},
      {"cq-overrun", ActionKind::kCqOverrun},
      {"event PATH_MIG", ActionKind::kRaiseEvent},
      {"kill", ActionKind::kKill},
      {"stop for=10ms", ActionKind::kStop},
      {"max-qp 4", ActionKind::kSetLimit},
      {"max-cq 4", ActionKind::kSetLimit},
      {"max-mr 4", ActionKind::kSetLimit},
      {"max-srq 0", ActionKind::kSetLimit},
      {"max-ah any", ActionKind::kSetLimit},
      {"max-pd 1", ActionKind::kSetLimit},
      {"memlock 8M", ActionKind::kSetMemlock},
      {"segment 3", ActionKind::kSetSegment},
      {"isolate", ActionKind::kSetSegment},
  };
  for (const auto& [text, kind] : cases)
    EXPECT_EQ(parse_one(std::string("do ") + text).action.kind, kind) << text;
}

TEST(Language, StatusAndEventNames_AreTheVerbsConstants) {
  EXPECT_EQ(parse_one("do complete REM_OP_ERR").action.value, unsigned{IBV_WC_REM_OP_ERR});
  EXPECT_EQ(parse_one("do complete IBV_WC_GENERAL_ERR").action.value, unsigned{IBV_WC_GENERAL_ERR});
  EXPECT_EQ(parse_one("do event IBV_EVENT_SRQ_ERR").action.value, unsigned{IBV_EVENT_SRQ_ERR});
  EXPECT_EQ(parse_one("when qpn=0x11 do event qp_fatal").match.qpn, 0x11u);
}

TEST(Language, Speeds_AreLanesAndTheirBandwidth) {
  struct Case {
    const char* text;
    uint8_t width;
    uint32_t lane;
    uint32_t effective;
    const char* canonical;
  };
  const Case cases[] = {
      {"4xEDR", 2, 32, 1000, "4xEDR"},       {"100G", 2, 32, 1000, "4xEDR"},
      {"10G", 2, 1, 100, "4xSDR"},           {"25G", 1, 32, 250, "1xEDR"},
      {"400G", 2, 128, 4000, "4xNDR"},       {"800G", 2, 256, 8000, "4xXDR"},
      {"2500M", 1, 1, 25, "1xSDR"},          {"1xFDR10", 1, 8, 100, "1xFDR10"},
      {"12xHDR", 8, 64, 6000, "12xHDR"},     {"2xNDR", 16, 128, 2000, "2xNDR"},
      {"8xQDR", 4, 4, 800, "8xQDR"},         {"350G", 2, 64, 3500, nullptr},
      {"1G", 1, 1, 10, "1xSDR@1G"},          {"4xHDR@150G", 2, 64, 1500, "4xHDR@150G"},
      {"1xSDR@100M", 1, 1, 1, "1xSDR@100M"}, {"1x512", 1, 512, 0, "1x512"},
      {"4x0x11", 2, 17, 0, "4x17"},
  };
  for (const Case& c : cases) {
    LinkSpeed speed;
    ASSERT_TRUE(read_link_speed(c.text, speed)) << c.text;
    if (c.canonical != nullptr) {
      EXPECT_EQ(speed.width, c.width) << c.text;
      EXPECT_EQ(speed.lane, c.lane) << c.text;
      EXPECT_EQ(write_link_speed(speed), c.canonical);
    }
    EXPECT_EQ(speed.effective, c.effective) << c.text;
    const LinkSpeed back = unpack_link_speed(pack(speed));
    EXPECT_EQ(write_link_speed(back), write_link_speed(speed));
  }
  EXPECT_EQ(pack(LinkSpeed{}), parse_one("do speed 4xEDR").action.value64) << "what a port has at first";
  EXPECT_EQ(parse_one("do event DEVICE_SPEED_CHANGE").action.value, kDeviceSpeedChange);
}

TEST(Language, WorldActionWithoutMessageKey_IsTimedAndNow) {
  const Rule now = parse_one("when device=1 do port-down");
  EXPECT_TRUE(now.trigger.timed);
  EXPECT_EQ(now.trigger.at_ns, 0u);
  EXPECT_EQ(now.trigger.count, 1u);
  const Rule later = parse_one("when device=1 at=200ms every=1s do port-down for=10ms");
  EXPECT_TRUE(later.trigger.timed);
  EXPECT_EQ(later.trigger.at_ns, 200'000'000u);
  EXPECT_EQ(later.trigger.period_ns, 1'000'000'000u);
  EXPECT_EQ(later.trigger.count, 0u);
}

TEST(Language, WorldActionWithMessageKey_WaitsForAMessage) {
  EXPECT_FALSE(parse_one("when opcode=READ do port-down").trigger.timed);
  EXPECT_FALSE(parse_one("when message=3 do kill on=peer").trigger.timed);
  EXPECT_FALSE(parse_one("when from=10ms do device-fatal").trigger.timed);
}

TEST(Language, Counts_FollowFromTheRule) {
  EXPECT_EQ(parse_one("do drop").trigger.count, 0u);
  EXPECT_EQ(parse_one("when message=5 do drop").trigger.count, 1u);
  EXPECT_EQ(parse_one("when message=5..9 do drop").trigger.count, 5u);
  EXPECT_EQ(parse_one("when message=5.. do drop").trigger.count, 0u);
  EXPECT_EQ(parse_one("when byte=1M do drop").trigger.count, 1u);
  EXPECT_EQ(parse_one("when message=5 count=any do drop").trigger.count, 0u);
  EXPECT_EQ(parse_one("when message=5 do port-flap down=1ms up=1ms").trigger.count, 1u);
}

TEST(Language, Attempts_DefaultByAction) {
  EXPECT_EQ(parse_one("do drop").match.attempt_mode, AttemptMode::kFirst);
  EXPECT_EQ(parse_one("do drop-ack").match.attempt_mode, AttemptMode::kAll);
  EXPECT_EQ(parse_one("do late-write").match.attempt_mode, AttemptMode::kAll);
  EXPECT_EQ(parse_one("do one-way").match.attempt_mode, AttemptMode::kAll);
  EXPECT_EQ(parse_one("do one-way").match.opcode_mask, kRequestOpcodes | kAckOpcode);
  EXPECT_EQ(parse_one("when attempt=3 do drop").match.attempt, 3);
}

TEST(Language, OpcodeLists_AreUnited) {
  const uint32_t mask = parse_one("when opcode=READ|ACK do drop").match.opcode_mask;
  EXPECT_EQ(mask, 1u << 4 | 1u << 8);
  EXPECT_EQ(parse_one("when opcode=send do drop").match.opcode_mask, 1u << 0 | 1u << 1 | 1u << 7);
}

TEST(Language, VerbRules_AreReadFieldByField) {
  const Rule rule = parse_one(
      "slow: when verb=create_ah|modify_qp node=1 device=1 peer=2 call=3..9 every=2 do block 1s "
      "fail=ETIMEDOUT");
  EXPECT_EQ(rule.match.verb_mask, bit_of(ControlVerb::kCreateAh) | bit_of(ControlVerb::kModifyQp));
  EXPECT_EQ(rule.match.node, 1);
  EXPECT_EQ(rule.match.device, 1);
  EXPECT_EQ(rule.match.peer_node, 2);
  EXPECT_EQ(rule.match.message_first, 3u);
  EXPECT_EQ(rule.match.message_last, 9u);
  EXPECT_EQ(rule.match.every, 2u);
  EXPECT_EQ(rule.action.kind, ActionKind::kVerbFault);
  EXPECT_EQ(rule.action.delay_ns, 1'000'000'000u);
  EXPECT_EQ(rule.action.value, unsigned{ETIMEDOUT});
  EXPECT_FALSE(rule.trigger.timed);
  EXPECT_EQ(rule.trigger.count, 0u);
}

TEST(Language, VerbRules_CountAsMessageRulesDo) {
  EXPECT_EQ(parse_one("when verb=reg_mr do fail ENOMEM").trigger.count, 0u);
  EXPECT_EQ(parse_one("when verb=reg_mr call=7 do fail ENOMEM").trigger.count, 1u);
  EXPECT_EQ(parse_one("when verb=reg_mr call=7.. do fail ENOMEM").trigger.count, 0u);
  EXPECT_EQ(parse_one("when verb=create_qp do kill").trigger.count, 1u);
  EXPECT_FALSE(parse_one("when verb=create_qp do kill").trigger.timed);
  EXPECT_EQ(parse_one("when verb=modify_qp state=RTR|ERR do block 5ms").match.qp_states,
            1u << IBV_QPS_RTR | 1u << IBV_QPS_ERR);
  EXPECT_EQ(parse_one("when verb=any do block 5ms").match.verb_mask, kEveryVerb);
}

TEST(Language, EveryControlVerb_HasItsOwnWord) {
  const char* const names[] = {"get_device_list",
                               "open_device",
                               "close_device",
                               "query_device",
                               "query_port",
                               "query_gid",
                               "query_pkey",
                               "alloc_pd",
                               "dealloc_pd",
                               "reg_mr",
                               "rereg_mr",
                               "dereg_mr",
                               "alloc_mw",
                               "dealloc_mw",
                               "create_comp_channel",
                               "destroy_comp_channel",
                               "create_cq",
                               "resize_cq",
                               "destroy_cq",
                               "create_srq",
                               "modify_srq",
                               "query_srq",
                               "destroy_srq",
                               "create_qp",
                               "modify_qp",
                               "query_qp",
                               "destroy_qp",
                               "create_ah",
                               "destroy_ah",
                               "attach_mcast",
                               "detach_mcast",
                               "query_port_speed"};
  uint32_t all = 0;
  for (const char* name : names) {
    const uint32_t mask = parse_one("when verb=" + std::string(name) + " do fail EIO").match.verb_mask;
    EXPECT_EQ(mask & (mask - 1), 0u) << name;
    EXPECT_EQ(all & mask, 0u) << name;
    all |= mask;
  }
  EXPECT_EQ(all, kEveryVerb);
}

TEST(Language, ContinuedLine_IsOneRule) {
  const ParseResult parsed = parse_rules("a: when device=1 \\\n  size>=1K # why\nb: do drop\n");
  ASSERT_EQ(parsed.problems.size(), 1u);
  EXPECT_EQ(parsed.problems[0].line, 2u);
  EXPECT_EQ(parse_one("a: when device=1 \\  \n  size>=1K \\\n do drop").match.size_min, 1024u);
}

struct Mistake {
  const char* text;
  const char* place;
  const char* says;
};

TEST(Language, Mistakes_AreReportedWithPlaceAndExpectedWords) {
  const Mistake mistakes[] = {
      {"kill: wen device=1 do drop", "f:1:7: ", "expected \"when\" or \"do\""},
      {"\n\n  when sise=1 do drop", "f:3:8: ", "did you mean size?"},
      {"when device=softhcax do drop", "f:1:13: ", "softhca0"},
      {"when device= do drop", "f:1:13: ", "expected a value"},
      {"when device do drop", "f:1:6: ", "key=value"},
      {"when =1 do drop", "f:1:6: ", "key=value"},
      {"when size>=16Q do drop", "f:1:12: ", "16K"},
      {"when size=9..3 do drop", "f:1:11: ", "range"},
      {"when size>=8 size<=4 do drop", "f:1:20: ", "least size"},
      {"when node>=1 do drop", "f:1:10: ", "node="},
      {"when port=0 do drop", "f:1:11: ", "port number from 1"},
      {"when message=0 do drop", "f:1:14: ", "ordinal from 1"},
      {"when probability=2 do drop", "f:1:18: ", "0.01"},
      {"when probability=nan do drop", "f:1:18: ", "0.01"},
      {"when at=200 do port-down", "f:1:9: ", "unit"},
      {"when offset=101% do drop", "f:1:13: ", "percentage"},
      {"when opcode=SEND|WRIT do drop", "f:1:18: ", "did you mean WRITE?"},
      {"when node=1 node=2 do drop", "f:1:13: ", "twice"},
      {"when device=1", "f:1:15: ", "\"do\""},
      {"x:", "f:1:4: ", "expected \"when\" or \"do\""},
      {"when device=1 do", "f:1:18: ", "no action"},
      {"do prot-down", "f:1:4: ", "did you mean port-down?"},
      {"do delay", "f:1:10: ", "5ms"},
      {"do delay 5", "f:1:10: ", "unit"},
      {"do drop now", "f:1:9: ", "end of the rule"},
      {"do lose", "f:1:9: ", "1% or 0.01"},
      {"do lose 5", "f:1:9: ", "1% or 0.01"},
      {"do lose 0%", "f:1:9: ", "1% or 0.01"},
      {"when direction=rx do lose 1%", "f:1:22: ", "direction=tx"},
      {"when offset=5 do lose 1%", "f:1:18: ", "no offset="},
      {"do complete OOPS", "f:1:13: ", "LOC_LEN_ERR"},
      {"do port-down until=3", "f:1:14: ", "for=TIME"},
      {"do port-flap down=1ms", "f:1:4: ", "up=TIME"},
      {"do lid 70000", "f:1:8: ", "LID"},
      {"when at=5ms do drop", "f:1:16: ", "from="},
      {"when at=5ms after=x do port-up", "f:1:24: ", "exclude"},
      {"when after=nobody do port-up", "f:1:1: ", "no rule is called"},
      {"a: do drop\na: do drop", "f:2:1: ", "twice"},
      {"when from=5ms until=5ms do drop", "f:1:28: ", "before it starts"},
      {"do port-down on=peer", "f:1:4: ", "needs a message"},
      {"when opcode=SEND do late-write", "f:1:21: ", "RDMA writes"},
      {"when opcode=ACK do drop-ack", "f:1:20: ", "opcode=ACK do drop"},
      {"when every=5ms do drop", "f:1:19: ", "number of messages"},
      {"a\x01"
       "b: do drop",
       "f:1:2: ", "0x01"},
      {"this-name-is-much-too-long-for-a-rule-name: do drop", "f:1:1: ", "1 to 31"},
      {"when qpn=0 do drop", "f:1:10: ", "queue pair number"},
      {"do rate 99999999999999999999", "f:1:9: ", "10^6 bytes"},
      {"when verb=creat_ah do fail ENOMEM", "f:1:11: ", "did you mean create_ah?"},
      {"when verb=reg_mr do fail ENOMEN", "f:1:26: ", "did you mean ENOMEM?"},
      {"when verb=reg_mr do fail", "f:1:26: ", "ENOMEM"},
      {"when verb=reg_mr do block", "f:1:27: ", "1s"},
      {"when verb=reg_mr do block 1s fail=12", "f:1:35: ", "ETIMEDOUT"},
      {"when verb=reg_mr do block 1s on=peer", "f:1:30: ", "fail=ERRNO"},
      {"when verb=reg_mr do fail EIO now", "f:1:30: ", "end of the rule"},
      {"do block 1s", "f:1:4: ", "verb=create_qp"},
      {"when opcode=SEND do fail EIO", "f:1:21: ", "verb=create_qp"},
      {"when verb=reg_mr do drop", "f:1:21: ", "block, fail"},
      {"when verb=reg_mr opcode=SEND do fail EIO", "f:1:33: ", "opcode= is about messages"},
      {"when verb=reg_mr message=3 do fail EIO", "f:1:31: ", "call="},
      {"when call=3 do drop", "f:1:16: ", "message="},
      {"when state=RTR do drop", "f:1:19: ", "modify_qp"},
      {"when verb=reg_mr state=RTR do fail EIO", "f:1:31: ", "modify_qp"},
      {"when verb=reg_mr do kill on=peer", "f:1:21: ", "on=peer"},
      {"when verb=reg_mr at=5ms do fail EIO", "f:1:28: ", "from="},
      {"do max-qp", "f:1:11: ", "number of objects"},
      {"do max-qp -1", "f:1:11: ", "number of objects"},
      {"do memlock 8Q", "f:1:12: ", "8M"},
      {"do segment 0xffffffff", "f:1:12: ", "segment"},
      {"do speed", "f:1:10: ", "4xEDR"},
      {"do speed 100", "f:1:10: ", "100G"},
      {"do speed 0G", "f:1:10: ", "100G"},
      {"do speed 150M", "f:1:10: ", "2500M"},
      {"do speed 3xEDR", "f:1:10: ", "1, 2, 4, 8 or 12"},
      {"do speed 4xEDX", "f:1:10: ", "XDR"},
      {"do speed 4x", "f:1:10: ", "4xEDR"},
      {"do speed 4xHDR@", "f:1:10: ", "4xHDR@150G"},
      {"do speed 4x0x1000000", "f:1:10: ", "number of a code"},
      {"do speed 99999999999G", "f:1:10: ", "100G"},
      {"when verb=create_ah reach=maybe do fail EIO", "f:1:27: ", "yes or no"},
      {"when verb=reg_mr reach=no do fail EIO", "f:1:30: ", "create_ah"},
      {"when reach=no do port-down", "f:1:18: ", "create_ah"},
      {"when verb=reg_mr every=5ms do fail EIO", "f:1:31: ", "number of calls"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string got = first_problem(mistake.text);
    EXPECT_EQ(got.substr(0, strlen(mistake.place)), mistake.place) << mistake.text << " -> " << got;
    EXPECT_NE(got.find(mistake.says), std::string::npos) << mistake.text << " -> " << got;
  }
}

TEST(Language, SeveralMistakes_AreAllReportedInOrder) {
  const ParseResult parsed = parse_rules("do drap\ndo drop\ndo dorp\n");
  ASSERT_EQ(parsed.problems.size(), 2u);
  EXPECT_EQ(parsed.problems[0].line, 1u);
  EXPECT_EQ(parsed.problems[1].line, 3u);
}

TEST(Language, KnownNames_MayBeWaitedFor) {
  EXPECT_TRUE(parse_rules("when after=old+5ms do port-up", {"old"}).ok());
  EXPECT_FALSE(parse_rules("when after=old+5ms do port-up", {"new"}).ok());
  EXPECT_TRUE(parse_rules("up: when after=down+5ms do port-up\ndown: do port-down").ok());
}

TEST(Language, TooManyRulesOrBytes_AreRefused) {
  std::string many;
  for (unsigned i = 0; i <= kMaxRules; ++i) many += "do drop\n";
  EXPECT_NE(first_problem(many).find("at most 254"), std::string::npos);
  EXPECT_NE(first_problem(std::string(kMaxFaultText + 1, '\n')).find("1 MiB"), std::string::npos);
}

TEST(Language, DescribedRule_ReadsBackTheSame) {
  const char* texts[] = {
      "kill: when device=softhca1 size>=16K offset=50% count=1 do port-down",
      "when node=1 peer=2 qpn=5 peer-qpn=0x99 path=3 imm=0x46 service=RC|UD direction=any opcode=READ|ACK do "
      "drop",
      "when message=5..9 attempt=all seed=7 probability=0.125 do corrupt xor=3",
      "when message=5.. every=3 do one-way",
      "when byte=1M attempt=2 do delay 1500us",
      "when at=3s every=250ms count=4 device=0 port=1 do port-down for=10ms on=self",
      "when size=4096 do port-flap down=10ms up=30ms",
      "when from=1ms until=2s size<=64 do complete RNR_RETRY_EXC_ERR",
      "when opcode=WRITE message=1 do late-write",
      "when direction=rx message=2 do kill on=peer",
      "do rate 0",
      "do gid 0xffffffffffffffff",
      "when qpn=9 do event CQ_ERR",
      "do latency 7us",
      "do speed 100G",
      "do speed 2500M",
      "do speed 350G",
      "do speed 1G",
      "do speed 12xXDR",
      "do speed 1x512",
      "do speed 4x0",
      "do speed 2x768@77700M",
      "when device=1 port=2 at=2s do speed 4xHDR@150G",
      "when node=1 device=0 at=1s do gids v1,v2,-,v2-ipv4@15,v1-ipv6",
      "do gids -",
      "do reorder",
      "when verb=create_ah device=1 peer=3 do block 1s fail=ETIMEDOUT",
      "when verb=reg_mr|dereg_mr size>=1M call=7.. do fail ENOMEM",
      "when verb=modify_qp state=RTR|RTS service=RC qpn=9 every=3 probability=0.5 do block 250us",
      "when node=1 device=0 do max-qp 12",
      "do max-cq 0",
      "when verb=create_qp call=3 do max-ah any",
      "when node=1 do memlock 8M",
      "do memlock any",
      "do memlock 4097",
      "when device=1 at=1s do isolate",
      "when device=1 node=2 do segment 7",
      "when verb=create_ah reach=no do block 1s fail=ETIMEDOUT",
      "when verb=modify_qp reach=yes do fail EIO",
      "when verb=any node=2 from=1s call=4 do device-fatal",
      "when verb=create_qp call=2 count=5 every=10ms do port-down for=1ms",
      "when device=1 do lose 5%",
      "when device=1 opcode=READ service=RC attempt=first seed=7 count=3 from=1s do lose 0.001",
  };
  for (const char* text : texts) {
    Rule first = parse_one(text);
    Rule second = parse_one(describe(first));
    EXPECT_EQ(memcmp(&first, &second, sizeof first), 0)
        << text << " -> " << describe(first) << " -> " << describe(second);
  }
}

TEST(Language, ExampleFiles_Parse) {
  unsigned files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SOFTHCA_EXAMPLES)) {
    if (entry.path().extension() != ".faults") continue;
    ++files;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const ParseResult parsed = parse_rules(text.str());
    EXPECT_FALSE(parsed.rules.empty()) << entry.path();
    for (const Problem& problem : parsed.problems)
      ADD_FAILURE() << format_problem(entry.path().string(), problem);
  }
  EXPECT_EQ(files, 7u);
}

}  // namespace
}  // namespace bfo::softhca
