// SPDX-License-Identifier: BSD-3-Clause
//
// console.cc: text and rate of the lines about lost rails, and of those about peers without one. Does not use
// Open MPI.
#include "pml/bfo/glue/console.h"

#include <cstdio>
#include <cstring>

#include "common/failover_btl.h"

namespace bfo::glue {

namespace {

constexpr uint64_t kQuietNs = 10'000'000'000;
constexpr uint64_t kLongestQuietNs = 640'000'000'000;
// That no rail is left is said at once, again and again when it happens again.
constexpr uint64_t kLastQuietNs = 1'000'000'000;
constexpr uint64_t kLongestLastQuietNs = 64'000'000'000;
// The words of several processes about one pair of hosts are up to ten seconds apart.
constexpr uint64_t kNoRailQuietNs = 8'500'000'000;

const char* plural(uint64_t n) {
  return n == 1 ? "" : "s";
}

// What no other port has, also where several hosts are played on one.
const char* identity(const EventNames& names) {
  return names.own_port[0] != '\0' ? names.own_port : names.device;
}

// "rank 9 (host n5, mlx5_0 port 1)"
struct OtherEnd {
  char text[300];
  explicit OtherEnd(const EventNames& names) {
    int n = snprintf(text, sizeof(text), "rank %d", names.peer);
    if (*names.peer_host == '\0') return;
    n += snprintf(text + n, sizeof(text) - static_cast<size_t>(n), " (host %.128s", names.peer_host);
    if (*names.peer_device != '\0')
      n += snprintf(text + n, sizeof(text) - static_cast<size_t>(n), ", %.64s port %u", names.peer_device,
                    names.peer_port);
    snprintf(text + n, sizeof(text) - static_cast<size_t>(n), ")");
  }
};

}  // namespace

void Console::tell(const FailoverEvent& e, const EventNames& names, uint64_t now_ns) {
  // The last rail has its own line: that no other one is left is said whatever was said a moment ago.
  const bool last = e.rails_left == 0;
  const uint64_t key = last ? claim_key("last", identity(names), names.port, e.text)
                            : claim_key("lost", names.device, names.port, e.text);
  const Claims::Turn turn =
      claims_.take(key, now_ns, last ? kLastQuietNs : kQuietNs, last ? kLongestLastQuietNs : kLongestQuietNs);
  if (!turn.mine) return;
  using ull = unsigned long long;
  const bool went = e.resumed_ns > e.evidence_ns && e.bytes_resent + e.messages_resent != 0;
  const bool waits = e.bytes_waiting + e.messages_waiting != 0;
  char resent[160] = "nothing had to be sent again";
  int n = 0;
  if (went)
    n = snprintf(resent, sizeof(resent), "resumed after %.3f ms, %llu bytes sent again%s",
                 static_cast<double>(e.resumed_ns - e.evidence_ns) * 1e-6, static_cast<ull>(e.bytes_resent),
                 waits ? ", " : "");
  if (waits)
    snprintf(resent + n, sizeof(resent) - static_cast<size_t>(n), "%llu %s for a rail",
             static_cast<ull>(e.bytes_waiting != 0 ? e.bytes_waiting : e.messages_waiting),
             e.bytes_waiting != 0      ? "bytes wait"
             : e.messages_waiting == 1 ? "message waits"
                                       : "messages wait");
  char more[64] = "";
  if (turn.counted != 0)
    snprintf(more, sizeof(more), " (and %u more connection%s since the last line)", turn.counted,
             plural(turn.counted));
  // Nothing broke that was there: the sentence about what helps is printed by the BTL, once for many peers.
  const bool lacks = e.cause == BFO_CAUSE_RESOURCE;
  const char* what = lacks ? "goes on without" : "lost";
  const char* gone = lacks  ? " (btl/verbs says what helps)"
                     : last ? " (its process or node may be gone)"
                            : "";
  char line[1024];
  snprintf(line, sizeof(line), "bfo: rank %d %s rail %d (%s port %u) to %s%s: %s; %s, %u rail%s left%s",
           names.rank, what, static_cast<int>(e.rail), names.device, names.port, OtherEnd(names).text, more,
           e.text, resent, static_cast<unsigned>(e.rails_left), plural(e.rails_left), gone);
  print_(line);
}

void Console::tell_no_rail(const FailoverEvent& e, const EventNames& names, int park_timeout,
                           uint64_t now_ns) {
  // After its first second, and then every ten.
  constexpr uint64_t kFirst = 5'000'000'000;
  const uint64_t key = claim_key(e.waited_ns < kFirst ? "no rail" : "still no rail", identity(names),
                                 names.port, names.peer_host);
  if (!claims_.take(key, now_ns, e.waited_ns < kFirst ? kLastQuietNs : kNoRailQuietNs).mine) return;
  using ull = unsigned long long;
  char end[96];
  if (park_timeout < 0)
    snprintf(end, sizeof(end), "; pml_bfo_park_timeout is %d: it waits without limit", park_timeout);
  else
    snprintf(end, sizeof(end), ", or ends after pml_bfo_park_timeout (%d s)", park_timeout);
  char line[640];
  snprintf(
      line, sizeof(line),
      "bfo: rank %d has had no rail to host %s (rank %d) for %llu s, %llu message%s wait%s; the job goes on "
      "when a rail comes back%s",
      names.rank, names.peer_host, names.peer, static_cast<ull>(e.waited_ns / 1'000'000'000),
      static_cast<ull>(e.messages_waiting), plural(e.messages_waiting), e.messages_waiting == 1 ? "s" : "",
      end);
  print_(line);
}

void Console::tell_degraded(const DegradedEvent& e, const EventNames& names, uint64_t now_ns) {
  const uint64_t key = claim_key(e.in ? "degraded in" : "degraded out", names.device, names.port);
  const Claims::Turn turn = claims_.take(key, now_ns, kQuietNs, kLongestQuietNs);
  if (!turn.mine) return;
  char before[40] = "";
  if (e.before != 0) snprintf(before, sizeof(before), ", before %u", static_cast<unsigned>(e.before));
  char more[64] = "";
  if (turn.counted != 0)
    snprintf(more, sizeof(more), " (and %u more rail%s since the last line)", turn.counted,
             plural(turn.counted));
  const char* const side = slow_side(e);
  const char* const look = strcmp(side, "here") == 0    ? "; all rails over this port are slow"
                           : strcmp(side, "there") == 0 ? "; others over this port are not"
                                                        : "";
  char line[900];
  snprintf(
      line, sizeof(line),
      "bfo: rank %d: rail %d (%s port %u) to %s is degraded%s: for %.1f s it has moved at most %u Mbit/s "
      "%s%s, another rail %u%s; it gets its share of the traffic",
      names.rank, static_cast<int>(e.rail), names.device, names.port, OtherEnd(names).text, more,
      static_cast<double>(e.low_ns) * 1e-9, static_cast<unsigned>(e.rate),
      e.in ? "to this host" : "to that host", before, static_cast<unsigned>(e.others), look);
  print_(line);
}

void Console::tell_speed(const PortSpeed& speed, uint64_t now_ns) {
  char rate[24];
  snprintf(rate, sizeof(rate), "speed %u", static_cast<unsigned>(speed.now));
  const Claims::Turn turn =
      claims_.take(claim_key(rate, speed.device, speed.port), now_ns, kQuietNs, kLongestQuietNs);
  if (!turn.mine) return;
  char more[64] = "";
  if (turn.counted != 0)
    snprintf(more, sizeof(more), ", and %u more time%s since the last line", turn.counted,
             plural(turn.counted));
  char line[400];
  snprintf(line, sizeof(line),
           "bfo: rank %d: port %u of %.64s runs at %g Gbit/s, before at %g (%.64s%s); rails share long "
           "messages accordingly",
           speed.rank, speed.port, speed.device, static_cast<double>(speed.now) / 1000,
           static_cast<double>(speed.before) / 1000, speed.cause, more);
  print_(line);
}

void Console::tell_loss(const PortLoss& loss) {
  const double percent =
      loss.packets != 0 ? 100 * static_cast<double>(loss.lost) / static_cast<double>(loss.packets) : 100;
  char line[500];
  snprintf(line, sizeof(line),
           "bfo: rank %d: host %.128s: rail %u (%.64s port %u) loses packets that %s: %llu of %llu in %.1f s "
           "(%.3g %%) were %s; it keeps its share of the traffic",
           loss.rank, loss.host, loss.rail, loss.device, loss.port, loss.in ? "are sent to it" : "it sends",
           static_cast<unsigned long long>(loss.lost), static_cast<unsigned long long>(loss.packets),
           static_cast<double>(loss.ns) * 1e-9, percent, loss.in ? "missing" : "sent again");
  print_(line);
}

}  // namespace bfo::glue
