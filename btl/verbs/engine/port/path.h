// SPDX-License-Identifier: BSD-3-Clause
//
// path.h: the service level of each path of an InfiniBand port, as the subnet administrator knows it. Some
// routing algorithms are free of deadlocks only when every path uses its own service level. The
// administrator is asked by a datagram from a queue pair of its own (path_mad.h); nobody waits for the answer
// but the connection that needs it:
//
//     service_level() ----> waiting ----> asked ----> known
//                              ^            |
//                              +- no room   +--> failed: the configured level is used for a while
//
// Control threads make and destroy the queue pair. The data path never looks here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/mr.h"
#include "btl/verbs/engine/datagram/path_mad.h"
#include "btl/verbs/engine/device/qp.h"
#include "btl/verbs/engine/base/table.h"
#include "btl/verbs/engine/port/own_port.h"

namespace bfo::engine {

class PathRecords;

/// Why the administrator's word is not to be had.
struct PathTrouble {
  enum class Why : uint8_t {
    kNoManager,  ///< the port does not know one
    kQueuePair,  ///< what asks cannot be made; code: errno
    kNoAnswer,   ///< to several requests in a row
    kRefused,    ///< code: status of the MAD
  };
  Why why = Why::kNoAnswer;
  int code = 0;
  uint16_t manager = 0;      ///< LID
  uint16_t destination = 0;  ///< LID; kRefused only
};

/// "the subnet administrator (lid 1) does not answer"
void path_trouble_text(const PathTrouble& trouble, char* out, size_t size);
/// What can be done about it: a sentence.
void path_trouble_remedy(const PathTrouble& trouble, char* out, size_t size);

/// The path to one LID, from the LID of the own port that has the same number.
struct Path {
  enum class State : uint8_t { kUnknown, kWaiting, kAsked, kKnown, kFailed };
  uint16_t lid = 0;
  uint8_t number = 0;  ///< of the path among those to the same port (qp.h)
  uint8_t service_level = 0;
  State state = State::kUnknown;
  uint32_t tries = 0;
  uint64_t transaction = 0;
  uint64_t due_ns = 0;   ///< kAsked: asked again then; kFailed: not before
  Path* next = nullptr;  ///< kWaiting
  Path* older = nullptr;
};

/// What asks the administrator. Plain handles: a command that makes or destroys them owns them.
struct AdministratorQp {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_ah* ah = nullptr;
};

/// The paths of a port. Progress function only.
class PathRecords {
 public:
  static constexpr uint32_t kAtOnce = 16;    ///< requests under way
  static constexpr uint32_t kReceives = 32;  ///< answers that are late take room, too
  static constexpr uint32_t kBufferBytes = 40 + kMadBytes;
  static constexpr uint32_t kTries = 4;
  static constexpr uint64_t kFirstTimeoutNs = 200'000'000;  ///< for an answer; doubled each time
  static constexpr uint64_t kMakingNs = 3'000'000'000;      ///< for the queue pair
  static constexpr uint64_t kQuietNs = 60'000'000'000;      ///< before one that is silent is asked again

  /// False with errno when there is no memory for datagrams. A port that is not `wanted` asks nothing.
  bool open(OwnPort& port, bool wanted);
  /// `*level` is the service level towards `to` over path number `path`: the administrator's or, where it has
  /// none to give, the configured one. False while it is being asked: the port is serviced when it has
  /// answered.
  bool service_level(const PortAddress& to, uint8_t path, uint64_t now, uint8_t* level);
  /// The same without asking.
  uint8_t known_level(const PortAddress& to, uint8_t path) const;
  /// Takes answers, repeats requests and gives up. True when some path has an answer since the last time.
  bool service(uint64_t now);
  /// Some request waits or is under way, and the port can carry it.
  bool asking() const;
  /// The subnet has changed: everything is asked again when it is needed, of the administrator there is now.
  void forget();
  bool wanted() const { return wanted_; }
  /// After the port's lanes have ended. False when the device refused something.
  bool close();

 private:
  enum class Stage : uint8_t { kNone, kMaking, kReady, kEnding };
  struct QpWork;

  static void run_work(Command& command);
  static void end_work(Command& command);
  bool applies(const PortAddress& to) const;
  uint16_t source_of(const Path& path) const;
  /// A LID that was given to another port is the end of another path, which begins elsewhere.
  static uint64_t key_of(uint16_t lid, uint8_t number);
  Path* path_to(uint16_t lid, uint8_t number);
  void wait(Path& path);
  Path* next_waiting();
  void begin(uint64_t now);
  void end();
  void submit(QpWork& work);
  void take_answers(uint64_t now);
  void take_answer(const ibv_wc& wc, uint64_t now);
  void ask_again(uint64_t now);
  void ask_more(uint64_t now);
  bool post_receive(uint32_t index);
  void send(Path& path, uint64_t now);
  void give_up(const PathTrouble& trouble, uint64_t now);
  void report(const PathTrouble& trouble);

  OwnPort* port_ = nullptr;
  bool wanted_ = false;
  bool answered_ = false;
  bool reported_ = false;
  bool outdated_ = false;  ///< what is being made has another port's address
  Stage stage_ = Stage::kNone;
  uint16_t manager_ = 0;  ///< LID, when the queue pair was made
  uint32_t free_sends_ = 0;
  Region memory_;  ///< receives, then sends
  AdministratorQp qp_;
  Table<Path> paths_;  ///< by key_of()
  Path* newest_ = nullptr;
  std::array<Path*, kAtOnce> asked_{};
  uint32_t asked_count_ = 0;
  Path* first_waiting_ = nullptr;
  Path* last_waiting_ = nullptr;
  uint64_t quiet_until_ns_ = 0;
  uint64_t made_by_ns_ = 0;  ///< kMaking: or nobody waits for it
};

}  // namespace bfo::engine
