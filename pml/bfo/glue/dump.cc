// SPDX-License-Identifier: BSD-3-Clause
//
// dump.cc: see dump.h.
#include "pml/bfo/glue/dump.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace bfo::glue {
namespace {

using ull = unsigned long long;

// One line, cut when it is too long.
class Line {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text_ + length_, sizeof(text_) - length_, format, arguments);
    va_end(arguments);
    if (n > 0) length_ = std::min(length_ + static_cast<size_t>(n), sizeof(text_) - 1);
  }
  // `n` of something, when there is any.
  void count(uint64_t n, const char* what) {
    if (n == 0) return;
    add("%s%llu %s", counted_ ? ", " : "", static_cast<ull>(n), what);
    counted_ = true;
  }
  bool counted() const { return counted_; }
  void print(DumpLine line) const { line(text_); }

 private:
  char text_[512] = "";
  size_t length_ = 0;
  bool counted_ = false;
};

double ms(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) * 1e-6 : 0;
}
double seconds(uint64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

void dump_loss(const FailoverEvent& e, bool open, uint64_t now_ns, DumpLine print) {
  Line line;
  line.add("      epoch %u was lost %.3f s ago: %s; noticed %.3f ms after the first sign", e.epoch,
           ms(e.down_ns, now_ns) * 1e-3, e.text[0] != '\0' ? e.text : "unknown",
           ms(e.evidence_ns, e.down_ns));
  if (e.closed_ns == 0) {
    line.add(", not fenced yet");
  } else {
    line.add(", fenced %.3f ms later", ms(e.down_ns, e.closed_ns));
  }
  if (e.resumed_ns != 0) line.add(", resumed %.3f ms after the first sign", ms(e.evidence_ns, e.resumed_ns));
  line.add("; %llu bytes in %llu messages sent again", static_cast<ull>(e.bytes_resent),
           static_cast<ull>(e.messages_resent));
  if (e.bytes_waiting + e.messages_waiting != 0)
    line.add(", %llu bytes in %llu messages wait for a rail", static_cast<ull>(e.bytes_waiting),
             static_cast<ull>(e.messages_waiting));
  if (open) line.add(", not all of it has gone");
  line.print(print);
}

}  // namespace

void dump_process(const DumpedProcess& p, DumpLine print) {
  Line line;
  line.add(
      "pml bfo: rank %d: %llu rails lost, %llu suspected, %llu degraded, %llu fences, %llu restarts, %llu "
      "peers given "
      "up; a rail was missing for %.3f s; %llu bytes sent again, %llu messages",
      p.rank, static_cast<ull>(p.rails_lost), static_cast<ull>(p.suspicions),
      static_cast<ull>(p.degradations), static_cast<ull>(p.fences), static_cast<ull>(p.restarts),
      static_cast<ull>(p.peers_lost), seconds(p.missing_ns), static_cast<ull>(p.bytes_resent),
      static_cast<ull>(p.messages_resent));
  line.print(print);
}

void dump_peer(const DumpedPeer& p, DumpLine print) {
  Line state;
  state.add("    %u of %u rails up", p.up, p.rails);
  if (p.failed) state.add(", given up");
  if (p.finalized) state.add(", has left");
  if (p.unreachable_ns != 0) state.add(", no rail for %.3f s: its requests wait", seconds(p.unreachable_ns));
  state.print(print);
  Line work;
  work.add("    ");
  work.count(p.ready_sends, "sends with something to post");
  work.count(p.ready_receives, "receives with something to post");
  work.count(p.rendezvous_sends, "sends in a rendezvous");
  work.count(p.rendezvous_receives, "receives in a rendezvous");
  work.count(p.stored, "messages stored for the next rail");
  work.count(p.stalled, "sends behind the sequence window");
  work.count(p.unknown_held, "bytes held for unknown communicators");
  if (work.counted()) work.print(print);
}

void dump_rail(const DumpedRail& r, uint64_t now_ns, DumpLine print) {
  Line line;
  line.add("    rail %u: %s", r.index, r.device);
  if (r.port != 0) line.add(" port %u", r.port);
  if (r.peer_port[0] != '\0') line.add(" to %s", r.peer_port);
  line.add(", %s, epoch %u, %llu bytes in flight", r.state, r.epoch, static_cast<ull>(r.bytes_in_flight));
  if (r.rate[0] != '\0') line.add(", %s%s", r.rate, r.rate_counts ? ", which counts" : "");
  if (r.peer_alive) line.add("; the peer's process answers");
  if (r.degraded)
    line.add("; degraded for %.3f s: %u Mbit/s, another rail %u", ms(r.degraded_since_ns, now_ns) * 1e-3,
             r.mbits, r.mbits_of_others);
  line.print(print);
  if (r.lost != nullptr) dump_loss(*r.lost, r.lost_open, now_ns, print);
  if (r.never_ms == 0) return;
  Line never;
  never.add("      never up, tried for %.3f s: %s", static_cast<double>(r.never_ms) * 1e-3, r.never_why);
  never.print(print);
}

}  // namespace bfo::glue
