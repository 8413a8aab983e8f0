// SPDX-License-Identifier: BSD-3-Clause
//
// The worker: the one place where a received message is compared with what was due.
#include "test/integration/checker/worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace bfo::checker {

Lane::Lane(MPI_Comm comm, int id) : comm_(comm), id_(id) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &peers_);
}

Lane::Lane(MPI_Comm inter, int id, int local_base, int remote_base)
    : comm_(inter), id_(id), local_base_(local_base), remote_base_(remote_base) {
  MPI_Comm_rank(inter, &rank_);
  MPI_Comm_remote_size(inter, &peers_);
}

uint32_t Lane::sent(int dest, int tag) const {
  const auto it = sent_.find({dest, tag});
  return it == sent_.end() ? 0 : it->second;
}

uint32_t Lane::due(int source, int tag) const {
  const auto it = due_.find({source, tag});
  return it == due_.end() ? 0 : it->second.next;
}

bool Lane::arrived(int source, int tag, uint32_t seq) {
  Due& d = due_[{source, tag}];
  if (seq < d.next) return d.skipped.erase(seq) == 0;
  for (; d.next < seq && seq - d.next < 100000; ++d.next) d.skipped.insert(d.next);
  d.next = seq + 1;
  return true;
}

std::string Lane::missing() const {
  std::string text;
  for (const auto& [key, d] : due_)
    for (const uint32_t seq : d.skipped)
      if (text.size() < 500)
        text += " (source " + std::to_string(key.first) + " tag " + std::to_string(key.second) + " seq " +
                std::to_string(seq) + ")";
  return text;
}

Worker::Worker(Shared& s, uint64_t seed, int first_comm_id)
    : shared(s),
      pool(s.stamp, s.report, std::chrono::milliseconds(s.options.hold_ms), size_t{192} << 20),
      rng(permute(seed) + static_cast<uint64_t>(s.rank)),
      agreed(seed),
      comm_id_(first_comm_id) {}

void Worker::set_phase(const char* phase) {
  phase_ = phase;
  pool.set_phase(phase);
}

void Worker::check(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(rc, text, &length);
  give_up(std::string(call) + " returned: " + std::string(text, static_cast<size_t>(length)));
}

void Worker::expect(bool holds, const std::string& what) {
  if (!holds) shared.report.add(phase_, Kind::kMpi, what);
}

void Worker::give_up(const std::string& why) {
  shared.report.add(phase_, Kind::kMpi, why);
  std::fprintf(stderr, "checker: rank %d phase %s: cannot go on: %s\n", shared.rank, phase_, why.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 3);
  _exit(3);
}

Buffer Worker::prepare(Lane& lane, int dest, int tag, uint64_t cap, Message* m) {
  m->stream = lane.to(dest, tag);
  m->seq = lane.next_sent(dest, tag);
  m->bytes = shared.sizes.of(m->stream, m->seq, cap);
  Buffer b = pool.take_send(m->bytes, rng.one_in(4) ? rng.below(16) : 0);
  shared.stamp.fill(b.data(), *m);
  return b;
}

void Worker::accept_bytes(Lane& lane, const uint8_t* data, int count, int source, int tag, uint64_t cap,
                          Message* expected) {
  shared.dog.beat();
  Message m{lane.from(source, tag), lane.due(source, tag), 0};
  m.bytes = shared.sizes.of(m.stream, m.seq, cap);
  Message found;
  const bool whole = shared.stamp.identify(data, static_cast<uint64_t>(count), &found);
  const bool other = whole && found.stream == m.stream && found.seq != m.seq;
  if (static_cast<uint64_t>(count) != m.bytes && !other) {
    shared.report.add(phase_, Kind::kStatus,
                      describe(m) + ": the status says " + std::to_string(count) + " bytes");
  } else {
    Finding f = other ? Finding{found.seq < m.seq ? Kind::kDoubled : Kind::kReordered, 0,
                                static_cast<uint64_t>(count), "the whole of " + describe(found)}
                      : shared.stamp.verify(data, m);
    if (other && !lane.arrived(source, tag, found.seq)) f.kind = Kind::kReordered;
    if (!f.ok()) shared.report.add(phase_, f, m, "received instead of");
  }
  if (!other) lane.arrived(source, tag, m.seq);
  shared.report.verified(1, m.bytes);
  *expected = m;
}

void Worker::accept(Lane& lane, Buffer b, const MPI_Status& status, uint64_t cap) {
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  const int source = status.MPI_SOURCE;
  const int tag = status.MPI_TAG;
  if (source < 0 || source >= lane.peers() || tag < 0 || count < 0 || static_cast<size_t>(count) > b.length) {
    shared.report.add(phase_, Kind::kStatus,
                      "nonsense in the status: source " + std::to_string(source) + " tag " +
                          std::to_string(tag) + " count " + std::to_string(count));
    pool.give_recv(b);
    return;
  }
  const Message due{lane.from(source, tag), lane.due(source, tag), static_cast<uint64_t>(count)};
  tamper.before_verify(shared.stamp, b, due, &count);
  Message expected;
  const uint64_t errors = shared.report.errors();
  accept_bytes(lane, b.data(), count, source, tag, cap, &expected);
  pool.check_outside(b, static_cast<size_t>(count), expected);
  if (shared.report.errors() != errors) {
    pool.give_recv(b);
    return;
  }
  pool.hold(b, expected);
  tamper.after_verify(pool);
  pool.tick();
}

void Worker::finish(Lane& lane) {
  const std::string missing = lane.missing();
  if (!missing.empty()) shared.report.add(phase_, Kind::kReordered, "never received:" + missing);
}

}  // namespace bfo::checker
