// SPDX-License-Identifier: BSD-3-Clause
//
// closure_verdict.cc: model M5, see closure_verdict.h.
#include "test/sim/closure_verdict.h"

#include <cstdio>
#include <cstring>

namespace bfo::closure::verdict {
namespace {

constexpr uint8_t u8(unsigned v) {
  return static_cast<uint8_t>(v);
}

}  // namespace

State Verdicts::initial() const {
  State s{};
  for (auto& side : s.rail)
    for (Rail& rail : side)
      rail = Rail{.up = 1,
                  .epoch = 1,
                  .suspect = 0,
                  .probe_failed = 0,
                  .on = 0,
                  .open = 0,
                  .first = 0,
                  .round = 0,
                  .answered = 0};
  return s;
}

engine::Inquiry Verdicts::inquiry_of(const Rail& rail) {
  return engine::Inquiry{.on = rail.on != 0,
                         .open = rail.open != 0,
                         .counted = true,
                         .first = rail.first,
                         .round = rail.round,
                         .answered = rail.answered,
                         .count = 0};
}

template <class Change>
void Verdicts::step(const State& from, std::vector<Next>& out, const char* what, int rail, Change&& change,
                    bool fault) {
  c_ = from;
  change();
  if (std::memcmp(&c_, &from, sizeof c_) == 0) return;  // nobody to ask
  for (int x = 0; x < 2; ++x) {
    if (c_.rail[x][0].up || c_.rail[x][1].up || !violation_.empty()) continue;
    violation_ = x == 0 ? "clocks took the decider's last rail" : "clocks took the other side's last rail";
  }
  out.push_back({c_, what, rail, fault});
}

/// A side ends a rail, and says so.
void Verdicts::end(int x, int r) {
  Rail& rail = c_.rail[x][r];
  if (!rail.up) return;
  rail.up = rail.suspect = rail.probe_failed = rail.on = rail.open = rail.first = rail.answered = 0;
  c_.notice[1 - x][r] = rail.epoch;
  // What was heard about the other rail was heard over this one.
  c_.rail[x][1 - r].on = c_.rail[x][1 - r].open = 0;
}

void Verdicts::ask(int x, int r) {
  Rail& rail = c_.rail[x][r];
  const int other = 1 - r;
  if (!carries(x, other)) {
    rail.on = rail.open = 0;
    return;
  }
  if (!rail.on) {
    rail.on = 1;
    rail.open = 0;
    rail.answered = u8(engine::kRoundsWithProbe - 1);
    rail.first = u8(rail.round + 1u);
  }
  if (!rail.open) {
    rail.open = 1;
    ++rail.round;
  }
  const bool request_end = x == 1 && engine::proven(inquiry_of(rail), rail.probe_failed != 0, true, false);
  for (const int over : {r, other}) {
    const Datagram m{1,          u8(static_cast<unsigned>(r)),
                     rail.epoch, c_.rail[x][over].epoch,
                     rail.round, u8(request_end ? unsigned{engine::kInquiryRequestEnd} : 0u)};
    if (c_.cut[over]) continue;
    if (!request_end)
      on_question(1 - x, over, m);
    else if (!c_.request_end[over].used)
      c_.request_end[over] = m;
  }
}

void Verdicts::on_question(int x, int over, const Datagram& m) {
  const Rail& about = c_.rail[x][m.about];
  if (m.epoch > about.epoch) return;
  const bool current = m.epoch == about.epoch && about.up;
  if ((m.flags & engine::kInquiryRequestEnd) != 0 &&
      engine::granted(engine::EndRequest{.decider = x == 0,
                                         .rail_up = current,
                                         .same_rail = over == m.about,
                                         .carrier_up = here(x, over, m) || off(Without::kCarrierHere),
                                         .unmoved = true})) {
    ++verdicts_;
    end(x, m.about);
  }
  const bool lives = m.epoch == c_.rail[x][m.about].epoch && c_.rail[x][m.about].up;
  Datagram& a = c_.answer[1 - x][over];
  if (c_.cut[over] || a.used) return;
  const bool carrier = carries(x, over);
  a = Datagram{1,
               m.about,
               m.epoch,
               c_.rail[x][over].epoch,
               m.number,
               u8((lives ? engine::kInquiryAlive : engine::kInquiryOver) |
                  (carrier ? unsigned{engine::kInquiryCarrier} : 0u))};
}

void Verdicts::on_answer(int x, int over, const Datagram& m) {
  Rail& rail = c_.rail[x][m.about];
  if (m.epoch != rail.epoch || !rail.up) return;
  const engine::InquiryAnswer answer{m.number, m.flags, 0, over == m.about, here(x, over, m)};
  switch (engine::hear(inquiry_of(rail), answer)) {
    case engine::Hearing::kIgnore:
      return;
    case engine::Hearing::kOver:
      return end(x, m.about);
    case engine::Hearing::kAlive:
      rail.probe_failed = rail.on = rail.open = 0;
      return;
    case engine::Hearing::kRound:
      rail.open = 0;
      ++rail.answered;
      return;
  }
}

void Verdicts::clocks(const State& from, std::vector<Next>& out, int x, int r) {
  const Rail& rail = from.rail[x][r];
  const Rail& there = from.rail[1 - x][r];
  if (rail.up && !rail.suspect && !from.rail[x][1 - r].suspect && rail.round < kRounds)
    step(from, out, x == 0 ? "decider: work stands still" : "other side: work stands still", r, [&] {
      Rail& c = c_.rail[x][r];
      c.suspect = c.probe_failed = 1;
      ask(x, r);
    });
  // What ends the suspicion ends the inquiry. Each suspicion has cost a question, so this does not go on for
  // ever.
  if (rail.suspect && rail.on && from.eased < kEased)
    step(from, out, x == 0 ? "decider: work completes" : "other side: work completes", r, [&] {
      Rail& c = c_.rail[x][r];
      c.suspect = c.probe_failed = c.on = c.open = c.first = c.answered = 0;
      ++c_.eased;
    });
  if (rail.suspect && !rail.open && rail.round < kRounds) {
    const bool ends = engine::proven(inquiry_of(rail), rail.probe_failed != 0, true, false);
    if (ends && (x == 0 || off(Without::kOneJudge)))
      step(from, out, x == 0 ? "decider: verdict" : "other side: verdict", r, [&] {
        ++verdicts_;
        end(x, r);
      });
    else if (rail.probe_failed)
      step(from, out, x == 0 ? "decider: asks" : "other side: asks", r, [&] { ask(x, r); });
  }
  // The next epoch begins when both sides have ended the last one, and the decider is up first.
  const bool path = from.cut[r] == 0;
  if (x == 0 && path && !rail.up && !there.up && rail.epoch == there.epoch && rail.epoch < kEpochs)
    step(from, out, "decider: up again", r, [&] {
      c_.rail[0][r].up = 1;
      ++c_.rail[0][r].epoch;
    });
  if (x == 1 && !rail.up && there.up && there.epoch > rail.epoch)
    step(from, out, "other side: up again", r, [&] {
      c_.rail[1][r].up = 1;
      c_.rail[1][r].epoch = there.epoch;
    });
}

void Verdicts::packets(const State& from, std::vector<Next>& out, int x, int r) {
  if (x == 0 && from.request_end[r].used)
    step(from, out, "decider: an end request over", r, [&] {
      c_.request_end[r] = Datagram{};
      on_question(x, r, from.request_end[r]);
    });
  if (from.answer[x][r].used)
    step(from, out, x == 0 ? "decider: an answer over" : "other side: an answer over", r, [&] {
      c_.answer[x][r] = Datagram{};
      on_answer(x, r, from.answer[x][r]);
    });
  if (from.notice[x][r])
    step(from, out, x == 0 ? "decider: hears of the end" : "other side: hears of the end", r, [&] {
      c_.notice[x][r] = 0;
      if (c_.rail[x][r].up && c_.rail[x][r].epoch <= from.notice[x][r]) end(x, r);
    });
}

void Verdicts::faults(const State& from, std::vector<Next>& out, int r) {
  if (from.faults == faults_) return;
  step(
      from, out, from.cut[r] ? "THE PATH WORKS AGAIN" : "THE PATH LOSES EVERYTHING", r,
      [&] {
        ++c_.faults;
        c_.cut[r] = !from.cut[r];
        // What is on its way may be there already, or be lost.
        if (c_.cut[r]) c_.request_end[r] = c_.answer[0][r] = c_.answer[1][r] = Datagram{};
      },
      true);
}

void Verdicts::successors(const State& from, std::vector<Next>& out) {
  for (int r = 0; r < 2; ++r) {
    for (int x = 0; x < 2; ++x) {
      clocks(from, out, x, r);
      packets(from, out, x, r);
    }
    faults(from, out, r);
  }
}

std::string Verdicts::describe(const State& s) const {
  std::string text;
  char line[120];
  for (int x = 0; x < 2; ++x)
    for (int r = 0; r < 2; ++r) {
      const Rail& rail = s.rail[x][r];
      std::snprintf(line, sizeof line,
                    "side %d rail %d: up %d epoch %d suspect %d inquiry %d round %d answered %d; ", x, r,
                    rail.up, rail.epoch, rail.suspect, rail.on, rail.round, rail.answered);
      text += line;
    }
  return text;
}

}  // namespace bfo::closure::verdict
