// SPDX-License-Identifier: BSD-3-Clause
//
// The words of the fault language: keys, actions and the names of verbs constants, each in one table that the
// parser, the describer and the error messages share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bfo::softhca {

/// One word of the language and its value.
struct Word {
  std::string_view text;
  uint32_t value;
};

/// Left of a "=" between "when" and "do".
enum class Key : uint32_t {
  kNode,
  kDevice,
  kPort,
  kQpn,
  kPeer,
  kPeerQpn,
  kPath,
  kImm,
  kOpcode,
  kService,
  kDirection,
  kSize,
  kMessage,
  kEvery,
  kByte,
  kOffset,
  kAttempt,
  kProbability,
  kSeed,
  kCount,
  kAt,
  kAfter,
  kFrom,
  kUntil,
  kVerb,
  kState,
  kReach,
};

/// The word after "do". Several words may stand for one ActionKind.
enum class Verb : uint32_t {
  kDrop,
  kOneWay,
  kDropAck,
  kDelay,
  kDuplicate,
  kReorder,
  kCorrupt,
  kComplete,
  kLateWrite,
  kLose,
  kRelease,
  kPortDown,
  kPortUp,
  kPortFlap,
  kRate,
  kLatency,
  kSpeed,
  kDeviceFatal,
  kLid,
  kGid,
  kGids,
  kPkey,
  kSmChange,
  kClientReregister,
  kCqOverrun,
  kEvent,
  kKill,
  kStop,
  kBlock,
  kFail,
  kMaxQp,
  kMaxCq,
  kMaxMr,
  kMaxSrq,
  kMaxAh,
  kMaxPd,
  kMemlock,
  kSegment,
  kIsolate,
};

std::span<const Word> key_words();
std::span<const Word> verb_words();
std::span<const Word> opcode_words();        ///< values are bit masks of Opcode
std::span<const Word> service_words();       ///< values are bit masks of Service
std::span<const Word> direction_words();     ///< values are bit masks of Direction
std::span<const Word> status_words();        ///< ibv_wc_status
std::span<const Word> event_words();         ///< ibv_event_type
std::span<const Word> control_verb_words();  ///< values are bit masks of ControlVerb
std::span<const Word> qp_state_words();      ///< values are bit masks of ibv_qp_state
std::span<const Word> errno_words();         ///< errno

/// Case-insensitive; nullptr when the word is not in the table.
const Word* find_word(std::span<const Word> words, std::string_view text);

/// First word standing for the value; empty when there is none.
std::string_view word_for(std::span<const Word> words, uint32_t value);

/// "a, b or c", with "(did you mean b?)" when `text` is close to one of them.
std::string one_of(std::span<const Word> words, std::string_view text);

}  // namespace bfo::softhca
