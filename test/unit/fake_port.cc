// SPDX-License-Identifier: BSD-3-Clause
//
// fake_port.cc: what a FakePort does in its World.
#include "test/unit/fake_port.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "test/unit/fake_world.h"

namespace bfo::test {
namespace {

Flight make_flight(Flight::Kind kind, int from, const FakePort::RailHandle& rail, uint8_t tag, const void* h,
                   size_t hl, const void* data, size_t n, FakePort::Frag* frag) {
  Flight f;
  f.kind = kind;
  f.from = from;
  f.to = rail.rank;
  f.rail = rail.rail;
  f.tag = tag;
  f.bytes.resize(hl + n);
  if (hl) std::memcpy(f.bytes.data(), h, hl);
  if (n) std::memcpy(f.bytes.data() + hl, data, n);
  f.frag = frag;
  return f;
}

}  // namespace

xfer::WorkCount FakePort::work(const RailHandle& rail) const {
  const uint64_t taken = world_.posted[world_.lane(rank_, rail.rank, rail.rail)];
  uint64_t ended = taken;
  for (const Flight& f : world_.flights)
    if (f.from == rank_ && f.to == rail.rank && f.rail == rail.rail && f.number <= ended)
      ended = f.number - 1;
  // As with work of which only some is signaled. Who asks has the rest signaled, too, for the next time.
  const bool all = ended == taken;
  return {taken, all ? ended : ended - ended % world_.ended_every};
}

FakePort::Frag* FakePort::frag_alloc() {
  ++frags_;
  return new Frag;
}

void FakePort::frag_free(Frag& f) {
  --frags_;
  delete &f;
}

bool FakePort::sendi(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, SendRequest& r,
                     size_t n) {
  InlineSource s{r.data.data()};
  return sendi(rail, tag, h, hl, s, n);
}

bool FakePort::sendi(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, InlineSource& s,
                     size_t n) {
  if (const auto inside = std::exchange(inside_, nullptr)) inside();
  ++offered_;
  if (hl + n > longest_offered_) longest_offered_ = hl + n;
  if (!world_.options.sendi || !world_.room(rank_, rail.rank, rail.rail)) return false;
  if (!world_.takes(hl + n)) return false;
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return false;
  return world_.post(make_flight(Flight::Kind::kSend, rank_, rail, tag, h, hl, s.data, n, nullptr));
}

Post FakePort::send(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, SendRequest& r,
                    uint64_t offset, size_t& n, Frag& f) {
  return send_bytes(rail, tag, h, hl, r.data.data() + offset, n, f);
}

Post FakePort::send_bytes(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, const void* data,
                          size_t n, Frag& f) {
  ++offered_;
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return Post::kUnreachable;
  if (!world_.room(rank_, rail.rank, rail.rail) || !world_.takes(hl + n)) return Post::kNoResource;
  world_.post(make_flight(Flight::Kind::kSend, rank_, rail, tag, h, hl, data, n, &f));
  return Post::kAccepted;
}

Post FakePort::put(const RailHandle& rail, SendRequest& r, uint64_t offset, size_t n, uint64_t remote,
                   const xfer::HandleBytes&, Frag& frag) {
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return Post::kUnreachable;
  if ((r.xfer.rndv->reg.rails >> rail.rail & 1) == 0) return Post::kUnreachable;
  if (!world_.room(rank_, rail.rank, rail.rail)) return Post::kNoResource;
  Flight f = make_flight(Flight::Kind::kPut, rank_, rail, 0, nullptr, 0, nullptr, 0, &frag);
  f.local = r.data.data() + offset;
  f.remote = reinterpret_cast<uint8_t*>(remote);
  f.size = n;
  return world_.post_rdma(f);
}

Post FakePort::get(const RailHandle& rail, RecvRequest& r, uint64_t offset, size_t n, uint64_t remote,
                   const xfer::HandleBytes& handle, Frag& frag) {
  const xfer::HandleBytes want =
      world_.ports[rail.rank]->handle_of(reinterpret_cast<uint8_t*>(remote) - offset);
  EXPECT_EQ(handle.size, want.size);
  EXPECT_EQ(std::memcmp(handle.bytes, want.bytes, want.size), 0);
  if (!world_.up[world_.key(rank_, rail.rank, rail.rail)]) return Post::kUnreachable;
  if ((r.xfer.rndv->reg.rails >> rail.rail & 1) == 0) return Post::kUnreachable;
  if (!world_.room(rank_, rail.rank, rail.rail)) return Post::kNoResource;
  Flight f = make_flight(Flight::Kind::kGet, rank_, rail, 0, nullptr, 0, nullptr, 0, &frag);
  f.local = r.data.data() + offset;
  f.remote = reinterpret_cast<uint8_t*>(remote);
  f.size = n;
  return world_.post_rdma(f);
}

void* FakePort::contiguous(SendRequest& r) {
  return r.contiguous ? r.data.data() : nullptr;
}

void* FakePort::contiguous(RecvRequest& r) {
  return r.contiguous ? r.data.data() : nullptr;
}

bool FakePort::register_buffer(uint8_t* base, size_t n, Registration& reg, const RailHandle* only) {
  const unsigned had = reg.rails;
  reg.rails |= only ? 1u << only->rail : ~0u;
  if (unregistered_ >= 0) {
    const unsigned bit = 1u << unregistered_;
    if (reg.rails & bit) ++refused_registrations_;
    reg.rails &= ~bit;
  }
  if (reg.rails == 0) return false;
  if (had == 0) ++registrations_;
  reg.base = base;
  reg.size = n;
  return true;
}

bool FakePort::register_send(SendRequest& r, size_t n, Registration& reg, const RailHandle* only) {
  return register_buffer(r.data.data(), n, reg, only);
}

bool FakePort::register_recv(RecvRequest& r, size_t n, Registration& reg, const RailHandle* only) {
  return register_buffer(r.data.data(), n, reg, only);
}

void FakePort::matched(RecvRequest& r, int32_t, int32_t, uint64_t) {
  r.matched = true;
}

void FakePort::unpack(RecvRequest& r, uint64_t offset, const void* data, size_t n) {
  if (!r.matched || offset + n > r.data.size()) std::abort();
  std::memcpy(r.data.data() + offset, data, n);
}

void FakePort::copy(SendRequest& s, RecvRequest& r, size_t n) {
  unpack(r, 0, s.data.data(), n);
}

bool FakePort::gather(SendRequest& s, void* to, size_t n) {
  std::memcpy(to, s.data.data(), n);
  return true;
}

void FakePort::complete_send(SendRequest& r, Outcome o) {
  if (r.done) std::abort();  // completed twice
  r.done = true;
  r.outcome = o;
  if (r.then) r.then();
}

void FakePort::complete_recv(RecvRequest& r, const xfer::RecvStatus& s) {
  if (r.done) std::abort();
  r.done = true;
  r.status = s;
  if (r.then) r.then();
}

void* FakePort::resolve(const CommHandle&, int32_t rank) {
  return world_.peer(rank_, rank);
}

void* FakePort::known(const CommHandle&, int32_t rank) const {
  return world_.peers[rank_][rank];
}

void FakePort::fence(const RailHandle& rail, uint32_t epoch) {
  const size_t k = world_.key(rank_, rail.rank, rail.rail);
  if (!world_.up[k]) closings_asked_.emplace_back(rail.rail, epoch);
  if (world_.epoch[k] <= epoch && world_.up[k]) world_.fences.push_back({rank_, rail.rank, rail.rail});
}

void FakePort::peer_down(const RailHandle&, const RailName& name, int32_t) {
  peer_downs_.push_back(name);
}

uint64_t FakePort::now_ns() {
  return world_.now;
}

}  // namespace bfo::test
