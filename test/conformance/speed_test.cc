// SPDX-License-Identifier: BSD-3-Clause
//
// The speed of a link: what a program reads of it with an old header and a new one, and the event when it
// changes.
#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "contrib/softhca/fault/link_speed.h"
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

using QueryPortSpeed = int (*)(ibv_context*, uint32_t, uint64_t*);

/// As a program gets it that is built with an older header.
QueryPortSpeed query_port_speed() {
  return reinterpret_cast<QueryPortSpeed>(dlsym(RTLD_DEFAULT, "ibv_query_port_speed"));
}

/// What a program sees whose ibv_port_attr ends with active_speed_ex.
struct NewerAttr {
  alignas(ibv_port_attr) uint8_t bytes[56];
  ibv_port_attr attr() const {
    ibv_port_attr known;
    std::memcpy(&known, bytes, 52);
    return known;
  }
  uint32_t active_speed_ex() const {
    uint32_t code;
    std::memcpy(&code, bytes + 52, sizeof code);
    return code;
  }
};

NewerAttr query_newer(ibv_context* context) {
  NewerAttr newer;
  std::memset(&newer, 0xee, sizeof newer);
  verbs_context* const verbs = verbs_get_ctx_op(context, query_port);
  EXPECT_EQ(verbs->query_port(context, 1, reinterpret_cast<ibv_port_attr*>(newer.bytes), sizeof newer.bytes),
            0);
  return newer;
}

class Speed : public Conformance {
 protected:
  void TearDown() override {
    Lab::get().inject("do speed 4xEDR");
    Side settle;
    settle.wait_event(20);
    Lab::get().clear_rules();
    Conformance::TearDown();
  }
  /// Waits until the rule has fired.
  static void become(Side& side, const std::string& speed) {
    Lab::get().inject("when device=0 do speed " + speed);
    softhca::LinkSpeed wanted;
    ASSERT_TRUE(softhca::read_link_speed(speed, wanted)) << speed;
    for (int i = 0; i < 500 && query_newer(side.context).active_speed_ex() != wanted.lane; ++i)
      side.wait_event(10);
    ASSERT_EQ(query_newer(side.context).active_speed_ex(), wanted.lane) << speed;
  }
};

TEST_F(Speed, Lanes_AreReportedToOldAndNewPrograms) {
  struct Case {
    const char* text;
    uint8_t width, speed;
    uint32_t speed_ex;
    uint64_t bandwidth;  // 100 Mbit/s; 0: the device cannot tell
  };
  const Case cases[] = {
      {"4xEDR", 2, 32, 32, 1000},    {"10G", 2, 1, 1, 100},           {"1xHDR", 1, 64, 64, 500},
      {"400G", 2, 128, 128, 4000},   {"4xXDR", 2, 128, 256, 8000},    {"12xQDR", 8, 4, 4, 1200},
      {"2xNDR", 16, 128, 128, 2000}, {"4xHDR@150G", 2, 64, 64, 1500}, {"1x512", 1, 128, 512, 0},
      {"1x3", 1, 3, 3, 0},
  };
  ASSERT_NE(query_port_speed(), nullptr);
  Side side;
  for (const Case& c : cases) {
    become(side, c.text);
    const NewerAttr newer = query_newer(side.context);
    EXPECT_EQ(newer.active_speed_ex(), c.speed_ex) << c.text;
    ibv_port_attr attr;
    ASSERT_EQ(ibv_query_port(side.context, 1, &attr), 0);
    for (const ibv_port_attr& seen : {attr, newer.attr()}) {
      EXPECT_EQ(seen.active_width, c.width) << c.text;
      EXPECT_EQ(seen.active_speed, c.speed) << c.text << ": the fastest that eight bits have, if not its own";
      EXPECT_EQ(seen.state, IBV_PORT_ACTIVE);
    }
    uint64_t bandwidth = 0;
    EXPECT_EQ(query_port_speed()(side.context, 1, &bandwidth), c.bandwidth == 0 ? EOPNOTSUPP : 0) << c.text;
    EXPECT_EQ(bandwidth, c.bandwidth) << c.text;
  }
}

TEST_F(Speed, QueryPortSpeed_HasItsVersionAndRefusesWhatIsNoPort) {
  ASSERT_NE(query_port_speed(), nullptr);
  Side side;
  EXPECT_EQ(dlvsym(RTLD_DEFAULT, "ibv_query_port_speed", "IBVERBS_1.16"),
            reinterpret_cast<void*>(query_port_speed()));
  uint64_t bandwidth = 7;
  for (const uint32_t port : {0u, 3u, 255u, 256u, 257u, ~0u})
    EXPECT_EQ(query_port_speed()(side.context, port, &bandwidth), EINVAL) << port;
  EXPECT_EQ(bandwidth, 7u);
}

TEST_F(Speed, Change_RaisesAnEventThatNamesNoPort) {
  constexpr auto kChange = static_cast<ibv_event_type>(softhca::kDeviceSpeedChange);
  Side side;
  SideOptions other_rail;
  other_rail.device = 1;
  Side other(other_rail);
  Lab::get().inject("when device=0 do speed 4xEDR");
  EXPECT_FALSE(side.wait_event(50).has_value()) << "it has that speed";
  Lab::get().inject("when device=0 do speed 10G");
  const auto event = side.wait_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, kChange);
  EXPECT_EQ(event->element.port_num, 0);
  EXPECT_STREQ(ibv_event_type_str(event->event_type), "Device speed change");
  EXPECT_FALSE(other.wait_event(20).has_value());
  Lab::get().inject("when device=1 do event DEVICE_SPEED_CHANGE");
  EXPECT_TRUE(other.wait_event_of(kChange));
}

}  // namespace
}  // namespace bfo::conformance
