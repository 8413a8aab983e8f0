// SPDX-License-Identifier: BSD-3-Clause
//
// shortfall.cc: see shortfall.h.
#include "btl/verbs/engine/select/shortfall.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace bfo::engine {
namespace {

/// A port that is a rail, or would be if nothing were wrong with it.
bool counts(PortVerdict verdict) {
  return verdict == PortVerdict::kUsed || verdict == PortVerdict::kNotMade ||
         verdict == PortVerdict::kNoneActive || verdict == PortVerdict::kUnreadable ||
         verdict == PortVerdict::kNoAddress || verdict == PortVerdict::kNoPartition;
}

bool works(const PortFacts& port, PortVerdict verdict) {
  return verdict == PortVerdict::kUsed && port.active;
}

/// What is wrong with a port that counts.
const char* trouble(PortVerdict verdict) {
  switch (verdict) {
    case PortVerdict::kUsed:
    case PortVerdict::kNoneActive:
      return "is not ACTIVE";
    case PortVerdict::kNotMade:
      return "cannot be opened";
    case PortVerdict::kUnreadable:
      return "cannot be asked";
    case PortVerdict::kNoAddress:
      return "has no address to use";
    default:
      return "is no member of the partition";
  }
}

/// Appends to a text that is cut where there is no room.
void add(char* text, size_t size, const char* more) {
  const size_t used = strlen(text);
  snprintf(text + used, size - used, "%s", more);
}

/// Appends " and 2 more" unless there are none.
void add_rest(unsigned more, Shortfall* out) {
  if (more == 0) return;
  char rest[40];
  snprintf(rest, sizeof rest, " and %u more", more);
  add(out->missing, sizeof out->missing, rest);
}

/// "port 1 of softhca1 is not ACTIVE, ..." of all ports that count and do not work. The first one's remedy.
void tell_troubles(const PortFacts* ports, size_t count, const PortVerdict* verdicts, Shortfall* out) {
  constexpr unsigned kNamed = 3;
  unsigned named = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!counts(verdicts[i]) || works(ports[i], verdicts[i])) continue;
    if (++named > kNamed) continue;
    char one[96];
    snprintf(one, sizeof one, "%sport %u of %.40s %s", named > 1 ? ", " : "", unsigned{ports[i].number},
             ports[i].device, trouble(verdicts[i]));
    add(out->missing, sizeof out->missing, one);
    if (named > 1) continue;
    if (verdicts[i] == PortVerdict::kUsed)
      snprintf(out->remedy, sizeof out->remedy,
               "Look at its cable and switch (ibv_devinfo -d %.40s); its rail joins the job when the port is "
               "ACTIVE",
               ports[i].device);
    else if (verdicts[i] == PortVerdict::kNoneActive)
      snprintf(out->remedy, sizeof out->remedy,
               "Look at the cables and switches (ibv_devinfo); ports that btl_verbs_if_include names join "
               "the job later");
    else
      snprintf(out->remedy, sizeof out->remedy, "The message of btl/verbs about it says what helps");
  }
  add_rest(named > kNamed ? named - kNamed : 0, out);
}

/// Why ports that were found do not count, as far as somebody can change it, and how.
struct Choice {
  PortVerdict verdict;
  const char* missing;
  const char* remedy;
};
constexpr Choice kChoices[] = {
    {PortVerdict::kExcluded, "btl_verbs_if_include or btl_verbs_if_exclude leaves out port",
     "Let these parameters leave two ports or more"},
    {PortVerdict::kTooMany, "btl_verbs_max_btls leaves out port", "Raise that parameter"},
    {PortVerdict::kInactive, "nothing shows that there is a cable in port",
     "Connect it, or name it in btl_verbs_if_include if it is connected (ibv_devinfo shows its state)"},
    {PortVerdict::kIwarp, "iWARP cannot carry rails, and has port", "Use InfiniBand or RoCE devices"},
    {PortVerdict::kNoRc, "without reliable connections is port", "Use InfiniBand or RoCE devices"},
};

void tell_choices(const PortFacts* ports, size_t count, const PortVerdict* verdicts, Shortfall* out) {
  for (const Choice& choice : kChoices) {
    for (size_t i = 0; i < count; ++i) {
      if (verdicts[i] != choice.verdict) continue;
      snprintf(out->missing, sizeof out->missing, "%s %u of %.40s", choice.missing, unsigned{ports[i].number},
               ports[i].device);
      const auto more = std::count(verdicts + i + 1, verdicts + count, choice.verdict);
      add_rest(static_cast<unsigned>(more), out);
      snprintf(out->remedy, sizeof out->remedy, "%s", choice.remedy);
      return;
    }
  }
  const bool none = count == 0;
  snprintf(out->missing, sizeof out->missing, "%s", none ? "it has no RDMA device" : "it has no other port");
  snprintf(out->remedy, sizeof out->remedy, "%s",
           none ? "Load the driver of its InfiniBand or RoCE devices (ibv_devinfo lists them)"
                : "Connect a second port of an InfiniBand or RoCE device (ibv_devinfo lists them)");
}

}  // namespace

Shortfall shortfall_of(const PortFacts* ports, size_t count, const PortVerdict* verdicts) {
  Shortfall out{};
  bool trouble = false;
  for (size_t i = 0; i < count; ++i) {
    out.expected += counts(verdicts[i]) ? 1 : 0;
    trouble = trouble || (counts(verdicts[i]) && !works(ports[i], verdicts[i]));
  }
  if (trouble)
    tell_troubles(ports, count, verdicts, &out);
  else
    tell_choices(ports, count, verdicts, &out);
  return out;
}

Shortfall not_used() {
  Shortfall out{};
  snprintf(out.missing, sizeof out.missing, "the BTL verbs is not used");
  snprintf(out.remedy, sizeof out.remedy, "Its own message says why");
  return out;
}

}  // namespace bfo::engine
