// SPDX-License-Identifier: BSD-3-Clause
//
// summary.cc: see summary.h.
#include "pml/bfo/glue/summary.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

namespace bfo::glue {
namespace {

// Threads that progress different ports report at the same time.
std::mutex events;

bool tells(const Facts& facts) {
  return facts.lost + facts.back + facts.never + facts.peers_lost + facts.slow + facts.lossy +
             facts.events_lost !=
         0;
}

// A name from another process is printed: it ends, and has no byte that moves the cursor.
void make_printable(char* text, size_t size) {
  text[size - 1] = '\0';
  for (; *text != '\0'; ++text) {
    if (*text < ' ' || *text > '~') *text = '?';
  }
}

PortFacts* find_port(Facts& facts, const char* device, uint32_t number) {
  for (uint32_t i = 0; i < facts.n_ports; ++i) {
    PortFacts& port = facts.ports[i];
    if (port.port == number && strcmp(port.device, device) == 0) return &port;
  }
  if (facts.n_ports == Facts::kPorts) return nullptr;
  PortFacts& port = facts.ports[facts.n_ports++];
  port = {};
  snprintf(port.device, sizeof(port.device), "%s", device);
  port.port = number;
  return &port;
}

// A cause that the BTL words so is what the peer has seen: this process's own evidence says more.
bool of_the_peer(const char* cause) {
  constexpr char kPeer[] = "the peer ";
  return strncmp(cause, kPeer, sizeof(kPeer) - 1) == 0;
}

void note_cause(PortFacts& port, const char* cause, bool weak) {
  const uint32_t is = of_the_peer(cause) ? 2 : weak ? 1 : 0;
  if (*cause == '\0' || (port.cause[0] != '\0' && port.weak <= is)) return;
  snprintf(port.cause, sizeof(port.cause), "%s", cause);
  port.weak = is;
}

void note_end(PortFacts& port, uint32_t ends, const char* end) {
  if (ends == 0 || (port.ends != 0 && ends == 1 && strcmp(port.end, end) == 0)) return;
  if (port.ends == 0) snprintf(port.end, sizeof(port.end), "%s", end);
  port.ends = port.ends == 0 ? ends : 2;
}

void note_end(PortFacts& port, const EventNames& names) {
  char end[sizeof(port.end)] = "";
  if (*names.peer_device != '\0')
    snprintf(end, sizeof(end), "%.64s %.50s port %u", names.peer_host, names.peer_device, names.peer_port);
  else
    snprintf(end, sizeof(end), "%.64s", names.peer_host);
  note_end(port, *end != '\0', end);
}

/// `One`: of a process, or of one of its ports.
template <class One>
uint64_t missing(const One& facts, uint64_t now_ns) {
  const bool still = facts.missing_since_ns != 0 && now_ns > facts.missing_since_ns;
  return facts.missing_ns + (still ? now_ns - facts.missing_since_ns : 0);
}

Facts add_up(const std::vector<Facts>& all, uint64_t now_ns) {
  Facts sum{};
  for (const Facts& one : all) {
    sum.lost += one.lost;
    sum.back += one.back;
    sum.never += one.never;
    sum.peers_lost += one.peers_lost;
    sum.slow += one.slow;
    sum.lossy += one.lossy;
    sum.bytes_resent += one.bytes_resent;
    sum.events_lost += one.events_lost;
    sum.missing_ns = std::max(sum.missing_ns, missing(one, now_ns));
    if (one.rails_up < one.rails_expected && (sum.rails_expected == 0 || one.rails_up < sum.rails_up)) {
      sum.rails_up = one.rails_up;
      sum.rails_expected = one.rails_expected;
    }
    for (uint32_t i = 0; i < one.n_ports; ++i) {
      const PortFacts& from = one.ports[i];
      PortFacts* to = find_port(sum, from.device, from.port);
      if (to == nullptr) continue;
      to->lost += from.lost;
      to->never += from.never;
      to->slow += from.slow;
      to->lossy += from.lossy;
      to->outages = std::max(to->outages, from.outages);
      to->missing_ns = std::max(to->missing_ns, missing(from, now_ns));
      note_cause(*to, from.cause, from.weak != 0);
      note_end(*to, from.ends, from.end);
    }
  }
  return sum;
}

// A text that grows, and is cut where there is no room.
class Text {
 public:
  Text(char* out, size_t size) : out_(out), size_(size) { *out = '\0'; }
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    if (used_ + 1 >= size_) return;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(out_ + used_, size_ - used_, format, arguments);
    va_end(arguments);
    if (n > 0) used_ = std::min(size_ - 1, used_ + static_cast<size_t>(n));
  }

