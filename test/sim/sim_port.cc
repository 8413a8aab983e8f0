// SPDX-License-Identifier: BSD-3-Clause
//
// sim_port.cc: what the engine asks of a simulated process; see sim_port.h.

#include "test/sim/sim_port.h"

#include <cstdlib>

#include "test/sim/process.h"

namespace bfo::sim {

Frag* SimPort::frag_alloc() {
  Process& p = process_;
  if (p.frags_out_ >= p.ctx_.machine.frags) return nullptr;
  Frag* f = p.free_frags_;
  if (f != nullptr) {
    p.free_frags_ = f->next_free;
  } else {
    if (p.next_frag_ == p.all_frags_.size() * Process::kFragSlab)
      p.all_frags_.push_back(std::make_unique<Frag[]>(Process::kFragSlab));
    f = &p.frag(p.next_frag_++);
    std::destroy_at(f);
    std::construct_at(f);
  }
  f->in_use = true;
  f->bytes = 0;
  ++p.frags_out_;
  return f;
}

void SimPort::frag_free(Frag& f) {
  Process& p = process_;
  if (!f.in_use || f.posted)
    p.ctx_.fail("P3: process %u freed a fragment that is %s", p.id_, f.posted ? "posted" : "free");
  f.in_use = false;
  f.next_free = p.free_frags_;
  p.free_frags_ = &f;
  --p.frags_out_;
}

void* SimPort::alloc(size_t n) {
  ++process_.allocated_;
  return std::malloc(n);
}
void SimPort::free(void* p) {
  if (p) --process_.allocated_;
  std::free(p);
}

namespace {
/// A message to oneself needs no rail.
void to_self(Engine& e, Half& h, uint8_t tag, const void* hdr, size_t hdr_len, const void* bytes,
             size_t len) {
  uint8_t message[kMaxPacket];
  std::memcpy(message, hdr, hdr_len);
  if (len) std::memcpy(message + hdr_len, bytes, len);
  e.on_message(static_cast<EngineRail*>(h.engine_rail), 0, tag, message, hdr_len + len);
}
void load(Packet* p, uint8_t tag, const void* hdr, size_t hdr_len, const void* bytes, size_t len) {
  p->tag = tag;
  p->length = static_cast<uint32_t>(hdr_len + len);
  std::memcpy(p->bytes(), hdr, hdr_len);
  if (len) std::memcpy(p->bytes() + hdr_len, bytes, len);
}
}  // namespace

void Process::count(uint32_t pair, size_t header, uint64_t offset, size_t payload) {
  ctx_.stats.control_bytes += header;
  ctx_.stats.posted_bytes += payload;
  if (payload == 0) return;
  ctx_.count_posted(pair, offset, payload);
  ctx_.count_moved(pair, offset, payload);
}

/// Bytes that no request stands for: an eager message among them goes again.
void Process::count_raw(uint8_t tag, size_t size) {
  const bool eager = tag == static_cast<uint8_t>(core::MsgType::kMatch);
  const size_t header = eager ? sizeof(core::MatchHdr) : size;
  ctx_.stats.control_bytes += header;
  ctx_.stats.posted_bytes += size - header;
  ctx_.stats.again_bytes += size - header;
}

bool SimPort::sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, SendRequest& r,
                    size_t len) {
  process_.in_inline_ = r.buf.pair;
  if (!r.buf.contiguous && len > 0) return false;
  InlineSource s{r.buf.base};
  return sendi(rail, tag, hdr, hdr_len, s, len);
}

bool SimPort::sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, InlineSource& s,
                    size_t len) {
  Half& h = *rail.half;
  if (h.peer == h.proc) {
    process_.ctx_.stats.self_bytes += hdr_len + len;
    process_.count(process_.in_inline_, hdr_len, 0, len);
    to_self(process_.engine(), h, tag, hdr, hdr_len, s.base, len);
    return true;
  }
  Post why;
  Packet* const p = process_.driver_.prepare(h, WrKind::kSendi, hdr_len + len, why);
  if (!p) return false;
  process_.count(process_.in_inline_, hdr_len, 0, len);
  load(p, tag, hdr, hdr_len, s.base, len);
  process_.driver_.commit_sendi(h, p);
  return true;
}

