// SPDX-License-Identifier: BSD-3-Clause
//
// btl_selection_test.cc: which ports of a host become rails: a table of hosts.
#include "btl/verbs/engine/select/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace bfo::test {
namespace {

using engine::PortFacts;
using engine::PortVerdict;
using engine::SelectionRules;
using engine::Transport;
using Host = std::vector<PortFacts>;
using Names = std::vector<std::string>;

constexpr uint32_t k25G = 25'000;
constexpr uint32_t k100G = 100'000;
constexpr uint32_t k200G = 200'000;

PortFacts infiniband(const std::string& device, uint32_t rate, uint8_t subnet = 1) {
  PortFacts port;
  snprintf(port.device, sizeof port.device, "%s", device.c_str());
  port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  port.rate = rate;
  port.gid.index = 0;
  port.gid.type = engine::GidType::kInfiniband;
  port.gid.gid.raw[0] = 0xfe;
  port.gid.gid.raw[1] = 0x80;
  port.gid.gid.raw[7] = subnet;
  port.pkey = 0xffff;
  return port;
}

/// A RoCE port with the address 10.0.`net`.1/24.
PortFacts roce(const std::string& device, uint32_t rate, uint8_t net) {
  PortFacts port = infiniband(device, rate);
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.gid = engine::GidEntry{3, engine::GidType::kRoceV2, 120, {}};
  const uint8_t raw[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, net, 1};
  std::copy(raw, raw + 16, port.gid.gid.raw);
  return port;
}

PortFacts at(PortFacts port, uint32_t distance) {
  port.distance = distance;
  return port;
}

PortFacts down(PortFacts port) {
  port.active = false;
  return port;
}

PortFacts empty(PortFacts port) {
  port.active = false;
  port.had_link = false;
  return port;
}

PortFacts with(PortFacts port, Transport transport) {
  port.transport = transport;
  return port;
}

std::vector<PortVerdict> judge(const Host& host, const SelectionRules& rules = {}) {
  std::vector<PortVerdict> verdicts(host.size());
  engine::select_ports(host.data(), host.size(), rules, verdicts.data());
  return verdicts;
}

Names used(const Host& host, const SelectionRules& rules = {}) {
  const std::vector<PortVerdict> verdicts = judge(host, rules);
  Names names;
  for (size_t i = 0; i < host.size(); ++i) {
    if (verdicts[i] == PortVerdict::kUsed) names.push_back(host[i].device);
  }
  return names;
}

SelectionRules failover() {
  SelectionRules rules;
  rules.failover = true;
  return rules;
}

SelectionRules named(const char* include, bool with_failover = true) {
  SelectionRules rules;
  rules.include = include;
  rules.failover = with_failover;
  return rules;
}

/// A GPU node: eight HCAs, four next to each socket, each on a network of its own, and two management ports.
Host gpu_node(bool ethernet, uint32_t other_socket) {
  Host host;
  for (uint8_t i = 0; i < 8; ++i) {
    const std::string name = "mlx5_" + std::to_string(i);
    const PortFacts port = ethernet ? roce(name, k200G, i) : infiniband(name, k200G);
    host.push_back(at(port, i < 4 ? engine::kNear : other_socket));
  }
  host.push_back(roce("mlx5_8", k25G, 100));
  host.push_back(roce("mlx5_9", k25G, 101));
  return host;
}

// ---- link layer, transport, state

TEST(Selection, Iwarp_IsNoRailForItHasNoDatagrams) {
  const Host irdma = {with(roce("irdma0", k100G, 1), Transport::kIwarp),
                      with(roce("irdma1", k100G, 2), Transport::kIwarp)};
  EXPECT_EQ(judge(irdma), (std::vector{PortVerdict::kIwarp, PortVerdict::kIwarp}));
  EXPECT_EQ(judge(irdma, named("irdma0"))[0], PortVerdict::kIwarp) << "its name does not help";
}

TEST(Selection, Efa_IsNoRailForItHasNoReliableConnections) {
  const Host efa = {with(infiniband("efa_0", k100G), Transport::kOther)};
  EXPECT_EQ(judge(efa), (std::vector{PortVerdict::kNoRc}));
}

TEST(Selection, TransportOfADevice_IsWhatLibibverbsSays) {
  ibv_device device{};
  device.transport_type = IBV_TRANSPORT_IB;
  EXPECT_EQ(engine::transport_of(device), Transport::kInfiniband);
  device.transport_type = IBV_TRANSPORT_IWARP;
  EXPECT_EQ(engine::transport_of(device), Transport::kIwarp);
  for (const ibv_transport_type type :
       {IBV_TRANSPORT_UNSPECIFIED, IBV_TRANSPORT_USNIC, IBV_TRANSPORT_UNKNOWN}) {
    device.transport_type = type;
    EXPECT_EQ(engine::transport_of(device), Transport::kOther) << type;
  }
}

TEST(Selection, IrdmaInIwarpModeBesideRoce_TheRocePortIsUsed) {
  const Host host = {with(roce("irdma0", k100G, 1), Transport::kIwarp), roce("mlx5_0", k100G, 2)};
  EXPECT_EQ(used(host), Names{"mlx5_0"});
}

TEST(Selection, PortThatIsDown_IsUsedOnlyWithFailover) {
  const Host host = {infiniband("mlx5_0", k100G), down(infiniband("mlx5_1", k100G))};
  EXPECT_EQ(judge(host)[1], PortVerdict::kInactive);
  EXPECT_EQ(judge(host, failover())[1], PortVerdict::kUsed);
  EXPECT_EQ(judge(host, named("mlx5_0,mlx5_1", false))[1], PortVerdict::kInactive);
  EXPECT_EQ(judge(host, named("mlx5_0,mlx5_1"))[1], PortVerdict::kUsed);
}

TEST(Selection, CageWithoutCable_IsUsedOnlyWhenNamed) {
  const Host host = {infiniband("mlx5_0", k100G), empty(infiniband("mlx5_1", k100G))};
  EXPECT_EQ(judge(host, failover())[1], PortVerdict::kInactive);
  EXPECT_EQ(judge(host, named("mlx5_0,mlx5_1"))[1], PortVerdict::kUsed);
}

TEST(Selection, NoPortIsActive_TheyAreLeftToOtherBtlsWhereThereAreAny) {
  const Host host = {down(infiniband("mlx5_0", k100G)), down(infiniband("mlx5_1", k100G))};
  EXPECT_EQ(judge(host, failover()), (std::vector{PortVerdict::kNoneActive, PortVerdict::kNoneActive}));
  EXPECT_EQ(used(host, named("mlx5_0,mlx5_1")).size(), 2u);
  SelectionRules rules = failover();
  rules.alone = true;
  EXPECT_EQ(used(host, rules).size(), 2u);
}

TEST(Selection, PortsThatAreDown_TakeNoPlaceOfActiveOnes) {
  const Host host = {down(infiniband("near0", k100G)), down(infiniband("near1", k100G)),
                     at(infiniband("far0", k100G), 21), at(infiniband("far1", k100G), 21)};
  EXPECT_EQ(used(host, failover()).size(), 4u);
  SelectionRules rules = failover();
  rules.most = 2;
  EXPECT_EQ(used(host, rules), (Names{"far0", "far1"}));
  const Host near = {infiniband("near0", k100G), infiniband("near1", k100G),
                     at(down(infiniband("far0", k100G)), 21)};
  EXPECT_EQ(judge(near, failover())[2], PortVerdict::kFar);
}

TEST(Selection, SpeedOfAPortThatIsDown_IsNotCompared) {
  const Host host = {roce("mlx5_0", k100G, 1), down(roce("mlx5_1", k25G, 2))};
  EXPECT_EQ(used(host, failover()), (Names{"mlx5_0", "mlx5_1"}));
  const Host slow = {roce("bnxt_re0", k25G, 1), down(roce("mlx5_1", k200G, 2))};
  EXPECT_EQ(used(slow, failover()), (Names{"bnxt_re0", "mlx5_1"}));
}

TEST(HadLink, EveryTraceOfALinkCounts_AndNothingElse) {
  constexpr uint8_t kPolling = 2;
  const engine::LinkTraces cage = {IBV_PORT_DOWN, kPolling, 0, engine::GidKind::kLinkLocal, false};
  EXPECT_FALSE(engine::had_link(cage));
  for (const uint8_t phys : {0, 1, 2, 3, 4, 5, 6, 7}) {
    engine::LinkTraces traces = cage;
    traces.phys_state = phys;
    EXPECT_EQ(engine::had_link(traces), phys > 3) << int{phys};
  }
  for (const ibv_port_state state : {IBV_PORT_INIT, IBV_PORT_ARMED, IBV_PORT_ACTIVE}) {
    engine::LinkTraces traces = cage;
    traces.state = static_cast<uint8_t>(state);
    EXPECT_TRUE(engine::had_link(traces)) << state;
  }
  engine::LinkTraces traces = cage;
  traces.lid = 17;
  EXPECT_TRUE(engine::had_link(traces));
  traces.lid = 0xffff;  // what mlx5 reports without a LID
  EXPECT_FALSE(engine::had_link(traces));
  for (const engine::GidKind kind : {engine::GidKind::kIpv4, engine::GidKind::kGlobal}) {
    traces = cage;
    traces.address = kind;
    EXPECT_TRUE(engine::had_link(traces));
  }
  traces = cage;
  traces.counted = true;
  EXPECT_TRUE(engine::had_link(traces));
}

TEST(Selection, EthernetPortWithoutAddress_IsNoRail) {
  PortFacts port = roce("bnxt_re0", k100G, 1);
  port.gid = engine::GidEntry{};
  EXPECT_EQ(judge({port}), std::vector{PortVerdict::kNoAddress});
  EXPECT_EQ(judge({down(port)}, named("bnxt_re0")), std::vector{PortVerdict::kUsed}) << "it gets one later";
}

TEST(Selection, PortOutsideTheWishedPartition_IsNoRail) {
  PortFacts port = infiniband("mlx5_0", k100G);
  port.pkey_index = -1;
  EXPECT_EQ(judge({port}), std::vector{PortVerdict::kNoPartition});
  EXPECT_EQ(judge({down(port)}, named("mlx5_0")), std::vector{PortVerdict::kNoPartition});
}

TEST(Selection, IncludeAndExclude_NameDevicesOrPorts) {
  PortFacts second = infiniband("mlx5_0", k100G);
  second.number = 2;
  const Host host = {infiniband("mlx5_0", k100G), second, infiniband("mlx5_1", k100G)};
  EXPECT_EQ(used(host, named("mlx5_0")), (Names{"mlx5_0", "mlx5_0"}));
  EXPECT_EQ(used(host, named("mlx5_0:2,mlx5_1:1")), (Names{"mlx5_0", "mlx5_1"}));
  SelectionRules rules;
  rules.exclude = "mlx5_0:2";
  EXPECT_EQ(judge(host, rules)[1], PortVerdict::kExcluded);
  EXPECT_EQ(used(host, rules), (Names{"mlx5_0", "mlx5_1"}));
}

// ---- speed

TEST(Selection, PortsOfAnySpeed_AreRails) {
  const Host host = {infiniband("mlx5_0", k200G), roce("mlx5_1", k25G, 1), infiniband("mlx5_2", k100G),
                     roce("mlx5_3", k100G, 2)};
  for (const SelectionRules& rules : {SelectionRules{}, failover(), named("mlx5_0,mlx5_1,mlx5_2,mlx5_3")})
    EXPECT_EQ(used(host, rules).size(), 4u);
}

TEST(Selection, SlowPortThatIsLeftOut_IsWorthAWord) {
  SelectionRules rules = failover();
  rules.most = 1;
  const auto mixed = [&rules](const Host& host) {
    const std::vector<PortVerdict> verdicts = judge(host, rules);
    return engine::speeds_are_mixed(host.data(), host.size(), verdicts.data());
  };
  EXPECT_TRUE(mixed({infiniband("mlx5_0", k200G), roce("mlx5_1", k25G, 1)}));
  EXPECT_TRUE(mixed({at(infiniband("far", k200G), 21), roce("near", k25G, 1)}))
      << "the faster one is left out";
  EXPECT_FALSE(mixed({infiniband("mlx5_0", k200G), infiniband("mlx5_1", k200G)}));
  EXPECT_FALSE(mixed({infiniband("mlx5_0", k200G), down(roce("mlx5_1", k25G, 1))}));
  rules.most = 2;
  EXPECT_FALSE(mixed({infiniband("mlx5_0", k200G), roce("mlx5_1", k25G, 1)}));
}

TEST(Selection, BnxtPairOfOneSpeed_AreTwoRails) {
  const Host host = {roce("bnxt_re0", k25G, 1), roce("bnxt_re1", k25G, 1)};
  EXPECT_EQ(used(host, failover()).size(), 2u);
  EXPECT_EQ(used(host).size(), 2u);
}

// ---- locality

TEST(Selection, GpuNodeWithOneInfinibandFabric_UsesTheNearHcasAndThoseOfOtherFabrics) {
  const Names near = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_8", "mlx5_9"};
  EXPECT_EQ(used(gpu_node(false, 21)), near);
  EXPECT_EQ(used(gpu_node(false, 21), failover()), near);
  SelectionRules rules;
  rules.ignore_locality = true;
  EXPECT_EQ(used(gpu_node(false, 21), rules).size(), 10u);
  EXPECT_EQ(used(gpu_node(false, engine::kNear)).size(), 10u) << "a process that is bound nowhere";
  rules.most = 8;
  const Names fast = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"};
  EXPECT_EQ(used(gpu_node(false, 21), rules), fast);
}

TEST(Selection, GpuNodeWithARoceSubnetPerHca_KeepsAPortOfEveryFabric) {
  const std::vector<PortVerdict> verdicts = judge(gpu_node(true, 21), failover());
  EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), PortVerdict::kUsed), 10)
      << "also in those of management";
}