 private:
  char* out_;
  size_t size_;
  size_t used_ = 0;
};

const char* plural(uint64_t n) {
  return n == 1 ? "" : "s";
}

// " over 2 ports (mlx5_1 port 1: RETRY_EXC_ERR, to n5 mlx5_1 port 1; ...)" of those for which `which` is not
// 0.
void add_ports(Text& text, const Facts& sum, uint32_t PortFacts::*which) {
  constexpr unsigned kNamed = 3;
  unsigned named = 0;
  unsigned more = 0;
  const auto ports = std::count_if(sum.ports, sum.ports + sum.n_ports,
                                   [which](const PortFacts& port) { return port.*which != 0; });
  if (ports == 0) return;
  text.add(" over %td port%s", ports, plural(static_cast<uint64_t>(ports)));
  for (uint32_t i = 0; i < sum.n_ports; ++i) {
    const PortFacts& port = sum.ports[i];
    if (port.*which == 0) continue;
    if (named == kNamed) {
      ++more;
      continue;
    }
    text.add("%s%s port %u%s%s", named++ == 0 ? " (" : "; ", port.device, port.port,
             port.cause[0] != '\0' ? ": " : "", port.cause);
    if (port.ends != 0) text.add(", to %s", port.ends == 1 ? port.end : "several ports");
    if (which == &PortFacts::lost && port.outages > 1)
      text.add(", %u times, for %.3f s together", port.outages, static_cast<double>(port.missing_ns) * 1e-9);
  }
  if (more != 0) text.add("; and %u more port%s", more, plural(more));
  if (named != 0) text.add(")");
}

}  // namespace

bool read_facts(const void* bytes, size_t size, Facts* facts) {
  if (size != sizeof(*facts)) return false;
  memcpy(facts, bytes, sizeof(*facts));
  if (facts->magic != Facts::kMagic || facts->n_ports > Facts::kPorts) return false;
  for (PortFacts& port : facts->ports) {
    make_printable(port.device, sizeof(port.device));
    make_printable(port.cause, sizeof(port.cause));
    make_printable(port.end, sizeof(port.end));
  }
  return true;
}

void format_summary(const std::vector<Facts>& all, const char* host, uint64_t now_ns, char* line, size_t size,
                    const char* build) {
  Text text(line, size);
  const size_t telling = static_cast<size_t>(std::count_if(all.begin(), all.end(), tells));
  if (telling == 0) return;
  const Facts sum = add_up(all, now_ns);
  text.add("bfo: summary of host %s:", host);
  const char* between = " ";
  if (sum.lost != 0) {
    text.add(" %u connection%s lost", sum.lost, plural(sum.lost));
    add_ports(text, sum, &PortFacts::lost);
    between = ", ";
  }
  if (sum.never != 0) {
    text.add("%s%u connection%s never came up", between, sum.never, plural(sum.never));
    add_ports(text, sum, &PortFacts::never);
    between = ", ";
  }
  if (sum.back != 0) {
    text.add("%s%u came up later", between, sum.back);
    between = ", ";
  }
  if (sum.peers_lost != 0) {
    text.add("%s%u peer%s given up", between, sum.peers_lost, plural(sum.peers_lost));
    between = ", ";
  }
  if (sum.slow != 0) {
    text.add("%s%u time%s a rail was degraded", between, sum.slow, plural(sum.slow));
    add_ports(text, sum, &PortFacts::slow);
    between = ", ";
  }
  if (sum.lossy != 0) {
    text.add("%s%u time%s packets were lost", between, sum.lossy, plural(sum.lossy));
    add_ports(text, sum, &PortFacts::lossy);
  }
  if (sum.rails_up < sum.rails_expected)
    text.add("; %u of %u rails %s up at the end", sum.rails_up, sum.rails_expected,
             sum.rails_up == 1 ? "was" : "were");
  // A rail that was only slow, or lost packets, was not away.
  if (sum.lost != 0 || sum.never != 0 || sum.back != 0 || sum.missing_ns != 0 || sum.bytes_resent != 0)
    text.add("; a rail was missing for %.3f s, %llu bytes were sent again",
             static_cast<double>(sum.missing_ns) * 1e-9, static_cast<unsigned long long>(sum.bytes_resent));
  text.add(" (seen by %zu process%s%s%s)", telling, telling == 1 ? "" : "es",
           *build != '\0' ? "; version " : "", build);
  if (sum.events_lost != 0)
    text.add("; %llu line%s of the event file %s lost", static_cast<unsigned long long>(sum.events_lost),
             plural(sum.events_lost), sum.events_lost == 1 ? "is" : "are");
}

void Summary::open(HostPage& page, int rank) {
  page_ = &page;
  facts_.magic = Facts::kMagic;
  facts_.rank = static_cast<uint32_t>(rank);
}

uint64_t Summary::missing_ns(uint64_t now_ns) const {
  return missing(facts_, now_ns);
}

