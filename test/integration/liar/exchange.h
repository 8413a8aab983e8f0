// SPDX-License-Identifier: BSD-3-Clause
//
// exchange.h: two honest ranks that send each other messages of all sizes, of which every word is known.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "test/integration/liar/board.h"

/// A number that looks like noise.
inline uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

class Exchange {
 public:
  /// `me` and `peer` in `comm`; the lower one decides when it ends.
  Exchange(MPI_Comm comm, int me, int peer, uint64_t seed, Word& word)
      : comm_(comm), me_(me), peer_(peer), seed_(seed), word_(word), out_(kMost / 8), in_(kMost / 8) {}

  bool over() const { return over_; }
  /// The next round is the last one.
  void end() { end_ = true; }
  /// What it waits for.
  void tell() const {
    std::fprintf(stderr, "honest %d: round %llu with %d, of %d bytes, does not end: receive %s, send %s\n",
                 me_, static_cast<unsigned long long>(round_), peer_, size(),
                 requests_[0] == MPI_REQUEST_NULL ? "ended" : "waits",
                 requests_[1] == MPI_REQUEST_NULL ? "ended" : "waits");
  }

  /// Begins a round or looks whether it has ended. Never blocks.
  void poll() {
    if (over_) return;
    if (!under_way_) begin();
    int done = 0;
    MPI_Status statuses[2];
    for (MPI_Status& status : statuses) status.MPI_ERROR = MPI_SUCCESS;
    const int rc = MPI_Testall(2, requests_, &done, statuses);
    if (rc != MPI_SUCCESS) return fail(rc == MPI_ERR_IN_STATUS ? either(statuses) : rc);
    if (done != 0) look(statuses[0]);
  }

 private:
  static constexpr int kMost = 1 << 20;
  static constexpr int kSizes[] = {16,    120,   1000,   4096,   12288, 17000,
                                   40000, 70000, 131072, 300008, 65536, kMost};

  int size() const { return kSizes[round_ % (sizeof kSizes / sizeof *kSizes)]; }

  uint64_t word(int from, int to, size_t i) const {
    return mixed(seed_ ^ mixed(round_ * 64 + static_cast<unsigned>(from) * 8 + static_cast<unsigned>(to)) ^
                 i);
  }

  void begin() {
    const size_t words = static_cast<size_t>(size()) / 8;
    out_[0] = round_ << 1 | (end_ && me_ < peer_ ? 1 : 0);
    for (size_t i = 1; i < words; ++i) out_[i] = word(me_, peer_, i);
    std::memset(in_.data(), 0xee, in_.size() * 8);
    under_way_ = true;
    int rc = MPI_Irecv(in_.data(), kMost, MPI_BYTE, peer_, kTag, comm_, &requests_[0]);
    if (rc == MPI_SUCCESS) rc = MPI_Isend(out_.data(), size(), MPI_BYTE, peer_, kTag, comm_, &requests_[1]);
    if (rc != MPI_SUCCESS) fail(rc);
  }

  void look(const MPI_Status& status) {
    int length = -1;
    MPI_Get_count(&status, MPI_BYTE, &length);
    const size_t words = static_cast<size_t>(size()) / 8;
    bool right = length == size() && in_[0] >> 1 == round_;
    for (size_t i = 1; right && i < words; ++i) right = in_[i] == word(peer_, me_, i);
    for (size_t i = words; right && i < in_.size(); ++i) right = in_[i] == 0xeeeeeeeeeeeeeeee;
    if (!right) {
      std::fprintf(stderr, "honest %d: wrong bytes from %d in round %llu (%d of %d bytes)\n", me_, peer_,
                   static_cast<unsigned long long>(round_), length, size());
      ++word_.wrong;
    }
    ++word_.messages;
    word_.bytes += static_cast<uint64_t>(length);
    over_ = ((me_ < peer_ ? out_[0] : in_[0]) & 1) != 0;
    ++round_;
    under_way_ = false;
  }

  static int either(const MPI_Status* statuses) {
    return statuses[0].MPI_ERROR != MPI_SUCCESS ? statuses[0].MPI_ERROR : statuses[1].MPI_ERROR;
  }

  void fail(int rc) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(rc, text, &length);
    std::fprintf(stderr, "honest %d: error with %d in round %llu: %s\n", me_, peer_,
                 static_cast<unsigned long long>(round_), text);
    ++word_.errors;
    over_ = true;
  }

  static constexpr int kTag = 7;
  const MPI_Comm comm_;
  const int me_, peer_;
  const uint64_t seed_;
  Word& word_;
  std::vector<uint64_t> out_, in_;
  MPI_Request requests_[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  uint64_t round_ = 0;
  bool under_way_ = false;
  bool end_ = false;
  bool over_ = false;
};
