// SPDX-License-Identifier: BSD-3-Clause
//
// script.cc: see script.h. One line per thing, words of the form name=number; a missing word has its default.
#include "test/stack/script.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <vector>

#include "test/stack/port.h"

namespace bfo::stack {
namespace {

const char* const kSendNames[] = {"standard", "sync", "ready", "buffered", "inline"};
static_assert(std::size(kSendNames) == static_cast<size_t>(sim::SendStyle::kCount));
const char* const kRecvNames[] = {"plain", "probe", "mprobe", "cancel"};
static_assert(std::size(kRecvNames) == static_cast<size_t>(sim::RecvStyle::kCount));

bool fault_index(const std::string& word, unsigned& out) {
  for (out = 0; out < static_cast<unsigned>(FaultKind::kCount); ++out)
    if (word == name_of(static_cast<FaultKind>(out))) return true;
  return false;
}

/// The machine's numbers by name; the order is that of the printed line.
template <class M, class F>
void each_number(M& m, F f) {
  f("seed", m.seed);
  f("procs", m.procs);
  f("rails", m.rails);
  f("eager_limit", m.eager_limit);
  f("max_send", m.max_send);
  f("blocking_limit", m.blocking_limit);
  f("rndv_eager", m.rndv_eager);
  f("min_rdma", m.min_rdma);
  f("get_alignment", m.get_alignment);
  f("piece", m.piece);
  f("frags", m.frags);
  f("uneven", m.uneven);
  f("use_get", m.use_get);
  f("use_put", m.use_put);
  f("lazy", m.lazy);
  f("short_limit", m.short_limit);
  f("pipeline", m.pipeline);
  f("rdma_frag", m.rdma_frag);
  f("park_ns", m.park_ns);
  f("degraded_ns", m.degraded_ns);
  f("connect_wait_ns", m.connect_wait_ns);
  f("send_depth", m.send_depth);
  f("receive_depth", m.receive_depth);
  f("receive_first", m.receive_first);
  f("slot_bytes", m.slot_bytes);
  f("signal_interval", m.signal_interval);
  f("cq_entries", m.cq_entries);
  f("poll_gap_ns", m.poll_gap_ns);
  f("inline_bytes", m.inline_bytes);
  f("timeout", m.timeout);
  f("retry_count", m.retry_count);
  f("control_threads", m.control_threads);
  f("control_ns", m.control_ns);
  f("events_ns", m.events_ns);
  f("stop_ns", m.stop_ns);
  f("queue_pair_ns", m.queue_pair_ns);
  f("slow_process", m.slow_process);
  f("late_ports", m.late_ports);
  f("late_ns", m.late_ns);
  f("dies_at_call", m.dies_at_call);
  f("memory_at", m.memory_at);
  f("memory_for", m.memory_for);
  f("reads_in_time", m.reads_in_time);
  f("seq_step", m.seq_step);
  f("may_fail", m.may_fail);
  f("any_source_waits", m.any_source_waits);
  f("connected", m.connected);
  f("free_comms", m.free_comms);
  f("clocks_only", m.clocks_only);
  f("polls", m.polls);
  f("idle_ns", m.idle_ns);
  f("late_data", m.late_data);
  f("absences", m.absences);
  f("one_way", m.one_way);
  f("ports_stay_down", m.ports_stay_down);
  f("slow_copies", m.slow_copies);
  f("early_faults", m.early_faults);
  f("fins_lost", m.fins_lost);
  f("last_words", m.last_words);
  f("deaths", m.deaths);
  f("no_gate", m.no_gate);
  f("heal_ns", m.heal_ns);
  f("weight", m.weight);
  f("send_pipeline", m.send_pipeline);
  f("poll_ns", m.processor.poll_ns);
  f("handled_ns", m.processor.handled_ns);
  f("copy_rate", m.processor.copy_rate);
  f("latency_ns", m.fabric.latency_ns);
  f("jitter_ns", m.fabric.jitter_ns);
  f("datagram_loss", m.fabric.datagram_loss);
  f("datagram_twice", m.fabric.datagram_twice);
  f("datagram_late", m.fabric.datagram_late);
  f("types_lost", m.fabric.types_lost);
  f("never_healed", m.fabric.never_healed);
  f("fabric_late_ns", m.fabric.late_ns);
  f("packet_ns", m.fabric.packet_ns);
  f("packet_late", m.fabric.packet_late);
  f("err_lands", m.fabric.err_lands);
  f("no_last_receive", m.fabric.no_last_receive);
  f("ah_fails", m.fabric.ah_fails);
  f("cqe_late", m.fabric.cqe_late);
  f("cqe_ns", m.fabric.cqe_ns);
  f("write_late", m.fabric.write_late);
  f("write_ns", m.fabric.write_ns);
  f("no_fence", m.fabric.no_fence);
  f("no_bytes", m.fabric.no_bytes);
  f("fence_fails", m.fabric.fence_fails);
  f("verb_fails", m.fabric.verb_fails);
  f("verb_blocks", m.fabric.verb_blocks);
  f("verb_ns", m.fabric.verb_ns);
}

void add(std::string& text, const char* name, uint64_t value) {
  char word[64];
  std::snprintf(word, sizeof word, " %s=%" PRIu64, name, value);
  text += word;
}

template <size_t N>
bool name_index(const char* const (&names)[N], const std::string& word, unsigned& out) {
  for (unsigned i = 0; i < N; ++i)
    if (word == names[i]) {
      out = i;
      return true;
    }
  return false;
}

/// The words after the first of one line.
class Words {
 public:
  Words(std::istringstream& in, std::string& error) : error_(error) {
    std::string word;
    while (in >> word) {
      const size_t eq = word.find('=');
      Word w;
      w.name = word.substr(0, eq);
      w.text = eq == std::string::npos ? "" : word.substr(eq + 1);
      words_.push_back(w);
    }
  }
  template <class T>
  void number(const char* name, T& out) {
    for (Word& w : words_) {
      if (w.name != name) continue;
      w.used = true;
      char* end = nullptr;
      const long long v = std::strtoll(w.text.c_str(), &end, 10);
      if (w.text.empty() || *end != '\0') error_ = "\"" + w.name + "\" needs a number";
      out = static_cast<T>(v);
    }
  }
  void flag(const char* name, bool& out) {
    int v = out;
    number(name, v);
    out = v != 0;
  }
  std::string word(const char* name) {
    for (Word& w : words_)
      if (w.name == name) {
        w.used = true;
        return w.text;
      }
    return "";
  }
  bool bare(std::string& out) {
    for (Word& w : words_)
      if (!w.used && w.text.empty()) {
        w.used = true;
        out = w.name;
        return true;
      }
    return false;
  }
  void finish() {
    for (const Word& w : words_)
      if (!w.used) error_ = "unknown word \"" + w.name + "\"";
  }

