// SPDX-License-Identifier: BSD-3-Clause
//
// port.cc: what the PML's engine asks of a process; see port.h.
#include "test/stack/port.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "btl/verbs/engine/send/rdma.h"
#include "btl/verbs/engine/send/send.h"
#include "test/stack/world.h"

namespace bfo::stack {

Frag* StackPort::frag_alloc() {
  Process& p = process_;
  if (p.frags_out_ >= p.world_.scenario.machine.frags) return nullptr;
  Frag* f = p.free_frags_;
  if (f != nullptr) {
    p.free_frags_ = f->next_free;
  } else {
    p.all_frags_.push_back(std::make_unique<Frag>());
    f = p.all_frags_.back().get();
    f->bytes = std::make_unique<char[]>(p.world_.scenario.machine.max_send);
  }
  f->in_use = true;
  ++p.frags_out_;
  return f;
}

void StackPort::frag_free(Frag& f) {
  Process& p = process_;
  if (!f.in_use || f.posted)
    p.world_.ctx.fail("P3: process %u freed a fragment that is %s", p.id_, f.posted ? "posted" : "free");
  f.in_use = false;
  f.next_free = p.free_frags_;
  p.free_frags_ = &f;
  --p.frags_out_;
}

void* StackPort::alloc(size_t n) {
  // MPI_Init without memory is an error of its own.
  const Machine& m = process_.world_.scenario.machine;
  if (m.memory_at != 0 && process_.world_.fabric.running) {
    const uint64_t asked = ++process_.asked_;
    if (asked >= m.memory_at && asked <= m.memory_at + m.memory_for) return nullptr;
  }
  ++process_.allocated_;
  return std::malloc(n);
}
void StackPort::free(void* p) {
  if (p != nullptr) --process_.allocated_;
  std::free(p);
}

// ---- posting: as btl/verbs/glue/transfer.cc

bool StackPort::sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, SendRequest& r,
                      size_t len) {
  if (!r.buf.contiguous && len > 0) return false;
  InlineSource s{r.buf.base, r.buf.pair};
  return sendi(rail, tag, hdr, hdr_len, s, len);
}

bool StackPort::sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, InlineSource& s,
                      size_t len) {
  if (no_room(rail)) return false;
  engine::Endpoint& e = rail.link->endpoint;
  const auto length = static_cast<uint32_t>(hdr_len + len);
  char* const slot = engine::slot_reserve(e, length);
  if (slot == nullptr) return false;
  std::memcpy(slot, hdr, hdr_len);
  if (len != 0) std::memcpy(slot + hdr_len, s.base, len);
  process_.copied_ += len;
  if (!engine::slot_commit(e, slot, length, tag)) return false;
  process_.world_.traffic.message(s.pair, hdr_len, 0, len);
  return true;
}

bool StackPort::no_room(const RailHandle& rail) const {
  return process_.no_room_[rail.link->rail] != 0;
}

Post StackPort::post(const RailHandle& rail, Frag& f) {
  f.posted = true;
  if (engine::send(rail.link->endpoint, &f.work) != engine::Accepted::kRefused) return Post::kAccepted;
  f.posted = false;
  return Post::kUnreachable;
}

Post StackPort::send(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, SendRequest& r,
                     uint64_t offset, size_t& len, Frag& f) {
  sim::Context& ctx = process_.world_.ctx;
  if (!r.buf.active) ctx.fail("P2: process %u packed from a finished send", process_.id_);
  if (offset + len > r.buf.length) ctx.fail("P2: process %u packed past the end of a send", process_.id_);
  // A data type of pieces cannot be cut anywhere else.
  if (!r.buf.contiguous && offset + len != r.buf.length)
    len -= (offset + len) % process_.world_.scenario.machine.piece;
  f.pair = r.buf.pair;
  f.payload = static_cast<uint32_t>(len);  // it may end inside the call
  const Post result = send_piece(rail, tag, hdr, hdr_len, r.buf.base + offset, len, f);
  if (result == Post::kAccepted) process_.world_.traffic.message(r.buf.pair, hdr_len, offset, len);
  return result;
}

Post StackPort::send_bytes(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len,
                           const void* bytes, size_t len, Frag& f) {
  f.payload = 0;
  const Post result = send_piece(rail, tag, hdr, hdr_len, bytes, len, f);
  if (result == Post::kAccepted) process_.world_.traffic.stored(tag, hdr_len + len);
  return result;
}

Post StackPort::send_piece(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len,
                           const void* bytes, size_t len, Frag& f) {
  if (hdr_len + len > process_.world_.scenario.machine.max_send || no_room(rail)) return Post::kNoResource;
  std::memcpy(f.bytes.get(), hdr, hdr_len);
  process_.copied_ += len;
  if (len != 0 && !process_.world_.fabric.traits.no_bytes) std::memcpy(f.bytes.get() + hdr_len, bytes, len);
  f.rdma = nullptr;
  f.reads = false;  // the record was that of a READ that was refused
  f.work = engine::Frag{};
  f.work.data = f.bytes.get();
  f.work.length = static_cast<uint32_t>(hdr_len + len);
  f.work.tag = tag;
  f.work.kind = engine::Kind::kSend;
  f.work.signaled = true;
  return post(rail, f);
}

