// SPDX-License-Identifier: BSD-3-Clause
//
// derived: how many messages in an indexed type of many blocks are moved a second, as one JSON line. Blocks
// of 8 doubles (pair) or of one int (bcast) with a gap of the same length behind each.
//
// usage: derived [--kind pair|bcast] [--blocks N]
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kRepeat = 5;

struct Options {
  bool bcast = false;
  int blocks = 1000000;
};

bool parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--kind" && (value == "pair" || value == "bcast")) {
      o->bcast = value == "bcast";
    } else if (name == "--blocks" && std::atoi(value.c_str()) > 0 && std::atoi(value.c_str()) <= 4000000) {
      o->blocks = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr, "derived: %s %s: expected --kind pair|bcast or --blocks 1..4000000\n",
                   name.c_str(), value.c_str());
      return false;
    }
  }
  return true;
}

MPI_Datatype indexed(int blocks, int length, MPI_Datatype base) {
  std::vector<int> lengths(static_cast<size_t>(blocks), length);
  std::vector<int> places(lengths.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int>(i) * 2 * length;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_indexed(blocks, lengths.data(), places.data(), base, &type);
  MPI_Type_commit(&type);
  return type;
}

/// Seconds from the start of one message, or broadcast, to its end everywhere.
double once(const Options& o, std::vector<char>& buffer, MPI_Datatype type, int rank) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begun = MPI_Wtime();
  if (o.bcast)
    MPI_Bcast(buffer.data(), 1, type, 0, MPI_COMM_WORLD);
  else if (rank == 0)
    MPI_Send(buffer.data(), 1, type, 1, 1, MPI_COMM_WORLD);
  else if (rank == 1)
    MPI_Recv(buffer.data(), 1, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - begun;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Options o;
  if (!parse(argc, argv, &o)) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Datatype type = o.bcast ? indexed(o.blocks, 1, MPI_INT) : indexed(o.blocks, 8, MPI_DOUBLE);
  const size_t block = o.bcast ? sizeof(int) : 8 * sizeof(double);
  std::vector<char> buffer(static_cast<size_t>(o.blocks) * 2 * block, 1);
  once(o, buffer, type, rank);
  std::vector<double> times;
  for (int i = 0; i < kRepeat; ++i) times.push_back(once(o, buffer, type, rank));
  std::sort(times.begin(), times.end());
  if (rank == 0) std::printf("{\"rate\": %.6g}\n", 1 / times[kRepeat / 2]);
  MPI_Type_free(&type);
  MPI_Finalize();
  return 0;
}
