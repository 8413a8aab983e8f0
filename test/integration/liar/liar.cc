// SPDX-License-Identifier: BSD-3-Clause
//
// liar.cc: a job with ranks that lie. `liar BOARD SEED SECONDS own|any [KIND [FLOOD]]`: rank 0 is the victim,
// the last two ranks are honest and exchange data with it and each other, the ranks between lie to the victim
// in turn: the next one when the victim has declared one failed. own: in its own name only. `liar BOARD`
// prints what BOARD says, a file that is made, and outlives the job.
#include <mpi.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/integration/liar/attack.h"
#include "test/integration/liar/exchange.h"
#include "test/integration/liar/job.h"
#include "test/integration/liar/victim.h"

namespace {

constexpr double kPatience = 30;  // with an exchange, after the lies

[[noreturn]] void give_up(const std::vector<Exchange>& exchanges) {
  for (const Exchange& e : exchanges)
    if (!e.over()) e.tell();
  rest(500'000);  // the others tell, too
  MPI_Abort(MPI_COMM_WORLD, 5);
  std::abort();
}

void be_honest(Job& job) {
  Board& board = *job.board;
  Word& word = board.words[job.rank];
  std::vector<Exchange> exchanges;
  int me = 0;
  MPI_Comm_rank(job.honest, &me);
  for (int peer = 0; peer < 3; ++peer)
    if (peer != me) exchanges.emplace_back(job.honest, me, peer, job.seed, word);
  Victim victim(board);
  uint32_t prepared = 0, cleaned = 0, turn = 0;
  double fired_at = 0, over_at = 0;
  bool warm = false;
  while (!std::all_of(exchanges.begin(), exchanges.end(), [](const Exchange& e) { return e.over(); })) {
    ++word.beats;
    if (board.over != 0) {
      if (over_at == 0) over_at = MPI_Wtime();
      for (Exchange& e : exchanges) e.end();
      if (MPI_Wtime() - over_at > kPatience) give_up(exchanges);
    }
    for (Exchange& e : exchanges) e.poll();
    if (job.rank != 0) {
      rest(300);
      continue;
    }
    // ---- the victim ----
    victim.poll();
    if (!warm && word.messages < 60) continue;
    if (!warm) {
      warm = true;
      board.settled_kib = board.most_kib = resident_kib();
      board.began_us = static_cast<uint64_t>(now_s() * 1e6);
      board.turn = 1;
    }
    const uint32_t now = board.turn;
    if (now != turn && now <= static_cast<uint32_t>(job.liars())) {
      // The one before may have gone in the middle of a step.
      if (cleaned != prepared) victim.clean();
      cleaned = prepared;
      turn = now;
      victim.meet(job.with_victim[turn], static_cast<int>(turn));
      board.given_up = 0;
    }
    if (board.step != prepared && turn == now) {
      prepared = board.step;
      victim.prepare(static_cast<State>(board.state.load()));
      fired_at = 0;
      board.ready = prepared;
    }
    if (cleaned != prepared && board.fired == prepared) {
      if (fired_at == 0) fired_at = MPI_Wtime();
      if (MPI_Wtime() - fired_at < 0.01) continue;
      const uint64_t before = resident_kib();
      if (before > board.most_kib) board.most_kib = before;
      if (!victim.clean()) {
        ++board.times_given_up;
        board.given_up = 1;
      }
      cleaned = prepared;
      board.done = cleaned;
    } else if (board.fired == board.step) {
      rest(100);
    }
    const uint64_t now_kib = word.beats % 64 == 0 ? resident_kib() : 0;
    if (now_kib > board.most_kib) board.most_kib = now_kib;
    if (now > static_cast<uint32_t>(job.liars())) board.over = 1;
  }
  if (job.rank == 0) board.stuck = victim.waiting();
  word.finished = 1;
}

/// The last lies, the newest one first.
void tell_lies(const Board& board) {
  const uint64_t last = board.lies;
  for (uint64_t n = last; n > 0 && n + 12 > last; --n) {
    const Lie& lie = board.ring[n % kRing];
    if (lie.number != n) continue;
    std::printf("lie %llu: step %u, victim %s, %s%s, tag 0x%02x, %u bytes:",
                static_cast<unsigned long long>(n), lie.step, kStateNames[lie.state % kStates], lie.kind,
                lie.racing != 0 ? " (racing)" : "", lie.tag, lie.length);
    for (uint32_t i = 0; i < std::min<uint32_t>(lie.length, sizeof lie.head); ++i)
      std::printf("%s%02x", i % 4 == 0 ? " " : "", lie.head[i]);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    const Board* board = Board::map(argv[1]);
    board->tell();
    tell_lies(*board);
    return 0;
  }
  if (argc < 4) return 2;
  Job job{};
  job.board = Board::map(argv[1]);
  job.seed = std::strtoull(argv[2], nullptr, 10);
  job.seconds = std::atof(argv[3]);
  job.in_other_names = argc > 4 && std::strcmp(argv[4], "any") == 0;
  job.only = argc > 5 ? argv[5] : "";
  job.flood = argc > 6 ? std::atoi(argv[6]) : -1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.size);
  if (job.size < 4 || job.size > static_cast<int>(kMostRanks)) MPI_Abort(MPI_COMM_WORLD, 2);
  if (job.is_liar(job.rank)) {
    Tap::one().open();
    Tap::one().listening = true;
  }
  job.set_up();
  if (job.is_liar(job.rank)) {
    Liar liar(job);
    liar.run();
    if (liar.is_lost()) MPI_Abort(MPI_COMM_WORLD, 4);
    ++job.board->turn;
    while (job.board->words[0].finished == 0) {
      rest(2000);
      opal_progress();
    }
  } else {
    be_honest(job);
  }
  MPI_Finalize();
  return 0;
}
