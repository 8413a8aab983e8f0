// SPDX-License-Identifier: BSD-3-Clause
//
// victim.h: what an honest rank has going with a liar while that one lies, and what becomes of it. Requests
// with the liar may fail or wait; they may not write anywhere but into their buffers.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "test/integration/liar/board.h"

/// Memory that is received into, with guards on both sides.
class Guarded {
 public:
  static constexpr int kSize = 64 * 1024;
  Guarded() : bytes_(kSize + 2 * kGuard, kMark) {}
  char* data() { return bytes_.data() + kGuard; }
  /// Bytes of the guards that were written.
  uint64_t hurt() const {
    uint64_t count = 0;
    for (size_t i = 0; i < kGuard; ++i)
      count += (bytes_[i] != kMark) + (bytes_[bytes_.size() - 1 - i] != kMark);
    return count;
  }

 private:
  static constexpr size_t kGuard = 4096;
  static constexpr char kMark = 0x5c;
  std::vector<char> bytes_;
};

class Victim {
 public:
  explicit Victim(Board& board) : board_(board), out_(kLong, 'v') {}

  /// The communicator with the liar whose turn it is, and its rank in the world.
  void meet(MPI_Comm comm, int rank) {
    comm_ = comm;
    rank_ = rank;
    lost_ = false;
  }

  void prepare(State state) {
    state_ = state;
    const int liar = 1;
    switch (state) {
      case kPosted:
        receive(liar, 5, Guarded::kSize);
        receive(liar, MPI_ANY_TAG, Guarded::kSize);
        receive(liar, 7, 0);
        break;
      case kAnySource:
        for (int i = 0; i < 2; ++i) receive(MPI_ANY_SOURCE, MPI_ANY_TAG, Guarded::kSize);
        receive(MPI_ANY_SOURCE, 5, 100);
        break;
      case kPersistent:
        for (MPI_Request& request : persistent_) {
          if (MPI_Recv_init(buffer(), Guarded::kSize, MPI_BYTE, liar, MPI_ANY_TAG, comm_, &request) ==
              MPI_SUCCESS)
            MPI_Start(&request);
        }
        break;
      case kSending:
        for (const int size : {kLong, 40000})
          start([&](MPI_Request* r) { return MPI_Isend(out_.data(), size, MPI_BYTE, liar, 3, comm_, r); });
        start([&](MPI_Request* r) { return MPI_Issend(out_.data(), 100, MPI_BYTE, liar, 3, comm_, r); });
        break;
      default:
        break;
    }
  }

  /// Makes progress.
  void poll() {
    int flag = 0;
    MPI_Status status;
    if (state_ == kProbed && !lost_) {
      if (held_.size() < 4) {
        MPI_Message message = MPI_MESSAGE_NULL;
        if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &flag, &message, &status) != MPI_SUCCESS)
          lost_ = true;
        else if (flag != 0)
          held_.push_back(message);
      }
      MPI_Iprobe(1, 5, comm_, &flag, &status);
      return;
    }
    MPI_Iprobe(MPI_ANY_SOURCE, 12345, MPI_COMM_SELF, &flag, &status);
  }

  /// Takes back what it has with the liar and receives what came from it. False: the liar was declared
  /// failed.
  bool clean() {
    state_ = kNothing;
    for (MPI_Message& message : held_)
      start([&](MPI_Request* r) { return MPI_Imrecv(buffer(), Guarded::kSize, MPI_BYTE, &message, r); });
    held_.clear();
    for (MPI_Request& request : persistent_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      if (!ends(&request, 0.05)) ++board_.stuck;
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    for (Pending& pending : pending_)
      if (pending.receive) MPI_Cancel(&pending.request);
    drain(comm_, 1);
    drain(MPI_COMM_WORLD, rank_);
    for (Pending& pending : pending_)
      if (!ends(&pending.request, 0.02)) waiting_.push_back(pending.request);
    pending_.clear();
    const bool alive = ask();
    sweep();
    uint64_t hurt = 0;
    for (const Guarded& g : buffers_) hurt += g.hurt();
    board_.guards = hurt;
    return alive;
  }

  /// Requests with liars that have not ended.
  size_t waiting() {
    sweep();
    return waiting_.size();
  }

 private:
  static constexpr int kLong = 300000;
  struct Pending {
    MPI_Request request;
    bool receive;
  };

  char* buffer() { return buffers_[next_buffer_++ % kBuffers].data(); }

  template <class Start>
  void start(Start how, bool receive = false) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (how(&request) == MPI_SUCCESS && request != MPI_REQUEST_NULL) pending_.push_back({request, receive});
  }
  void receive(int source, int tag, int size) {
    start([&](MPI_Request* r) { return MPI_Irecv(buffer(), size, MPI_BYTE, source, tag, comm_, r); }, true);
  }

  /// Whether it ends, well or not.
  bool ends(MPI_Request* request, double patience_s) {
    const double until = MPI_Wtime() + patience_s;
    int done = 0;
    do {
      if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return true;
    } while (done == 0 && MPI_Wtime() < until);
    return done != 0;
  }

  void drain(MPI_Comm comm, int liar) {
    for (int i = 0; i < 50000; ++i) {
      int flag = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      if (MPI_Improbe(liar, MPI_ANY_TAG, comm, &flag, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
          flag == 0)
        return;
      MPI_Request request = MPI_REQUEST_NULL;
      if (MPI_Imrecv(buffer(), Guarded::kSize, MPI_BYTE, &message, &request) != MPI_SUCCESS) continue;
      int done = 0;
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0)
        waiting_.push_back(request);
      ++board_.received;
    }
  }

  /// An eager message ends at once, well if the peer counts as alive.
  bool ask() {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(out_.data(), 1, MPI_BYTE, 1, 9, comm_, &request) != MPI_SUCCESS) return false;
    const double until = MPI_Wtime() + 0.05;
    int done = 0;
    do {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    } while (done == 0 && MPI_Wtime() < until);
    if (done == 0) waiting_.push_back(request);
    return true;
  }

  void sweep() {
    std::vector<MPI_Request> still;
    for (MPI_Request& request : waiting_) {
      int done = 0;
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) still.push_back(request);
    }
    waiting_.swap(still);
    board_.stuck = waiting_.size();
  }

  static constexpr size_t kBuffers = 8;
  Board& board_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  State state_ = kNothing;
  bool lost_ = false;
  std::vector<char> out_;
  Guarded buffers_[kBuffers];
  size_t next_buffer_ = 0;
  MPI_Request persistent_[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::vector<Pending> pending_;
  std::vector<MPI_Message> held_;
  std::vector<MPI_Request> waiting_;
};