Post StackPort::rdma(const RailHandle& rail, Buffer& buffer, bool write, uint64_t offset, size_t len,
                     uint64_t remote, const xfer::HandleBytes& handle, Frag& f) {
  if (!buffer.active) process_.world_.ctx.fail("P2: RDMA with the buffer of a finished request");
  if (no_room(rail)) return Post::kNoResource;
  f.rdma = &buffer;
  f.reads = !write;
  f.payload = static_cast<uint32_t>(len);
  f.work = engine::Frag{};
  f.work.data = reinterpret_cast<char*>(buffer.base + offset);
  f.work.length = static_cast<uint32_t>(len);
  f.work.remote_address = remote;
  std::memcpy(&f.work.rkey, handle.bytes, sizeof f.work.rkey);
  f.posted = true;
  ++buffer.rdma_out;
  engine::Endpoint& endpoint = rail.link->endpoint;
  const engine::Accepted accepted = write ? engine::put(endpoint, &f.work) : engine::get(endpoint, &f.work);
  if (accepted != engine::Accepted::kRefused) return Post::kAccepted;
  f.posted = false;
  --buffer.rdma_out;
  return Post::kUnreachable;
}

Post StackPort::put(const RailHandle& rail, SendRequest& r, uint64_t offset, size_t len, uint64_t remote,
                    const xfer::HandleBytes& handle, Frag& f) {
  if (r.xfer.rndv->reg.mr[rail.link->rail] == nullptr) return Post::kUnreachable;
  f.pair = r.buf.pair;
  const Post result = rdma(rail, r.buf, true, offset, len, remote, handle, f);
  if (result == Post::kAccepted) process_.world_.traffic.write(r.buf.pair, offset, len);
  return result;
}

Post StackPort::get(const RailHandle& rail, RecvRequest& r, uint64_t offset, size_t len, uint64_t remote,
                    const xfer::HandleBytes& handle, Frag& f) {
  if (r.xfer.rndv->reg.mr[rail.link->rail] == nullptr) return Post::kUnreachable;
  const uint32_t align = process_.world_.scenario.machine.get_alignment;
  if (offset % align != 0 || (len % align != 0 && offset + len < r.buf.length))
    process_.world_.ctx.fail("a READ of %zu bytes at %llu is not aligned to %u", len,
                             static_cast<unsigned long long>(offset), align);
  const uint32_t pair = f.pair = r.message >= 0 ? static_cast<uint32_t>(r.message) : r.buf.pair;
  const Post result = rdma(rail, r.buf, false, offset, len, remote, handle, f);
  if (result == Post::kAccepted) process_.world_.traffic.read(pair, offset, len);
  return result;
}

// ---- data

void* StackPort::contiguous(SendRequest& r) {
  return r.buf.contiguous ? r.buf.base : nullptr;
}
void* StackPort::contiguous(RecvRequest& r) {
  return r.buf.contiguous ? r.buf.base : nullptr;
}

namespace {
bool register_buffer(World& world, Process& p, const Buffer& b, size_t n, Registration& reg,
                     const StackPort::RailHandle* only) {
  if (!b.active || !b.contiguous) return false;
  for (uint32_t r = 0; r < world.scenario.machine.rails; ++r) {
    if (reg.mr[r] != nullptr || (only != nullptr && only->link->rail != r)) continue;
    ibv_mr* const mr = verbs().reg_mr(p.nic(r).device.pd(), b.base, n, 0);
    reg.mr[r] = mr;
    if (mr == nullptr) continue;
    reg.made = true;
    world.watch(mr->rkey, b);
  }
  return reg.made;
}
}  // namespace

bool StackPort::register_send(SendRequest& r, size_t n, Registration& reg, const RailHandle* only) {
  return register_buffer(process_.world_, process_, r.buf, n, reg, only);
}
bool StackPort::register_recv(RecvRequest& r, size_t n, Registration& reg, const RailHandle* only) {
  return register_buffer(process_.world_, process_, r.buf, n, reg, only);
}
void StackPort::deregister(Registration& reg) {
  // A registration cache keeps the keys: what comes too late is not refused, but seen (World::accessed).
  for (ibv_mr*& mr : reg.mr) {
    if (mr != nullptr) process_.cached_.push_back(mr);
    mr = nullptr;
  }
  reg.made = false;
}
bool StackPort::handle(const Registration& reg, const RailHandle& rail, xfer::HandleBytes& out) {
  const ibv_mr* const mr = reg.mr[rail.link->rail];
  if (mr == nullptr) return false;
  out.size = sizeof mr->rkey;
  std::memcpy(out.bytes, &mr->rkey, sizeof mr->rkey);
  return true;
}