PortFacts* Summary::port(const EventNames& names) {
  return find_port(facts_, names.device, names.port);
}

Away Summary::down(const EventNames& names, const char* cause, Away was, bool lost, uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(events);
  const Away is = lost ? Away::kLost : Away::kNever;
  PortFacts* const at = port(names);
  if (was == is || was == Away::kLost) return was;  // tried again in vain
  if (was == Away::kNever) {
    --facts_.never;
    if (at != nullptr) --at->never;
  } else {
    if (away_++ == 0) facts_.missing_since_ns = now_ns;
    if (at != nullptr && away_of_[at - facts_.ports]++ == 0) {
      ++at->outages;
      at->missing_since_ns = now_ns;
    }
  }
  ++(is == Away::kLost ? facts_.lost : facts_.never);
  if (at != nullptr) {
    ++(is == Away::kLost ? at->lost : at->never);
    note_cause(*at, cause, true);
    note_end(*at, names);
  }
  leave();
  return is;
}

void Summary::closed(const EventNames& names, const char* cause, bool of_peer) {
  const std::lock_guard<std::mutex> lock(events);
  PortFacts* const at = port(names);
  if (at != nullptr) note_cause(*at, cause, of_peer);
  leave();
}

void Summary::back(PortFacts* at, Away was, uint64_t now_ns) {
  if (was == Away::kNo) return;
  if (at != nullptr && --away_of_[at - facts_.ports] == 0) {
    at->missing_ns = missing(*at, now_ns);
    at->missing_since_ns = 0;
  }
  if (--away_ != 0) return;
  facts_.missing_ns = missing(facts_, now_ns);
  facts_.missing_since_ns = 0;
}

Away Summary::up(const EventNames& names, Away was, uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(events);
  if (was == Away::kNo) return was;
  PortFacts* const at = port(names);
  back(at, was, now_ns);
  ++facts_.back;
  if (was == Away::kNever) {
    --facts_.never;
    if (at != nullptr) --at->never;
  }
  leave();
  return Away::kNo;
}

void Summary::degraded(const EventNames& names) {
  const std::lock_guard<std::mutex> lock(events);
  ++facts_.slow;
  PortFacts* const at = port(names);
  if (at != nullptr) {
    ++at->slow;
    note_end(*at, names);
  }
  leave();
}

void Summary::lossy(const PortLoss& loss) {
  const std::lock_guard<std::mutex> lock(events);
  ++facts_.lossy;
  PortFacts* const at = find_port(facts_, loss.device, loss.port);
  if (at != nullptr) ++at->lossy;
  leave();
}

Away Summary::left(const EventNames& names, Away was, uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(events);
  if (was == Away::kNo) return was;
  back(port(names), was, now_ns);
  leave();
  return Away::kNo;
}

void Summary::leave() {
  if (page_ != nullptr && tells(facts_)) page_->leave(&facts_);
}

void Summary::resent(uint64_t bytes, uint64_t peers_lost) {
  const std::lock_guard<std::mutex> lock(events);
  facts_.bytes_resent = bytes;
  facts_.peers_lost = static_cast<uint32_t>(peers_lost);
  leave();
}

void Summary::events_lost(uint64_t lines) {
  const std::lock_guard<std::mutex> lock(events);
  facts_.events_lost = lines;
  leave();
}

void Summary::rails(uint32_t up, uint32_t expected) {
  const std::lock_guard<std::mutex> lock(events);
  facts_.rails_up = up;
  facts_.rails_expected = expected;
}

void Summary::collect(uint64_t bytes_resent, uint64_t peers_lost, uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(events);
  if (page_ == nullptr) return;
  collected_ns_ = now_ns;
  facts_.bytes_resent = bytes_resent;
  facts_.peers_lost = static_cast<uint32_t>(peers_lost);
  if (facts_.missing_since_ns != 0) {
    facts_.missing_ns = missing(facts_, now_ns);
    facts_.missing_since_ns = now_ns;
  }
  leave();
  page_->leave_last();
}

void Summary::finish(const char* host, const char* build) {
  const std::lock_guard<std::mutex> lock(events);
  HostPage* const page = std::exchange(page_, nullptr);
  if (page == nullptr) return;
  page->leave_last();
  if (!page->all_left() || !claims_.take_once(claim_key("summary"))) return;
  std::vector<Facts> all;
  std::vector<char> bytes(sizeof(Facts));
  for (unsigned place = 0; place < page->places(); ++place) {
    Facts facts;
    if (page->read(place, bytes.data()) && read_facts(bytes.data(), bytes.size(), &facts))
      all.push_back(facts);
  }
  char line[1024];
  format_summary(all, host, collected_ns_, line, sizeof(line), build);
  if (line[0] != '\0') print_(line);
}

}  // namespace bfo::glue
