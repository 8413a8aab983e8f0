// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI job of contrib/quickstart: rank 0 sends large messages to rank 1, which checks every byte of each.
// It knows nothing about rails: this is any application. Prints one line per message and a JSON summary at
// the end (rank 1).

#include <mpi.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kMessages = 6;
constexpr size_t kMessageWords = (size_t{64} << 20) / sizeof(uint64_t);
constexpr int kSmallRounds = 100;

// What word `index` of message `message` must be: a bijective mix, so that no two positions or messages look
// alike.
uint64_t expected_word(uint64_t message, uint64_t index) {
  uint64_t x = (message << 40) + index + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t wrong_bytes(const std::vector<uint64_t>& words, uint64_t message) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t difference = words[i] ^ expected_word(message, i);
    if (difference == 0) continue;
    for (int byte = 0; byte < 8; ++byte) wrong += ((difference >> (8 * byte)) & 0xff) != 0;
  }
  return wrong;
}

// A few small messages there and back; returns the number of wrong ones.
uint64_t exchange_small(int rank) {
  uint64_t wrong = 0;
  for (int round = 0; round < kSmallRounds; ++round) {
    uint64_t word = expected_word(1000, static_cast<uint64_t>(round));
    if (rank == 0) {
      MPI_Send(&word, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
      MPI_Recv(&word, 8, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(&word, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(&word, 8, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    wrong += word != expected_word(1000, static_cast<uint64_t>(round)) ? 8 : 0;
  }
  return wrong;
}

void send_large(std::vector<uint64_t>& words, int message) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = expected_word(static_cast<uint64_t>(message), i);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Send(words.data(), static_cast<int>(words.size() * 8), MPI_BYTE, 1, 3, MPI_COMM_WORLD);
}

// Receives and checks one large message; returns the number of wrong bytes.
uint64_t receive_large(std::vector<uint64_t>& words, int message) {
  std::memset(words.data(), 0xa5, words.size() * 8);  // a byte that never arrives must not look right
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  MPI_Recv(words.data(), static_cast<int>(words.size() * 8), MPI_BYTE, 0, 3, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
  const double seconds = MPI_Wtime() - start;
  const uint64_t wrong = wrong_bytes(words, static_cast<uint64_t>(message));
  const double bytes = static_cast<double>(words.size() * 8);
  std::printf("message %d: %.0f bytes in %.1f ms, %.0f MB/s, %s\n", message, bytes, seconds * 1e3,
              bytes / seconds / 1e6, wrong == 0 ? "every byte right" : "WRONG BYTES");
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    if (rank == 0)
      std::fprintf(stderr, "quickstart-job: started with %d ranks, needs 2 (mpirun -np 2)\n", size);
    MPI_Finalize();
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<uint64_t> words(kMessageWords);
  uint64_t wrong = exchange_small(rank);
  for (int message = 0; message < kMessages; ++message) {
    if (rank == 0) {
      send_large(words, message);
    } else {
      wrong += receive_large(words, message);
    }
  }
  wrong += exchange_small(rank);
  if (rank == 1) {
    const uint64_t checked = kMessages * kMessageWords * 8 + 2 * kSmallRounds * 8;
    std::printf("{\"messages\": %d, \"checked_bytes\": %" PRIu64 ", \"wrong_bytes\": %" PRIu64 "}\n",
                kMessages + 2 * kSmallRounds, checked, wrong);
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
