// SPDX-License-Identifier: BSD-3-Clause
//
// The word tables and the search in them, with a suggestion for a misspelt word.
#include "contrib/softhca/fault/words.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "contrib/softhca/fault/link_speed.h"
#include "contrib/softhca/fault/rule.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t v(Key key) {
  return static_cast<uint32_t>(key);
}
constexpr uint32_t v(Verb verb) {
  return static_cast<uint32_t>(verb);
}
constexpr uint32_t bit(Opcode opcode) {
  return 1u << static_cast<unsigned>(opcode);
}

constexpr Word kKeys[] = {
    {"node", v(Key::kNode)},
    {"device", v(Key::kDevice)},
    {"rail", v(Key::kDevice)},
    {"port", v(Key::kPort)},
    {"qpn", v(Key::kQpn)},
    {"peer", v(Key::kPeer)},
    {"peer-qpn", v(Key::kPeerQpn)},
    {"path", v(Key::kPath)},
    {"imm", v(Key::kImm)},
    {"opcode", v(Key::kOpcode)},
    {"service", v(Key::kService)},
    {"direction", v(Key::kDirection)},
    {"size", v(Key::kSize)},
    {"message", v(Key::kMessage)},
    {"call", v(Key::kMessage)},
    {"every", v(Key::kEvery)},
    {"byte", v(Key::kByte)},
    {"offset", v(Key::kOffset)},
    {"attempt", v(Key::kAttempt)},
    {"probability", v(Key::kProbability)},
    {"seed", v(Key::kSeed)},
    {"count", v(Key::kCount)},
    {"at", v(Key::kAt)},
    {"after", v(Key::kAfter)},
    {"from", v(Key::kFrom)},
    {"until", v(Key::kUntil)},
    {"verb", v(Key::kVerb)},
    {"state", v(Key::kState)},
    {"reach", v(Key::kReach)},
};

constexpr Word kVerbs[] = {
    {"drop", v(Verb::kDrop)},
    {"one-way", v(Verb::kOneWay)},
    {"drop-ack", v(Verb::kDropAck)},
    {"delay", v(Verb::kDelay)},
    {"duplicate", v(Verb::kDuplicate)},
    {"reorder", v(Verb::kReorder)},
    {"corrupt", v(Verb::kCorrupt)},
    {"complete", v(Verb::kComplete)},
    {"late-write", v(Verb::kLateWrite)},
    {"lose", v(Verb::kLose)},
    {"release", v(Verb::kRelease)},
    {"port-down", v(Verb::kPortDown)},
    {"port-up", v(Verb::kPortUp)},
    {"port-flap", v(Verb::kPortFlap)},
    {"rate", v(Verb::kRate)},
    {"latency", v(Verb::kLatency)},
    {"speed", v(Verb::kSpeed)},
    {"device-fatal", v(Verb::kDeviceFatal)},
    {"lid", v(Verb::kLid)},
    {"gid", v(Verb::kGid)},
    {"gids", v(Verb::kGids)},
    {"pkey", v(Verb::kPkey)},
    {"sm-change", v(Verb::kSmChange)},
    {"client-reregister", v(Verb::kClientReregister)},
    {"cq-overrun", v(Verb::kCqOverrun)},
    {"event", v(Verb::kEvent)},
    {"kill", v(Verb::kKill)},
    {"stop", v(Verb::kStop)},
    {"block", v(Verb::kBlock)},
    {"fail", v(Verb::kFail)},
    {"max-qp", v(Verb::kMaxQp)},
    {"max-cq", v(Verb::kMaxCq)},
    {"max-mr", v(Verb::kMaxMr)},
    {"max-srq", v(Verb::kMaxSrq)},
    {"max-ah", v(Verb::kMaxAh)},
    {"max-pd", v(Verb::kMaxPd)},
    {"memlock", v(Verb::kMemlock)},
    {"segment", v(Verb::kSegment)},
    {"isolate", v(Verb::kIsolate)},
};

constexpr Word kOpcodes[] = {
    {"SEND", bit(Opcode::kSend) | bit(Opcode::kSendImm) | bit(Opcode::kSendInv)},
    {"WRITE", bit(Opcode::kWrite) | bit(Opcode::kWriteImm)},
    {"READ", bit(Opcode::kRead)},
    {"ATOMIC", bit(Opcode::kCmpSwap) | bit(Opcode::kFetchAdd)},
    {"ACK", bit(Opcode::kAck)},
    {"SEND_ONLY", bit(Opcode::kSend)},
    {"SEND_IMM", bit(Opcode::kSendImm)},
    {"SEND_INV", bit(Opcode::kSendInv)},
    {"WRITE_ONLY", bit(Opcode::kWrite)},
    {"WRITE_IMM", bit(Opcode::kWriteImm)},
    {"CMP_SWAP", bit(Opcode::kCmpSwap)},
    {"FETCH_ADD", bit(Opcode::kFetchAdd)},
    {"request", kRequestOpcodes},
    {"any", kRequestOpcodes | kAckOpcode},
};