Post SimPort::send(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, SendRequest& r,
                   uint64_t offset, size_t& len, Frag& f) {
  Half& h = *rail.half;
  if (!r.buf.active) process_.ctx_.fail("P2: process %u packed from a finished send", process_.id_);
  if (offset + len > r.buf.length)
    process_.ctx_.fail("P2: process %u packed past the end of a send", process_.id_);
  // A data type of 8-byte pieces cannot be cut anywhere else.
  if (!r.buf.contiguous && offset + len != r.buf.length) len -= (offset + len) % 8;
  const uint8_t* const from = r.buf.base + offset;
  if (h.peer == h.proc) {
    process_.ctx_.stats.self_bytes += hdr_len + len;
    process_.count(r.buf.pair, hdr_len, offset, len);
    to_self(process_.engine(), h, tag, hdr, hdr_len, from, len);
    if (process_.dice_.chance(50)) return Post::kCompleted;
    process_.engine().on_done(&f, Fate::kDelivered);
    return Post::kAccepted;
  }
  Post why;
  Packet* const p = process_.driver_.prepare(h, WrKind::kSend, hdr_len + len, why);
  if (!p) return why;
  process_.count(r.buf.pair, hdr_len, offset, len);
  f.pair = r.buf.pair;
  f.bytes = static_cast<uint32_t>(len);
  load(p, tag, hdr, hdr_len, from, len);
  return process_.driver_.commit(h, p, f);
}

Post SimPort::send_bytes(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len,
                         const void* bytes, size_t len, Frag& f) {
  Half& h = *rail.half;
  if (h.peer == h.proc) {
    process_.ctx_.stats.self_bytes += hdr_len + len;
    process_.count_raw(tag, hdr_len + len);
    to_self(process_.engine(), h, tag, hdr, hdr_len, bytes, len);
    return Post::kCompleted;
  }
  Post why;
  Packet* const p = process_.driver_.prepare(h, WrKind::kSend, hdr_len + len, why);
  if (!p) return why;
  process_.count_raw(tag, hdr_len + len);
  load(p, tag, hdr, hdr_len, bytes, len);
  return process_.driver_.commit(h, p, f);
}

namespace {
/// What handle() hands out: the region and the rail it is good for.
struct Key {
  uint32_t region;
  uint32_t rail;
};
}  // namespace

Post SimPort::put(const RailHandle& rail, SendRequest& r, uint64_t offset, size_t len, uint64_t remote,
                  const xfer::HandleBytes& handle, Frag& f) {
  Half& h = *rail.half;
  Key key{};
  std::memcpy(&key, handle.bytes, sizeof key);
  if (handle.size != sizeof key || key.rail != h.rail)
    process_.ctx_.fail("P5: a put with the key of another rail");
  if (!r.buf.active || r.buf.regions == 0) process_.ctx_.fail("P2: a put from memory that is not registered");
  Post why;
  Packet* const p = process_.driver_.prepare(h, WrKind::kPut, len, why);
  if (!p) return why;
  process_.count(r.buf.pair, 0, offset, len);
  process_.ctx_.stats.by_protocol[3] += 1;
  p->length = static_cast<uint32_t>(len);
  p->key = key.region;
  p->remote = remote;
  std::memcpy(p->bytes(), r.buf.base + offset, len);
  ++r.buf.rdma_out;
  f.put = &r;
  f.pair = r.buf.pair;
  f.bytes = p->length;
  return process_.driver_.commit(h, p, f);
}

Post SimPort::get(const RailHandle& rail, RecvRequest& r, uint64_t offset, size_t len, uint64_t remote,
                  const xfer::HandleBytes& handle, Frag& f) {
  Half& h = *rail.half;
  Key key{};
  std::memcpy(&key, handle.bytes, sizeof key);
  if (handle.size != sizeof key || key.rail != h.rail)
    process_.ctx_.fail("P5: a get with the key of another rail");
  if (!r.buf.active || r.buf.regions == 0) process_.ctx_.fail("P2: a get into memory that is not registered");
  const uint32_t align = process_.ctx_.machine.get_alignment;
  if (offset % align != 0 || (len % align != 0 && offset + len < process_.ctx_.memory.at(key.region).length))
    process_.ctx_.fail("a get of %zu bytes at %llu is not aligned to %u", len,
                       static_cast<unsigned long long>(offset), align);
  Post why;
  Packet* const p = process_.driver_.prepare(h, WrKind::kGet, len, why);
  if (!p) return why;
  process_.ctx_.stats.read_bytes += len;
  process_.ctx_.stats.posted_bytes += len;
  process_.ctx_.count_posted(r.message >= 0 ? static_cast<uint32_t>(r.message) : r.buf.pair, offset, len);
  process_.ctx_.stats.by_protocol[2] += 1;
  p->length = static_cast<uint32_t>(len);
  p->key = key.region;
  p->remote = remote;
  p->local = reinterpret_cast<uint64_t>(r.buf.base) + offset;
  p->local_key = r.buf.regions;
  ++r.buf.rdma_out;
  f.get = &r;
  f.pair = r.message >= 0 ? static_cast<uint32_t>(r.message) : r.buf.pair;
  f.bytes = p->length;
  return process_.driver_.commit(h, p, f);
}

void* SimPort::contiguous(SendRequest& r) {
  return r.buf.contiguous ? r.buf.base : nullptr;
}
void* SimPort::contiguous(RecvRequest& r) {
  return r.buf.contiguous ? r.buf.base : nullptr;
}