TEST(Selection, OneNearPort_HasASecondOneWithFailover) {
  const Host host = {at(infiniband("mlx5_0", k100G), 21), infiniband("mlx5_1", k100G),
                     at(infiniband("mlx5_2", k100G), 32), at(infiniband("mlx5_3", k100G), 21)};
  EXPECT_EQ(used(host), Names{"mlx5_1"});
  EXPECT_EQ(used(host, failover()), (Names{"mlx5_0", "mlx5_1"}));
  EXPECT_EQ(judge(host)[2], PortVerdict::kFar);
}

TEST(Selection, AllPortsFarAlike_AreAllUsed) {
  const Host host = {at(infiniband("mlx5_0", k100G), 21), at(infiniband("mlx5_1", k100G), 21),
                     at(infiniband("mlx5_2", k100G), 21)};
  EXPECT_EQ(used(host).size(), 3u);
}

TEST(Selection, NamedPorts_AreUsedWhateverTheirDistance) {
  const Host host = {infiniband("mlx5_0", k100G), at(infiniband("mlx5_1", k100G), 32),
                     at(infiniband("mlx5_2", k100G), 32)};
  EXPECT_EQ(used(host, named("mlx5_0,mlx5_1,mlx5_2", false)).size(), 3u);
}

TEST(Selection, Bound_KeepsNearThenFastThenFirst) {
  const Host host = {at(infiniband("far", k200G, 1), 21), infiniband("near", k100G, 2),
                     infiniband("fast", k200G, 3), infiniband("late", k100G, 4)};
  SelectionRules rules;
  rules.most = 2;
  EXPECT_EQ(used(host, rules), (Names{"near", "fast"}));
  rules.most = 1;
  EXPECT_EQ(used(host, rules), Names{"fast"});
  rules.most = 3;
  EXPECT_EQ(used(host, rules), (Names{"near", "fast", "late"}));
  EXPECT_EQ(judge(host, rules)[0], PortVerdict::kTooMany);
  rules.ignore_locality = true;
  rules.most = 2;
  EXPECT_EQ(used(host, rules), (Names{"far", "fast"}));
}

