// SPDX-License-Identifier: BSD-3-Clause
//
// trace.cc: see trace.h.
#include "pml/bfo/glue/trace.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "common/ids.h"
#include "pml/bfo/core/decode.h"
#include "pml/bfo/core/wire.h"

namespace bfo::glue {
namespace {

using core::MsgType;

// A text that grows, and is cut where there is no room.
class Line {
 public:
  Line(char* out, size_t size) : out_(out), size_(size) { *out = '\0'; }
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    if (used_ + 1 >= size_) return;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(out_ + used_, size_ - used_, format, arguments);
    va_end(arguments);
    if (n > 0) used_ = std::min(size_ - 1, used_ + static_cast<size_t>(n));
  }

 private:
  char* out_;
  size_t size_;
  size_t used_ = 0;
};

struct KnownType {
  MsgType type;
  const char* name;
  size_t least;  // bytes
};

constexpr KnownType kTypes[] = {
    {MsgType::kMatch, "MATCH", sizeof(core::MatchHdr)},
    {MsgType::kRndv, "RNDV", sizeof(core::RndvHdr)},
    {MsgType::kRget, "RGET", core::kLeastRget},
    {MsgType::kAck, "ACK", sizeof(core::AckHdr)},
    {MsgType::kFrag, "FRAG", sizeof(core::FragHdr)},
    {MsgType::kPut, "PUT", sizeof(core::PutHdr)},
    {MsgType::kFin, "FIN", sizeof(core::FinHdr)},
    {MsgType::kRestartNotify, "RNDVRESTARTNOTIFY", sizeof(core::RestartHdr)},
    {MsgType::kRestartAck, "RNDVRESTARTACK", sizeof(core::RestartHdr)},
    {MsgType::kRestartNack, "RNDVRESTARTNACK", sizeof(core::RestartHdr)},
    {MsgType::kRecvErr, "RECVERRNOTIFY", sizeof(core::RestartHdr)},
    {MsgType::kRailDown, "RAILDOWN", sizeof(core::RailHdr)},
    {MsgType::kEpochClosed, "EPOCHCLOSED", sizeof(core::RailHdr)},
    {MsgType::kSendDone, "SENDDONE", sizeof(core::RestartHdr)},
    {MsgType::kSeqSync, "SEQSYNC", sizeof(core::SeqSyncHdr)},
    {MsgType::kPeerLost, "PEERLOST", sizeof(core::RailHdr)},
};
static_assert(std::size(kTypes) == std::size(core::kAllTypes), "a message type has no name here");

const KnownType* known(uint8_t type) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes), [type](const KnownType& k) {
    return static_cast<uint8_t>(k.type) == type;
  });
  return found != std::end(kTypes) ? found : nullptr;
}

void add_name(Line& line, const char* what, uint64_t value) {
  const Name name(value);
  if (value == 0)
    line.add("%snone", what);
  else
    line.add("%s%u.%u", what, name.slot(), name.gen());
}

template <class Entry>
Entry entry_at(const void* bytes, size_t i) {
  Entry entry;
  memcpy(&entry, static_cast<const char*>(bytes) + sizeof(core::RestartHdr) + i * sizeof entry, sizeof entry);
  return entry;
}

}  // namespace

const char* type_name(uint8_t type) {
  const KnownType* const k = known(type);
  return k != nullptr ? k->name : "unknown";
}

void describe_rail(char* out, size_t size, unsigned index, const TracedPeer& peer,
                   const bfo_rail_event_t& event, const char* what) {
  Line line(out, size);
  line.add("rail %u (%s port %u) to rank %d on host %s (%s), epoch %u: %s", index, event.info.device,
           event.info.port, peer.rank, peer.host, event.info.peer_port, event.info.name.epoch, what);
  if (event.text[0] != '\0') line.add(": %s", event.text);
}

bool is_restart_message(uint8_t type) {
  switch (static_cast<MsgType>(type)) {
    case MsgType::kRestartNotify:
    case MsgType::kRestartAck:
    case MsgType::kRestartNack:
    case MsgType::kRecvErr:
    case MsgType::kSendDone:
      return true;
    default:
      return false;
  }
}

