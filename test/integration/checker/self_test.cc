// SPDX-License-Identifier: BSD-3-Clause
//
// The self-test of the checker.
#include "test/integration/checker/self_test.h"

#include <cstdio>

#include "test/integration/checker/phases.h"

namespace bfo::checker {

int self_test(Worker& w, MPI_Comm comm) {
  int failures = 0;
  w.shared.report.mute(true);
  for (int i = 0; i < static_cast<int>(Tamper::Mode::kCount); ++i) {
    const auto mode = static_cast<Tamper::Mode>(i);
    {
      const OwnComm own(w, comm);
      // Everybody damages; the communicator's barrier keeps the rounds of different modes apart.
      Lane lane(own.get(), w.next_comm_id());
      w.set_phase("self-test");
      w.shared.report.forget();
      w.tamper.arm(mode);
      for (int k = 0; k < 3; ++k) {
        Round r;
        r.order = static_cast<Round::Order>(k);
        r.per_stream = 30;
        r.cap_bytes = 70000;
        r.seed = w.agreed.next();
        storm_round(w, lane, r);
      }
      w.pool.drain();
      w.tamper.arm(Tamper::Mode::kOff);
    }
    const Kind kind = Tamper::expected(mode);
    const Report& report = w.shared.report;
    // A replaced message leaves a hole behind it, which shows in its successors (one of a single byte does
    // not tell whose it is); a wrong count makes the byte behind it look like an overrun.
    uint64_t explained = report.count(kind);
    if (kind == Kind::kDoubled) explained += report.count(Kind::kReordered) + report.count(Kind::kStatus);
    if (kind == Kind::kReordered)
      explained += report.count(Kind::kDoubled) + report.count(Kind::kStatus) + report.count(Kind::kCorrupt);
    if (kind == Kind::kStatus) explained += report.count(Kind::kOverrun);
    const bool good = mode == Tamper::Mode::kOff ? report.errors() == 0
                                                 : report.count(kind) > 0 && explained == report.errors();
    if (!good) {
      ++failures;
      std::fprintf(stderr, "checker: rank %d self-test %s: expected %s, found", w.shared.rank,
                   Tamper::name(mode), name_of(kind));
      for (int k = 0; k < static_cast<int>(Kind::kCount); ++k)
        if (report.count(static_cast<Kind>(k)))
          std::fprintf(stderr, " %s x%llu", name_of(static_cast<Kind>(k)),
                       static_cast<unsigned long long>(report.count(static_cast<Kind>(k))));
      std::fprintf(stderr, "%s\n", report.errors() ? "" : " nothing");
    } else if (w.shared.rank == 0) {
      std::printf("self-test: %-16s noticed as %s\n", Tamper::name(mode), name_of(kind));
    }
  }
  w.shared.report.forget();
  w.shared.report.mute(false);
  return failures;
}

void stall_test(Worker& w, MPI_Comm comm) {
  const OwnComm own(w, comm);
  const Watchdog::Scope scope(w.shared.dog,
                              [] { return std::string("stall-test: a message that is never sent"); });
  char byte;
  w.check(MPI_Recv(&byte, 1, MPI_BYTE, MPI_ANY_SOURCE, 5, own.get(), MPI_STATUS_IGNORE), "MPI_Recv");
}

}  // namespace bfo::checker