TEST(Selection, AnyVerdict_HasAText) {
  for (int verdict = 0; verdict <= static_cast<int>(PortVerdict::kTooMany); ++verdict)
    EXPECT_GT(std::string(engine::verdict_text(static_cast<PortVerdict>(verdict))).size(), 6u);
}

// ---- places

std::vector<engine::PortPlace> places(const Host& host, const SelectionRules& rules) {
  const std::vector<PortVerdict> verdicts = judge(host, rules);
  std::vector<engine::PortPlace> places(host.size());
  engine::place_ports(host.data(), host.size(), verdicts.data(), places.data());
  return places;
}

TEST(Place, PortsThatAreNotUsedNow_KeepTheirOrdinal) {
  Host host = {infiniband("mlx5_0", k100G), infiniband("mlx5_1", k100G), roce("mlx5_2", k25G, 1),
               infiniband("mlx5_3", k100G), roce("mlx5_4", k100G, 1)};
  const auto all = places(host, failover());
  EXPECT_EQ(all[3].ordinal, 2);
  EXPECT_EQ(all[4].ordinal, 1);
  host[0].active = false;
  EXPECT_EQ(places(host, failover())[3].ordinal, 2);
  SelectionRules rules;
  rules.exclude = "mlx5_0";
  EXPECT_EQ(places(host, rules)[3].ordinal, 1) << "a port nobody may use does not count";
}

