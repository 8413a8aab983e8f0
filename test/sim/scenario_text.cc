// SPDX-License-Identifier: BSD-3-Clause
//
// scenario_text.cc: scenarios as text, so that a failing run can be printed, cut down, kept and pasted. One
// line per thing, words of the form name=number; a missing word has its default.

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "test/sim/event_queue.h"
#include "test/sim/scenario.h"

namespace bfo::sim {
namespace {

const char* const kFaultNames[] = {"drop",    "noack",  "hold",  "errnow", "errdone", "portdown",
                                   "silent",  "oneway", "break", "pause",  "nores",   "raildown",
                                   "alldown", "device", "death", "forge",  "echo",    "linger"};
static_assert(sizeof kFaultNames / sizeof *kFaultNames == static_cast<size_t>(FaultKind::kCount));
const char* const kSendNames[] = {"standard", "sync", "ready", "buffered", "inline"};
static_assert(sizeof kSendNames / sizeof *kSendNames == static_cast<size_t>(SendStyle::kCount));
const char* const kRecvNames[] = {"plain", "probe", "mprobe", "cancel"};
static_assert(sizeof kRecvNames / sizeof *kRecvNames == static_cast<size_t>(RecvStyle::kCount));

/// The machine's numbers by name; the order is that of the printed line.
template <class M, class F>
void each_number(M& m, F f) {
  f("seed", m.seed);
  f("procs", m.procs);
  f("rails", m.rails);
  f("eager", m.eager_limit);
  f("rndv_eager", m.rndv_eager);
  f("max_send", m.max_send);
  f("put", m.put_limit);
  f("get", m.get_limit);
  f("get_align", m.get_alignment);
  f("min_rdma", m.min_rdma);
  f("rdma_frag", m.rdma_frag);
  f("send_depth", m.send_depth);
  f("rdma_depth", m.rdma_depth);
  f("use_get", m.use_get);
  f("use_put", m.use_put);
  f("sq", m.sq_depth);
  f("srq", m.srq_depth);
  f("frags", m.frags);
  f("retained", m.retained);
  f("latency", m.latency_ns);
  f("retry", m.retry_ns);
  f("suspect", m.suspect_ns);
  f("drain", m.drain_ns);
  f("late", m.late_ns);
  f("backoff", m.backoff_ns);
  f("uneven", m.uneven);
  f("lazy", m.lazy);
  f("fresh_conn", m.fresh_conn);
  f("park", m.park_ns);
  f("limit", m.limit_ns);
  f("unfenceable", m.unfenceable);
  f("may_lose_peer", m.may_lose_peer);
  f("blocking", m.blocking_limit);
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

void parse_pair(Words& w, PairPlan& p, std::string& error) {
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
  p.send_style = static_cast<SendStyle>(i);
  i = 0;
  const std::string recv = w.word("recv");
  if (!recv.empty() && !name_index(kRecvNames, recv, i)) error = "unknown recv \"" + recv + "\"";
  p.recv_style = static_cast<RecvStyle>(i);
}

void parse_fault(Words& w, Fault& f, std::string& error) {
  std::string kind;
  unsigned i = 0;
  if (!w.bare(kind) || !name_index(kFaultNames, kind, i)) error = "unknown fault \"" + kind + "\"";
  f.kind = static_cast<FaultKind>(i);
  w.number("t", f.t);
  w.number("p", f.p);
  w.number("q", f.q);
  w.number("r", f.r);
  w.number("class", f.cls);
  w.number("n", f.n);
  w.number("d", f.d);
}

bool check(const Scenario& s, std::string& error) {
  const Machine& m = s.machine;
  if (m.procs < 1 || m.procs > kMaxProcs) error = "procs must be 1 to 16";
  if (m.rails < 1 || m.rails > kMaxSimRails) error = "rails must be 1 to 4";
  if (m.max_send > kMaxPacket || m.eager_limit > kMaxPacket || m.rndv_eager > kMaxPacket ||
      m.blocking_limit > kMaxPacket || m.put_limit > kMaxPacket || m.get_limit > kMaxPacket)
    error = "a limit is larger than a simulated packet";
  if (m.limit_ns >= EventQueue::kEnd / 2) error = "a run must end within 34 seconds";
  for (const PairPlan& p : s.pairs)
    if (p.comm >= s.comms.size() || p.src >= m.procs || p.dst >= m.procs)
      error = "a pair names what is not there";
  for (const CommPlan& c : s.comms)
    if (c.after >= static_cast<int32_t>(s.comms.size())) error = "a comm comes after one that is not there";
  for (const Fault& f : s.faults)
    if (f.p >= m.procs || f.q >= m.procs || f.r >= m.rails) error = "a fault names what is not there";
  return error.empty();
}

}  // namespace

std::string print(const Fault& f) {
  std::string text = kFaultNames[static_cast<unsigned>(f.kind)];
  add(text, "t", f.t);
  add(text, "p", f.p);
  add(text, "q", f.q);
  add(text, "r", f.r);
  if (by_packet(f.kind)) add(text, "class", f.cls);
  if (by_packet(f.kind) || f.kind == FaultKind::kForge || f.kind == FaultKind::kEcho) add(text, "n", f.n);
  if (f.d != 0) add(text, "d", f.d);
  return text;
}

std::string print(const Scenario& s) {
  std::string text = "config " + (s.config.empty() ? std::string("default") : s.config) + "\nmachine";
  const Machine plain;
  std::vector<uint64_t> defaults;
  each_number(plain, [&](const char*, uint64_t v) { defaults.push_back(v); });
  size_t i = 0;
  each_number(s.machine, [&](const char* name, uint64_t v) {
    if (v != defaults[i++]) add(text, name, v);
  });
  text += "\n";
  for (const CommPlan& c : s.comms) {
    text += "comm";
    add(text, "ctx", c.ctx);
    if (c.shift) add(text, "shift", c.shift);
    if (c.after >= 0) add(text, "after", static_cast<uint64_t>(c.after));
    if (c.skew_ns) add(text, "skew", c.skew_ns);
    text += "\n";
  }
  for (const PairPlan& p : s.pairs) {
    text += "pair";
    add(text, "comm", p.comm);
    add(text, "src", p.src);
    add(text, "dst", p.dst);
    add(text, "tag", static_cast<uint64_t>(p.tag));
    add(text, "len", p.length);
    if (p.send_style != SendStyle::kStandard)
      text += std::string(" send=") + kSendNames[static_cast<unsigned>(p.send_style)];
    if (!p.contiguous) add(text, "contig", 0);
    add(text, "at", p.send_at);
    if (p.recv_style != RecvStyle::kPlain)
      text += std::string(" recv=") + kRecvNames[static_cast<unsigned>(p.recv_style)];
    if (p.any_source) add(text, "any_source", 1);
    if (p.any_tag) add(text, "any_tag", 1);
    if (!p.recv_contiguous) add(text, "rcontig", 0);
    if (p.capacity != p.length) add(text, "cap", p.capacity);
    if (p.recv_at != p.send_at) add(text, "rat", p.recv_at);
    text += "\n";
  }
  for (const Fault& f : s.faults) text += "fault " + print(f) + "\n";
  return text;
}

bool parse(const std::string& text, Scenario& out, std::string& error) {
  out = Scenario{};
  std::istringstream lines(text);
  std::string line;
  for (unsigned number = 1; std::getline(lines, line); ++number) {
    const size_t hash = line.find('#');
    if (hash != std::string::npos) line.resize(hash);
    std::istringstream in(line);
    std::string what;
    if (!(in >> what)) continue;
    std::string wrong;
    if (what == "config") {
      in >> out.config;
      continue;
    }
    Words w(in, wrong);
    if (what == "machine") {
      each_number(out.machine, [&](const char* name, auto& v) { w.number(name, v); });
    } else if (what == "comm") {
      CommPlan c;
      w.number("ctx", c.ctx);
      w.number("shift", c.shift);
      w.number("after", c.after);
      w.number("skew", c.skew_ns);
      out.comms.push_back(c);
    } else if (what == "pair") {
      PairPlan p;
      parse_pair(w, p, wrong);
      out.pairs.push_back(p);
    } else if (what == "fault") {
      Fault f;
      parse_fault(w, f, wrong);
      out.faults.push_back(f);
    } else {
      wrong = "unknown line \"" + what + "\"";
    }
    w.finish();
    if (!wrong.empty()) {
      error = "line " + std::to_string(number) + ": " + wrong;
      return false;
    }
  }
  return check(out, error);
}

}  // namespace bfo::sim
