// SPDX-License-Identifier: BSD-3-Clause
//
// long_eager: which messages longer than the BTL's eager limit are copied, and which are read, over BTL
// verbs; and how large the buffers are that the copies take. Every byte is checked. Two ranks; rank 0 prints
// one line.
#include "common/compat/ompi_includes.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kRounds = 20;
constexpr int kMost = 20000;

unsigned char bytes[kMost];

mca_btl_base_module_t* verbs() {
  mca_btl_base_selected_module_t* selected = nullptr;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t) {
    mca_btl_base_module_t* btl = selected->btl_module;
    if (std::strcmp(btl->btl_component->btl_version.mca_component_name, "verbs") == 0) return btl;
  }
  return nullptr;
}

// What this process has read over rails until now.
unsigned long long bytes_read() {
  static MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
  static MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
  if (session == MPI_T_PVAR_SESSION_NULL) {
    int provided = 0, index = 0, count = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    if (MPI_T_pvar_get_index("pml_bfo_bytes_read", MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS ||
        MPI_T_pvar_handle_alloc(session, index, nullptr, &handle, &count) != MPI_SUCCESS) {
      std::fprintf(stderr, "long_eager: there is no pml_bfo_bytes_read\n");
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
  }
  unsigned long long value = 0;
  MPI_T_pvar_read(session, handle, &value);
  return value;
}

unsigned char value(int i, int round) {
  return static_cast<unsigned char>(i * 31 + (i >> 8) * 7 + round);
}

// Sends kRounds messages of `n` bytes to rank 1. How many of them it has read, on both ranks.
int exchange(int rank, int n, bool blocking) {
  const unsigned long long before = bytes_read();
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (rank == 1) {
      MPI_Recv(bytes, n, MPI_BYTE, 0, n, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int i = 0; i < n && wrong == 0; ++i) wrong = bytes[i] != value(i, round);
      continue;
    }
    for (int i = 0; i < n; ++i) bytes[i] = value(i, round);
    if (blocking) {
      MPI_Send(bytes, n, MPI_BYTE, 1, n, MPI_COMM_WORLD);
    } else {
      MPI_Request request;
      MPI_Isend(bytes, n, MPI_BYTE, 1, n, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
  int read = static_cast<int>((bytes_read() - before) / static_cast<unsigned>(n));
  if (wrong != 0) {
    std::fprintf(stderr, "long_eager: a message of %d bytes is wrong\n", n);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Bcast(&read, 1, MPI_INT, 1, MPI_COMM_WORLD);
  return read;
}

// Bytes from one buffer for messages of `size` bytes to the next. While there is no buffer, because it is
// being registered, a longer one stands in.
long stride(mca_btl_base_module_t* btl, size_t size) {
  long least = -1;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::vector<mca_btl_base_descriptor_t*> some;
    std::vector<uint64_t> places;
    for (int i = 0; i < 8; ++i) {
      mca_btl_base_descriptor_t* const d = btl->btl_alloc(btl, nullptr, MCA_BTL_NO_ORDER, size, 0);
      if (d == nullptr) break;
      some.push_back(d);
      places.push_back(d->des_segments->seg_addr.lval);
    }
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < places.size(); ++i) {
      const long apart = static_cast<long>(places[i] - places[i - 1]);
      if (least < 0 || apart < least) least = apart;
    }
    for (auto* d : some) btl->btl_free(btl, d);
    if (least >= 0 && static_cast<size_t>(least) < size + 2048) break;
    opal_progress();
    usleep(1000);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  mca_btl_base_module_t* const btl = verbs();
  if (btl == nullptr) {
    std::fprintf(stderr, "long_eager: there is no verbs BTL\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  // One for which no buffer is free yet is read.
  const int blocking = exchange(rank, 16384, true) + exchange(rank, 17408, true);
  const int others = exchange(rank, 16384, false) + exchange(rank, 17409, true);
  if (rank == 0)
    std::printf("long_eager: %s of %d blocking sends copied; %d of %d others read; buffers %ld %ld %ld\n",
                blocking <= kRounds / 2 ? "most" : "few", 2 * kRounds, others, 2 * kRounds,
                stride(btl, 12288), stride(btl, 17422), stride(btl, 65536));
  MPI_Finalize();
  return 0;
}
