// SPDX-License-Identifier: BSD-3-Clause
// player: plays programs of point-to-point messages (generator.py) and writes down what every process saw.
//   player PROGRAMS LOG-FOLDER [--threads N] [--children N]
// With --threads, thread t plays programs t, t + N, .. at the same time as the others, under
// MPI_THREAD_MULTIPLE. Exit status: 0 all right, 1 something was wrong, 2 usage.
#include "test/conformance/mpi/player/play.h"

#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

struct Options {
  std::string programs;
  std::string logs;
  int threads = 1;
  int children = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  if (argc < 3) {
    std::fprintf(stderr, "usage: player PROGRAMS LOG-FOLDER [--threads N] [--children N]\n");
    std::exit(2);
  }
  options.programs = argv[1];
  options.logs = argv[2];
  for (int i = 3; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) options.threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--children") == 0) options.children = std::atoi(argv[i + 1]);
  }
  return options;
}

// Buffered sends leave from here; what is written last is read first by nobody.
constexpr int kBsendBytes = 96 << 20;

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const std::vector<player::Program> programs = player::read_programs(options.programs);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, options.threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  if (options.threads > 1 && provided != MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "player: no MPI_THREAD_MULTIPLE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  player::Job job = player::join_job(options.children, argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  void* bsend_memory = std::malloc(kBsendBytes);
  MPI_Buffer_attach(bsend_memory, kBsendBytes);
  int wrongs = 0;
  {
    std::vector<std::unique_ptr<player::World>> worlds;
    std::vector<std::unique_ptr<player::Log>> logs;
    for (int t = 0; t < options.threads; ++t) {
      worlds.push_back(std::make_unique<player::World>(job));
      logs.push_back(std::make_unique<player::Log>(options.logs + "/" + std::to_string(job.me) + "." +
                                                   std::to_string(t)));
    }
    const auto play = [&](size_t t) {
      player::Play stage(worlds[t].get(), logs[t].get());
      for (size_t p = t; p < programs.size(); p += worlds.size()) stage.run(programs[p]);
    };
    std::vector<std::thread> others;
    for (size_t t = 1; t < worlds.size(); ++t) others.emplace_back(play, t);
    play(0);
    for (std::thread& other : others) other.join();
    for (const auto& log : logs) wrongs += log->wrongs();
  }
  void* detached;
  int size;
  MPI_Buffer_detach(&detached, &size);
  std::free(bsend_memory);
  int all = 0;
  MPI_Allreduce(&wrongs, &all, 1, MPI_INT, MPI_SUM, job.everybody);
  if (job.me == 0) std::printf("player: %zu programs, %d wrong\n", programs.size(), all);
  player::leave_job(&job);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