bool SimPort::register_send(SendRequest& r, size_t n, Registration& reg, const RailHandle*) {
  return process_.register_buffer(r.buf, n, reg);
}
bool SimPort::register_recv(RecvRequest& r, size_t n, Registration& reg, const RailHandle*) {
  return process_.register_buffer(r.buf, n, reg);
}

bool Process::register_buffer(Buffer& b, size_t n, Registration& reg) {
  if (!b.active || !b.contiguous) return false;
  if (reg.key != 0) return true;      // one key serves all rails here
  if (dice_.chance(2)) return false;  // the limit of pinned memory
  reg.key = ctx_.memory.add(id_, b.base, n < b.length ? n : b.length);
  ctx_.memory.at(reg.key).next = b.regions;
  b.regions = reg.key;
  return true;
}

void SimPort::deregister(Registration& reg) {
  if (reg.key == 0) return;
  Region& r = process_.ctx_.memory.at(reg.key);
  if (r.deregistered) process_.ctx_.fail("process %u deregistered a buffer twice", process_.id_);
  r.deregistered = true;
  reg.key = 0;
}

bool SimPort::handle(const Registration& reg, const RailHandle& rail, xfer::HandleBytes& out) {
  if (reg.key == 0) return false;
  const Key key{reg.key, rail.half->rail};
  out.size = sizeof key;
  std::memcpy(out.bytes, &key, sizeof key);
  return true;
}

void SimPort::matched(RecvRequest& r, int32_t source, int32_t tag, uint64_t length) {
  process_.matched(r, source, tag, length);
}

void SimPort::unpack(RecvRequest& r, uint64_t offset, const void* bytes, size_t n) {
  Process& p = process_;
  if (!r.buf.active) return p.ctx_.fail("P2: process %u unpacked into a finished receive", p.id_);
  if (offset + n > r.buf.length)
    return p.ctx_.fail("P2: process %u unpacked past the end of a receive", p.id_);
  std::memcpy(r.buf.base + offset, bytes, n);
}

void SimPort::complete_send(SendRequest& r, Outcome outcome) {
  process_.finish_send(r, outcome);
}
void SimPort::complete_recv(RecvRequest& r, const xfer::RecvStatus& status) {
  process_.finish_recv(r, status);
}

void* SimPort::resolve(uint32_t comm, int32_t rank) {
  return process_.peer(process_.book_.proc(comm, rank));
}

void* SimPort::known(uint32_t comm, int32_t rank) const {
  return process_.peers_[process_.book_.proc(comm, rank)];
}

void SimPort::rndv_over(SendRequest& r) {
  auto& t = process_.ctx_.traffic[r.buf.pair];
  t.restarts = r.xfer.rndv->restarts;
  t.both_ways = r.xfer.rndv->open_len == 0 && !r.xfer.rndv->sent_once.empty();
}

void SimPort::peer_failed(uint32_t peer, const xfer::PeerLoss& loss) {
  const Outcome why = loss.outcome;
  Context& ctx = process_.ctx_;
  SIM_TRACE(ctx, "lost  %u gives up %u: %s", process_.id_, peer, to_string(why));
  process_.lost_peer_[peer] = true;
  if (!process_.loss_allowed(peer))
    ctx.fail("P6: process %u gave up process %u (%s) though paths came back in time", process_.id_, peer,
             to_string(why));
}

void SimPort::fence(const RailHandle& rail, uint32_t epoch) {
  process_.driver_.fence(*rail.half, epoch);
}
void SimPort::connect(const RailHandle& rail) {
  process_.driver_.connect(*rail.half);
}
void SimPort::peer_down(const RailHandle& rail, const RailName& name, int32_t) {
  process_.driver_.peer_down(*rail.half, name);
}
void SimPort::peer_closed(const RailHandle& rail, const RailName& name, uint64_t delivered) {
  process_.driver_.peer_closed(*rail.half, name, delivered);
}
uint64_t SimPort::now_ns() const {
  return process_.ctx_.now;
}
bool SimPort::gate_removed() const {
  return process_.ctx_.hooks.no_gate;
}
const core::SendCell& SimPort::send_cell(core::SendPhase p, core::SendEvent e) const {
  return (*process_.ctx_.hooks.send_table)[static_cast<size_t>(p)][static_cast<size_t>(e)];
}
const core::RecvCell& SimPort::recv_cell(core::RecvPhase p, core::RecvEvent e) const {
  return (*process_.ctx_.hooks.recv_table)[static_cast<size_t>(p)][static_cast<size_t>(e)];
}
void SimPort::emit(const FailoverEvent& e) {
  process_.ctx_.stats.told_bytes += e.bytes_resent;
}

}  // namespace bfo::sim