void StackPort::matched(RecvRequest& r, int32_t source, int32_t tag, uint64_t length) {
  process_.matched(r, source, tag, length);
}
void StackPort::unpack(RecvRequest& r, uint64_t offset, const void* bytes, size_t n) {
  sim::Context& ctx = process_.world_.ctx;
  if (!r.buf.active) return ctx.fail("P2: process %u unpacked into a finished receive", process_.id_);
  if (offset + n > r.buf.length)
    return ctx.fail("P2: process %u unpacked past the end of a receive", process_.id_);
  process_.copied_ += n;
  if (Streams::has(r.buf))
    return process_.streams_->landed(reinterpret_cast<uint64_t>(r.buf.base) + offset, n);
  std::memcpy(r.buf.base + offset, bytes, n);
}

namespace {
void copy_bytes(World& world, const uint8_t* from, const RecvRequest& r, size_t n) {
  if (!r.buf.active || n > r.buf.length)
    return world.ctx.fail("P2: a message to oneself does not fit its receive");
  if (n != 0) std::memcpy(r.buf.base, from, n);
}
}  // namespace

void StackPort::copy(SendRequest& s, RecvRequest& r, size_t n) {
  if (!s.buf.active) process_.world_.ctx.fail("P2: process %u copied from a finished send", process_.id_);
  copy_bytes(process_.world_, s.buf.base, r, n);
}
void StackPort::copy(InlineSource& s, RecvRequest& r, size_t n) {
  copy_bytes(process_.world_, s.base, r, n);
}
bool StackPort::gather(SendRequest& s, void* to, size_t n) {
  if (n != 0) std::memcpy(to, s.buf.base, n);
  return true;
}
bool StackPort::gather(InlineSource& s, void* to, size_t n) {
  if (n != 0) std::memcpy(to, s.base, n);
  return true;
}

// ---- MPI

void StackPort::complete_send(SendRequest& r, Outcome outcome) {
  process_.finish_send(r, outcome);
}
void StackPort::complete_recv(RecvRequest& r, const xfer::RecvStatus& status) {
  process_.finish_recv(r, status);
}
void* StackPort::resolve(uint32_t comm, int32_t rank) {
  return process_.peer(process_.world_.book.proc(comm, rank));
}
void* StackPort::known(uint32_t comm, int32_t rank) const {
  return process_.peers_[process_.world_.book.proc(comm, rank)];
}
void StackPort::peer_failed(uint32_t peer, const xfer::PeerLoss& loss) {
  if (!process_.loss_allowed(peer))
    process_.world_.ctx.fail("P6: process %u gave up process %u (%s)", process_.id_, peer,
                             to_string(loss.outcome));
}

// ---- rails

void StackPort::fence(const RailHandle& rail, uint32_t epoch) {
  engine::rail_fence(rail.link->endpoint, epoch);
}
void StackPort::connect(const RailHandle& rail) {
  engine::rail_connect(rail.link->endpoint);
}
void StackPort::peer_down(const RailHandle& rail, const RailName& name, int32_t cause) {
  engine::rail_peer_down(rail.link->endpoint, bfo_rail_name_t{name.conn, name.epoch, 0}, cause);
}
void StackPort::peer_closed(const RailHandle& rail, const RailName& name, uint64_t delivered) {
  engine::rail_peer_closed(rail.link->endpoint, bfo_rail_name_t{name.conn, name.epoch, 0}, delivered);
}
xfer::WorkCount StackPort::work(const RailHandle& rail) const {
  const engine::Work work = engine::rail_work(rail.link->endpoint);
  return {work.taken, work.ended};
}
uint8_t StackPort::reads_in_time(uint8_t reads) const {
  return std::min(reads, process_.world_.scenario.machine.reads_in_time);
}
void StackPort::emit(const FailoverEvent& e) {
  ++process_.world_.result.words;
  process_.world_.traffic.told(e.bytes_resent);
}
void StackPort::tell(const DegradedEvent& e) {
  ++(e.degraded ? process_.world_.result.degraded : process_.world_.result.recovered);
}
void StackPort::rndv_over(const SendRequest& r) {
  const auto& rndv = *r.xfer.rndv;
  process_.world_.traffic.rounds(r.buf.pair, rndv.restarts, rndv.open_len == 0 && !rndv.sent_once.empty());
}
bool StackPort::gate_removed() const {
  return process_.world_.scenario.machine.no_gate;
}
Seq16 StackPort::seq_step() const {
  return process_.world_.scenario.machine.seq_step;
}
const core::SendCell& StackPort::send_cell(core::SendPhase p, core::SendEvent e) const {
  const cells::Tables* const other = process_.world_.tables;
  return (other == nullptr ? core::kSendTable : other->send)[static_cast<size_t>(p)][static_cast<size_t>(e)];
}
const core::RecvCell& StackPort::recv_cell(core::RecvPhase p, core::RecvEvent e) const {
  const cells::Tables* const other = process_.world_.tables;
  return (other == nullptr ? core::kRecvTable : other->recv)[static_cast<size_t>(p)][static_cast<size_t>(e)];
}
uint64_t StackPort::now_ns() const {
  return process_.world_.now();
}

}  // namespace bfo::stack