 private:
  struct Word {
    std::string name;
    std::string text;
    bool used = false;
  };
  std::vector<Word> words_;
  std::string& error_;
};

void parse_pair(Words& w, sim::PairPlan& p, std::string& error) {
  w.number("comm", p.comm);
  w.number("src", p.src);
  w.number("dst", p.dst);
  w.number("tag", p.tag);
  w.number("len", p.length);
  w.flag("contig", p.contiguous);
  w.number("at", p.send_at);
  w.flag("any_source", p.any_source);
  w.flag("any_tag", p.any_tag);
  w.flag("rcontig", p.recv_contiguous);
  p.capacity = p.length;
  w.number("cap", p.capacity);
  p.recv_at = p.send_at;
  w.number("rat", p.recv_at);
  unsigned i = 0;
  const std::string send = w.word("send");
  if (!send.empty() && !name_index(kSendNames, send, i)) error = "unknown send \"" + send + "\"";
  p.send_style = static_cast<sim::SendStyle>(i);
  i = 0;
  const std::string recv = w.word("recv");
  if (!recv.empty() && !name_index(kRecvNames, recv, i)) error = "unknown recv \"" + recv + "\"";
  p.recv_style = static_cast<sim::RecvStyle>(i);
}

void parse_fault(Words& w, Fault& f, std::string& error) {
  std::string kind;
  unsigned i = 0;
  if (!w.bare(kind) || !fault_index(kind, i)) error = "unknown fault \"" + kind + "\"";
  f.kind = static_cast<FaultKind>(i);
  w.number("t", f.t);
  w.number("p", f.p);
  w.number("q", f.q);
  w.number("r", f.r);
  w.number("class", f.packets);
  w.number("n", f.n);
  w.number("d", f.d);
}

bool check(const Scenario& s, std::string& error) {
  const Machine& m = s.machine;
  if (m.procs < 2 || m.procs > 1000) error = "procs must be 2 to 1000";
  if (m.rails < 1 || m.rails > kMaxStackRails) error = "rails must be 1 to 4";
  if (m.max_send < m.eager_limit || m.max_send > 65536) error = "max_send must be eager_limit to 65536";
  for (const sim::PairPlan& p : s.program.pairs)
    if (p.comm >= s.program.comms.size() || p.src >= m.procs || p.dst >= m.procs)
      error = "a pair names what is not there";
  for (const sim::CommPlan& c : s.program.comms)
    if (c.after >= static_cast<int32_t>(s.program.comms.size()))
      error = "a comm comes after one that is not there";
  for (const Fault& f : s.faults)
    if (f.p >= m.procs || f.q >= m.procs || f.r >= m.rails) error = "a fault names what is not there";
  return error.empty();
}

void print_machine(const Machine& m, std::string& text) {
  const Machine plain;
  std::vector<uint64_t> defaults;
  each_number(plain, [&](const char*, uint64_t v) { defaults.push_back(v); });
  size_t i = 0;
  each_number(m, [&](const char* name, uint64_t v) {
    if (v != defaults[i++]) add(text, name, v);
  });
}

void print_fault(const Fault& f, std::string& text) {
  text += std::string("fault ") + name_of(f.kind);
  add(text, "t", f.t);
  add(text, "p", f.p);
  add(text, "q", f.q);
  add(text, "r", f.r);
  if (by_packet(f.kind)) add(text, "class", f.packets);
  if (f.n != 1) add(text, "n", f.n);
  if (f.d != 0) add(text, "d", f.d);
  text += "\n";
}

void print_pair(const sim::PairPlan& p, std::string& text) {
  text += "pair";
  add(text, "comm", p.comm);
  add(text, "src", p.src);
  add(text, "dst", p.dst);
  add(text, "tag", static_cast<uint64_t>(p.tag));
  add(text, "len", p.length);
  if (p.send_style != sim::SendStyle::kStandard)
    text += std::string(" send=") + kSendNames[static_cast<unsigned>(p.send_style)];
  if (!p.contiguous) add(text, "contig", 0);
  add(text, "at", p.send_at);
  if (p.recv_style != sim::RecvStyle::kPlain)
    text += std::string(" recv=") + kRecvNames[static_cast<unsigned>(p.recv_style)];
  if (p.any_source) add(text, "any_source", 1);
  if (p.any_tag) add(text, "any_tag", 1);
  if (!p.recv_contiguous) add(text, "rcontig", 0);
  if (p.capacity != p.length) add(text, "cap", p.capacity);
  if (p.recv_at != p.send_at) add(text, "rat", p.recv_at);
  text += "\n";
}

/// One line of a script; `wrong` says what is wrong with it.
void parse_line(const std::string& what, Words& w, Scenario& out, std::string& wrong) {
  if (what == "machine") {
    each_number(out.machine, [&](const char* name, auto& v) { w.number(name, v); });
  } else if (what == "comm") {
    sim::CommPlan& c = out.program.comms.emplace_back();
    w.number("ctx", c.ctx);
    w.number("shift", c.shift);
    w.number("after", c.after);
    w.number("skew", c.skew_ns);
  } else if (what == "pair") {
    parse_pair(w, out.program.pairs.emplace_back(), wrong);
  } else if (what == "fault") {
    parse_fault(w, out.faults.emplace_back(), wrong);
  } else {
    wrong = "unknown line \"" + what + "\"";
  }
  w.finish();
}

}  // namespace

std::string script_of(const Scenario& s) {
  std::string text = "config " + (s.config.empty() ? std::string("script") : s.config) + "\nmachine";
  print_machine(s.machine, text);
  text += "\n";
  for (const sim::CommPlan& c : s.program.comms) {
    text += "comm";
    add(text, "ctx", c.ctx);
    if (c.shift != 0) add(text, "shift", c.shift);
    if (c.after >= 0) add(text, "after", static_cast<uint64_t>(c.after));
    if (c.skew_ns != 0) add(text, "skew", c.skew_ns);
    text += "\n";
  }
  for (const sim::PairPlan& p : s.program.pairs) print_pair(p, text);
  for (const Fault& f : s.faults) print_fault(f, text);
  return text;
}

bool parse_script(const std::string& text, Scenario& out, std::string& error) {
  error.clear();
  out = Scenario{};
  std::istringstream lines(text);
  std::string line;
  for (unsigned number = 1; std::getline(lines, line); ++number) {
    if (const size_t hash = line.find('#'); hash != std::string::npos) line.resize(hash);
    std::istringstream in(line);
    std::string what;
    if (!(in >> what)) continue;
    if (what == "config") {
      in >> out.config;
      continue;
    }
    std::string wrong;
    Words w(in, wrong);
    parse_line(what, w, out, wrong);
    if (wrong.empty()) continue;
    error = "line " + std::to_string(number) + ": " + wrong;
    return false;
  }
  out.program.procs = out.machine.procs;
  settle(out);
  return check(out, error);
}

}  // namespace bfo::stack
