// SPDX-License-Identifier: BSD-3-Clause
//
// Datatypes: non-contiguous on the sender, on the receiver, or on both; the gaps must stay untouched.
#include <array>
#include <cstring>

#include "test/integration/checker/phases.h"

namespace bfo::checker {
namespace {

/// A layout of `bytes` payload bytes in a larger piece of memory: blocks of alternating length with gaps.
struct Layout {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::vector<int> lengths, offsets;
  size_t extent = 0;

  Layout(Worker& w, size_t bytes, int kind, uint64_t seed) {
    Rng rng(seed);
    size_t at = 0;
    size_t left = bytes;
    const size_t block = kind == 0 ? 0 : kind == 1 ? 24 : kind == 2 ? 1000 : 5;
    while (left) {
      size_t take = left;
      if (kind == 1 || kind == 2) take = std::min(left, block);
      if (kind == 3) take = std::min<size_t>(left, 1 + rng.below(left > 20000 ? 4096 : 97));
      lengths.push_back(static_cast<int>(take));
      offsets.push_back(static_cast<int>(at));
      at += take + (kind == 0 ? 0 : kind == 3 ? rng.below(9) : block / 2 + 3);
      left -= take;
    }
    extent = at;
    w.check(
        MPI_Type_indexed(static_cast<int>(lengths.size()), lengths.data(), offsets.data(), MPI_BYTE, &type),
        "MPI_Type_indexed");
    w.check(MPI_Type_commit(&type), "MPI_Type_commit");
  }
  ~Layout() { MPI_Type_free(&type); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  void scatter(uint8_t* to, const uint8_t* from) const {
    for (size_t i = 0, at = 0; i < lengths.size(); at += static_cast<size_t>(lengths[i++]))
      std::memcpy(to + offsets[i], from + at, static_cast<size_t>(lengths[i]));
  }
  void gather(uint8_t* to, const uint8_t* from) const {
    for (size_t i = 0, at = 0; i < lengths.size(); at += static_cast<size_t>(lengths[i++]))
      std::memcpy(to + at, from + offsets[i], static_cast<size_t>(lengths[i]));
  }
  /// First byte of a gap that is not poison, or extent.
  size_t touched_gap(const uint8_t* memory) const {
    for (size_t i = 0; i < lengths.size(); ++i) {
      const size_t begin = static_cast<size_t>(offsets[i] + lengths[i]);
      const size_t end = i + 1 < lengths.size() ? static_cast<size_t>(offsets[i + 1]) : extent;
      const size_t bad = first_unpoisoned(memory + begin, end - begin, kRecvPoison);
      if (bad != end - begin) return begin + bad;
    }
    return extent;
  }
};

}  // namespace

void phase_datatypes(Worker& w, MPI_Comm parent) {
  const OwnComm own(w, parent);
  Lane lane(own.get(), w.next_comm_id());
  std::string doing;
  const Watchdog::Scope scope(w.shared.dog, [&doing] { return "datatypes: " + doing; });
  const int n = lane.peers();
  const int to = (lane.rank() + 1) % n;
  const int from = (lane.rank() + n - 1) % n;
  static constexpr std::array<size_t, 12> kBytes{1,     8,      100,    4096,    12288,   13001,
                                                 65536, 100003, 262144, 1000003, 1048576, 3000000};
  uint32_t seq = 0;
  for (int round = 0; round < (w.quick() ? 4 : 12); ++round) {
    for (const size_t size : kBytes) {
      const size_t bytes = std::min<size_t>(size, w.shared.sizes.max());
      const int out_kind = static_cast<int>(w.agreed.below(4));
      const int in_kind = static_cast<int>(w.agreed.below(4));
      const bool synchronous = w.agreed.one_in(4);
      const uint64_t seed = w.agreed.next();
      doing = std::to_string(bytes) + " bytes, layout " + std::to_string(out_kind) + " to " +
              std::to_string(in_kind);
      const Layout out(w, bytes, out_kind, seed);
      const Layout in(w, bytes, in_kind, ~seed);
      const Message sent{lane.to(to, 8), seq, bytes};
      const Message due{lane.from(from, 8), seq, bytes};
      ++seq;
      std::vector<uint8_t> flat(bytes);
      w.shared.stamp.fill(flat.data(), sent);
      Buffer o = w.pool.take_send(out.extent);
      Buffer i = w.pool.take_recv(in.extent);
      out.scatter(o.data(), flat.data());
      MPI_Request requests[2];
      w.check(MPI_Irecv(i.data(), 1, in.type, from, 8, lane.comm(), &requests[0]), "MPI_Irecv");
      w.check(synchronous ? MPI_Issend(o.data(), 1, out.type, to, 8, lane.comm(), &requests[1])
                          : MPI_Isend(o.data(), 1, out.type, to, 8, lane.comm(), &requests[1]),
              "a nonblocking send");
      MPI_Status statuses[2];
      w.check(MPI_Waitall(2, requests, statuses), "MPI_Waitall");
      int count = -1;
      MPI_Get_elements(&statuses[0], in.type, &count);
      w.expect(static_cast<size_t>(count) == bytes,
               "elements of a derived datatype: " + std::to_string(count) + " instead of " +
                   std::to_string(bytes));
      in.gather(flat.data(), i.data());
      const Finding f = w.shared.stamp.verify(flat.data(), due);
      if (!f.ok()) w.shared.report.add(w.phase(), f, due, ("received in " + doing + " instead of").c_str());
      const size_t gap = in.touched_gap(i.data());
      if (gap != in.extent)
        w.shared.report.add(w.phase(), Kind::kOverrun,
                            describe(due) + ", " + doing + ": gap byte " + std::to_string(gap));
      w.pool.check_outside(i, in.extent, due);
      w.shared.report.verified(1, bytes);
      w.shared.dog.beat();
      w.pool.give_send(o);
      w.pool.give_recv(i);
    }
  }
}

}  // namespace bfo::checker
