// SPDX-License-Identifier: BSD-3-Clause
//
// loss_counters.cc: see loss_counters.h. RNR NAKs and duplicated requests are not among the signs: a receiver
// without a buffer loses nothing, and a duplicate follows a loss that was counted where it was seen.
#include "btl/verbs/engine/device/loss_counters.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace bfo::engine {
namespace {

enum class Meaning : uint8_t { kSignOut, kSignIn, kPacketsOut, kPacketsIn };

struct Name {
  Meaning meaning;
  const char* file;
};

/// Of one meaning for packets the first that is there counts; signs are added up.
constexpr std::array kNames = {
    Name{Meaning::kPacketsOut, "counters/port_xmit_packets"},
    Name{Meaning::kPacketsOut, "hw_counters/sent_pkts"},  // rxe
    Name{Meaning::kPacketsOut, "hw_counters/tx_pkts"},    // bnxt_re
    Name{Meaning::kPacketsIn, "counters/port_rcv_packets"},
    Name{Meaning::kPacketsIn, "hw_counters/rcvd_pkts"},
    Name{Meaning::kPacketsIn, "hw_counters/rx_pkts"},
    // mlx5, and bnxt_re of late
    Name{Meaning::kSignOut, "hw_counters/local_ack_timeout_err"},
    Name{Meaning::kSignOut, "hw_counters/packet_seq_err"},
    Name{Meaning::kSignOut, "hw_counters/roce_adp_retrans"},
    Name{Meaning::kSignIn, "hw_counters/out_of_sequence"},
    Name{Meaning::kSignIn, "hw_counters/implied_nak_seq_err"},
    // rxe. Its completer_retry_err counts retransmissions of which most follow no loss: a timer that runs on
    // when all was acknowledged, and ends in the middle of the next message.
    Name{Meaning::kSignOut, "hw_counters/rcvd_seq_err"},
    Name{Meaning::kSignIn, "hw_counters/out_of_seq_request"},
    // bnxt_re
    Name{Meaning::kSignOut, "hw_counters/to_retransmits"},
    Name{Meaning::kSignOut, "hw_counters/seq_err_naks_rcvd"},
    Name{Meaning::kSignIn, "hw_counters/oos_drop_count"},
    Name{Meaning::kSignIn, "hw_counters/missing_resp"},
    // mlx4
    Name{Meaning::kSignOut, "hw_counters/sq_num_to"},
    Name{Meaning::kSignOut, "hw_counters/sq_num_oos"},
    Name{Meaning::kSignIn, "hw_counters/rq_num_oos"},
};
static_assert(kNames.size() <= 32, "a bit for each in LossCounters");

bool read_number(ReadFile read, const char* directory, uint8_t number, const char* name, uint64_t* value) {
  char file[64];
  char text[32];
  snprintf(file, sizeof file, "ports/%u/%s", unsigned{number}, name);
  const int n = read(directory, file, text, sizeof text - 1);
  if (n <= 0) return false;
  text[n] = 0;
  char* end = text;
  *value = strtoull(text, &end, 10);
  return end != text;
}

struct Found {
  LossCount count;
  bool signs = false;
  bool packets = false;

  void add_signs(uint64_t value) {
    count.signs += value;
    signs = true;
  }
  void add_packets(uint64_t value) {
    if (!packets) count.packets = value;
    packets = true;
  }
  LossCount whole() const {
    LossCount found = count;
    found.known = signs && packets;
    return found;
  }
};

}  // namespace

LossCounts LossCounters::read(ReadFile read, const char* directory, uint8_t number) {
  Found out;
  Found in;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const uint32_t bit = 1u << i;
    uint64_t value = 0;
    if (looked_ && (there_ & bit) == 0) continue;
    if (!read_number(read, directory, number, kNames[i].file, &value)) continue;
    there_ |= bit;
    switch (kNames[i].meaning) {
      case Meaning::kSignOut:
        out.add_signs(value);
        break;
      case Meaning::kSignIn:
        in.add_signs(value);
        break;
      case Meaning::kPacketsOut:
        out.add_packets(value);
        break;
      case Meaning::kPacketsIn:
        in.add_packets(value);
        break;
    }
  }
  looked_ = true;
  return LossCounts{out.whole(), in.whole()};
}

}  // namespace bfo::engine