constexpr Word kServices[] = {{"RC", 1}, {"UC", 2}, {"UD", 4}, {"any", 7}};
constexpr Word kDirections[] = {{"tx", 1}, {"rx", 2}, {"any", 3}};

constexpr Word kStatuses[] = {
    {"SUCCESS", IBV_WC_SUCCESS},
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
    {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"LOC_EEC_OP_ERR", IBV_WC_LOC_EEC_OP_ERR},
    {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
    {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
    {"MW_BIND_ERR", IBV_WC_MW_BIND_ERR},
    {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
    {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
    {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
    {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
    {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
    {"LOC_RDD_VIOL_ERR", IBV_WC_LOC_RDD_VIOL_ERR},
    {"REM_INV_RD_REQ_ERR", IBV_WC_REM_INV_RD_REQ_ERR},
    {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
    {"INV_EECN_ERR", IBV_WC_INV_EECN_ERR},
    {"INV_EEC_STATE_ERR", IBV_WC_INV_EEC_STATE_ERR},
    {"FATAL_ERR", IBV_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
    {"GENERAL_ERR", IBV_WC_GENERAL_ERR},
    {"TM_ERR", IBV_WC_TM_ERR},
    {"TM_RNDV_INCOMPLETE", IBV_WC_TM_RNDV_INCOMPLETE},
};

constexpr Word kEvents[] = {
    {"CQ_ERR", IBV_EVENT_CQ_ERR},
    {"QP_FATAL", IBV_EVENT_QP_FATAL},
    {"QP_REQ_ERR", IBV_EVENT_QP_REQ_ERR},
    {"QP_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR},
    {"COMM_EST", IBV_EVENT_COMM_EST},
    {"SQ_DRAINED", IBV_EVENT_SQ_DRAINED},
    {"PATH_MIG", IBV_EVENT_PATH_MIG},
    {"PATH_MIG_ERR", IBV_EVENT_PATH_MIG_ERR},
    {"DEVICE_FATAL", IBV_EVENT_DEVICE_FATAL},
    {"PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE},
    {"PORT_ERR", IBV_EVENT_PORT_ERR},
    {"LID_CHANGE", IBV_EVENT_LID_CHANGE},
    {"PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE},
    {"SM_CHANGE", IBV_EVENT_SM_CHANGE},
    {"SRQ_ERR", IBV_EVENT_SRQ_ERR},
    {"SRQ_LIMIT_REACHED", IBV_EVENT_SRQ_LIMIT_REACHED},
    {"QP_LAST_WQE_REACHED", IBV_EVENT_QP_LAST_WQE_REACHED},
    {"CLIENT_REREGISTER", IBV_EVENT_CLIENT_REREGISTER},
    {"GID_CHANGE", IBV_EVENT_GID_CHANGE},
    {"DEVICE_SPEED_CHANGE", kDeviceSpeedChange},
};

bool same_letters(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// Edit distance, letters of either case equal. Words here are short.
unsigned distance(std::string_view a, std::string_view b) {
  std::vector<unsigned> row(b.size() + 1);
  for (unsigned j = 0; j <= b.size(); ++j) row[j] = j;
  for (unsigned i = 1; i <= a.size(); ++i) {
    unsigned diagonal = row[0];
    row[0] = i;
    for (unsigned j = 1; j <= b.size(); ++j) {
      const bool same = std::tolower(static_cast<unsigned char>(a[i - 1])) ==
                        std::tolower(static_cast<unsigned char>(b[j - 1]));
      const unsigned best = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Word> key_words() {
  return kKeys;
}
std::span<const Word> verb_words() {
  return kVerbs;
}
std::span<const Word> opcode_words() {
  return kOpcodes;
}
std::span<const Word> service_words() {
  return kServices;
}
std::span<const Word> direction_words() {
  return kDirections;
}
std::span<const Word> status_words() {
  return kStatuses;
}
std::span<const Word> event_words() {
  return kEvents;
}

const Word* find_word(std::span<const Word> words, std::string_view text) {
  for (const Word& word : words) {
    if (same_letters(word.text, text)) return &word;
  }
  return nullptr;
}

std::string_view word_for(std::span<const Word> words, uint32_t value) {
  for (const Word& word : words) {
    if (word.value == value) return word.text;
  }
  return {};
}

std::string one_of(std::span<const Word> words, std::string_view text) {
  std::string list;
  const Word* nearest = nullptr;
  unsigned nearest_distance = 3;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i != 0) list += i + 1 == words.size() ? " or " : ", ";
    list += words[i].text;
    if (text.size() > 32) continue;
    const unsigned d = distance(words[i].text, text);
    if (d >= nearest_distance) continue;
    nearest_distance = d;
    nearest = &words[i];
  }
  if (nearest != nullptr) list += " (did you mean " + std::string(nearest->text) + "?)";
  return list;
}

}  // namespace bfo::softhca