TEST(Place, NearPortsOfTwoSockets_MeetInTheirOrder) {
  Host here;
  Host there;
  for (uint8_t i = 0; i < 8; ++i) {
    here.push_back(at(infiniband("mlx5_" + std::to_string(i), k200G), i < 4 ? 10 : 21));
    there.push_back(at(infiniband("mlx5_" + std::to_string(i), k200G), i < 4 ? 21 : 10));
  }
  std::vector<engine::PortPlace> ours = places(here, failover());
  std::vector<engine::PortPlace> theirs = places(there, failover());
  ours.resize(4);
  theirs.erase(theirs.begin(), theirs.begin() + 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(engine::meeting_port(ours.data(), 4, i, theirs.data(), 4), i);
}

// ---- fabrics that cannot be told apart

bool misleads(Host host) {
  for (PortFacts& port : host) port.gid.gid.raw[7] = 0;  // fe80::/64
  const std::vector<PortVerdict> verdicts = judge(host);
  size_t first = 0;
  size_t second = 0;
  return engine::prefixes_mislead(host.data(), host.size(), verdicts.data(), &first, &second);
}

PortFacts in_fabric(const std::string& device, uint16_t lid, uint16_t manager) {
  PortFacts port = infiniband(device, k100G);
  port.lid = lid;
  port.subnet_manager = manager;
  return port;
}

TEST(DefaultPrefix, TwoPortsOfOneFabric_AreNoReasonToWarn) {
  EXPECT_FALSE(misleads({in_fabric("mlx5_0", 3, 1), in_fabric("mlx5_1", 4, 1)}));
}

TEST(DefaultPrefix, EqualLidsOrTwoSubnetManagers_AreTwoFabrics) {
  EXPECT_TRUE(misleads({in_fabric("mlx5_0", 3, 1), in_fabric("mlx5_1", 3, 1)}));
  EXPECT_TRUE(misleads({in_fabric("mlx5_0", 3, 1), in_fabric("mlx5_1", 4, 2)}));
  EXPECT_FALSE(misleads({in_fabric("mlx5_0", 3, 1), down(in_fabric("mlx5_1", 3, 1))}));
}

TEST(DefaultPrefix, OwnPrefixes_AreNoReasonToWarn) {
  Host host = {in_fabric("mlx5_0", 3, 1), in_fabric("mlx5_1", 3, 2)};
  const std::vector<PortVerdict> verdicts = judge(host);
  size_t first = 0;
  size_t second = 0;
  EXPECT_FALSE(engine::prefixes_mislead(host.data(), host.size(), verdicts.data(), &first, &second));
}

}  // namespace
}  // namespace bfo::test
