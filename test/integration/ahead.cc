// SPDX-License-Identifier: BSD-3-Clause
//
// ahead: where eager messages of 512 bytes go over the BTL for processes of one host (vader, sm from 5.0 on).
// It stands between the PML and the BTL's sendi and counts. Windows of 64 messages are sent ahead of their
// receiver: in the peer's box of 4 KiB they would be refused. Messages that are answered one by one take the
// box. Every byte is checked. Two ranks; rank 0 prints one line.
#include "common/compat/ompi_release.h"

#include <mpi.h>

namespace {

constexpr int kBytes = 512;
constexpr int kWindow = 64;
constexpr int kWindows = 50;
constexpr int kRounds = 200;

int (*real_sendi)(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, opal_convertor_t*, void*, size_t, size_t,
                  uint8_t, uint32_t, mca_btl_base_tag_t, mca_btl_base_descriptor_t**);
int taken = 0;
int refused = 0;

int counting_sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* ep, opal_convertor_t* conv, void* hdr,
                   size_t hdr_size, size_t size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                   mca_btl_base_descriptor_t** des) {
  const int rc = real_sendi(btl, ep, conv, hdr, hdr_size, size, order, flags, tag, des);
  if (size == kBytes) ++(rc == OPAL_SUCCESS ? taken : refused);
  return rc;
}

mca_btl_base_module_t* shared_memory() {
  mca_btl_base_selected_module_t* selected = nullptr;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t) {
    mca_btl_base_module_t* btl = selected->btl_module;
    if (std::strcmp(btl->btl_component->btl_version.mca_component_name, bfo::kSharedMemoryBtl) == 0)
      return btl;
  }
  return nullptr;
}

struct Message {
  int words[kBytes / sizeof(int)];
  void fill(int seed) {
    for (int& word : words) word = seed++ * 2654435;
  }
  bool holds(int seed) const {
    for (const int word : words)
      if (word != seed++ * 2654435) return false;
    return true;
  }
};

Message messages[kWindow];

// Number of wrong messages.
int windows(int rank) {
  MPI_Request requests[kWindow];
  int wrong = 0;
  for (int round = 0; round < kWindows; ++round) {
    for (int i = 0; i < kWindow; ++i) {
      if (rank == 0) {
        messages[i].fill(round * kWindow + i);
        MPI_Isend(&messages[i], kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
      } else {
        MPI_Irecv(&messages[i], kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
      }
    }
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    if (rank == 1)
      for (int i = 0; i < kWindow; ++i) wrong += !messages[i].holds(round * kWindow + i);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  return wrong;
}

void answered(int rank) {
  for (int i = 0; i < kRounds; ++i) {
    if (rank == 0) MPI_Send(&messages[0], kBytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    MPI_Recv(&messages[1], kBytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(&messages[0], kBytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  answered(rank);  // the BTL sets up the box after a few messages
  mca_btl_base_module_t* const btl = shared_memory();
  if (btl == nullptr) {
    std::fprintf(stderr, "ahead: there is no BTL %s\n", bfo::kSharedMemoryBtl);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  real_sendi = btl->btl_sendi;
  btl->btl_sendi = counting_sendi;
  int wrong = windows(rank);
  const int refused_ahead = refused;
  taken = refused = 0;
  answered(rank);
  btl->btl_sendi = real_sendi;
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf("ahead: %d wrong; windows: %d of %d refused; answered: %d of %d in the box\n", wrong,
                refused_ahead, kWindows * kWindow, taken, kRounds);
  MPI_Finalize();
  return 0;
}