void describe_restart(char* out, size_t size, uint8_t type, const void* bytes, size_t length) {
  Line line(out, size);
  line.add("%s", type_name(type));
  core::RestartHdr h;
  if (length < sizeof h) return line.add(", %zu bytes, too short", length);
  memcpy(&h, bytes, sizeof h);
  add_name(line, " of request ", h.sender);
  add_name(line, " (receive ", h.receiver);
  const uint64_t named = h.receiver != 0 ? h.receiver : h.sender;
  line.add("), round %u, ctx %u, sequence number %u", Name(named).round(), h.ctx, h.seq);
  if ((h.flags & core::kFlagFail) != 0) line.add(", failed");
  const size_t room = (length - sizeof h) / sizeof(core::WireRange);
  const size_t n = std::min<size_t>(h.n, room);
  if (type == static_cast<uint8_t>(MsgType::kRestartNotify)) {
    line.add(", clean rails:");
    for (size_t i = 0; i < n; ++i) {
      const auto rail = entry_at<core::WireRail>(bytes, i);
      line.add(" %016llx epoch %u%s", static_cast<unsigned long long>(rail.conn), rail.epoch,
               rail.written != 0 ? " (written)" : "");
    }
    if (n == 0) line.add(" none");
  } else if (type == static_cast<uint8_t>(MsgType::kRestartAck)) {
    line.add(", ranges received:");
    for (size_t i = 0; i < n; ++i) {
      const auto range = entry_at<core::WireRange>(bytes, i);
      line.add(" %llu-%llu", static_cast<unsigned long long>(range.begin),
               static_cast<unsigned long long>(range.end));
    }
    if (n == 0) line.add(" none");
  }
}

void describe_rate(char* out, size_t size, xfer::Basis basis, uint64_t rate, uint64_t latency_ns) {
  using xfer::Basis;
  Line line(out, size);
  const auto n = static_cast<unsigned long long>(rate);
  if (basis == Basis::kGiven) return line.add("weight %llu (pml_bfo_weights)", n / xfer::kGivenUnit);
  if (rate < 2) return;
  line.add("%llu Mbit/s", n);
  if (latency_ns != 0) line.add(" and %llu us", static_cast<unsigned long long>(latency_ns / 1000));
  switch (basis) {
    case Basis::kGiven:
      break;
    case Basis::kNominal:
      return line.add(" (rate of its port)");
    case Basis::kMeasured:
      return line.add(" (measured)");
    case Basis::kTold:
      return line.add(" (measured by the peer)");
    case Basis::kPort:
      return line.add(" (its port, measured to other peers)");
    case Basis::kLate:
      return line.add(" at most (what is in flight is late)");
    case Basis::kKeepsUp:
      return line.add(" at least (it keeps up with this process)");
    case Basis::kLeast:
      return line.add(" at least (not measured well enough)");
    case Basis::kMost:
      return line.add(" at most (not measured well enough)");
    case Basis::kLikeFastest:
      return line.add(" (not measured, like the fastest)");
  }
}

void describe_plan(char* out, size_t size, const TracedPeer& peer, const xfer::PlanTrace& plan) {
  using What = xfer::PlanTrace::What;
  Line line(out, size);
  line.add("plan with rank %d on host %s: ", peer.rank, peer.host);
  if (plan.what == What::kKeys) {
    if (plan.rail < 0)
      line.add("RGET of %llu bytes offers the keys of all rails",
               static_cast<unsigned long long>(plan.length));
    else
      line.add("RGET of %llu bytes offers the key of rail %d", static_cast<unsigned long long>(plan.length),
               plan.rail);
  } else {
    const char* const what = plan.what == What::kRead ? "READ" : plan.what == What::kGrant ? "PUT" : "FRAG";
    if (plan.size == 0 || plan.rail < 0)
      line.add("no further %s now", what);
    else
      line.add("%s of %llu bytes over rail %d", what, static_cast<unsigned long long>(plan.size), plan.rail);
    line.add(", of a message of %llu bytes: %llu are next, %u pieces with %llu bytes under way",
             static_cast<unsigned long long>(plan.length), static_cast<unsigned long long>(plan.left),
             plan.pieces_out, static_cast<unsigned long long>(plan.bytes_out));
  }
  for (unsigned i = 0; i < plan.n_rails; ++i) {
    const auto& r = plan.rails[i];
    line.add("; rail %u: %llu bytes in flight, weight %u, %s", r.index,
             static_cast<unsigned long long>(r.inflight_bytes), r.weight,
             r.late == 0 ? "keeps up" : "does not keep up");
    char rate[96];
    describe_rate(rate, sizeof rate, r.basis, r.rate, r.latency_ns);
    if (rate[0] != '\0') line.add(", %s", rate);
  }
  if (plan.uneven) line.add("; uneven, so rates count");
}

const char* why_dropped(const xfer::Counters& before, const xfer::Counters& after, uint8_t tag,
                        const void* bytes, size_t length) {
  if (after.duplicates != before.duplicates) return "duplicate: it had arrived before";
  if (after.stale != before.stale)
    return "stale: of an older round, a finished request or a closed connection";
  if (after.ignored != before.ignored) return "ignored: its request is not in a state that waits for it";
  if (after.malformed == before.malformed) return nullptr;
  const KnownType* const k = known(tag);
  if (k == nullptr) return "malformed: no such type";
  if (length < k->least) return "malformed: shorter than its header";
  if (*static_cast<const uint8_t*>(bytes) != tag) return "malformed: its first byte is not its tag";
  return "malformed: its fields are out of range, or name what is not its sender's";
}

}  // namespace bfo::glue
