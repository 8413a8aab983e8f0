// SPDX-License-Identifier: BSD-3-Clause
//
// hostile.cc: `hostile RECORDS SEED`: a process on the fabric of somebody else's job that has listened to it
// (eavesdrop.c). Sends datagrams to all of the job's datagram queue pairs until it gets SIGTERM: every type
// with every field at its extremes, too short, too long, with wrong sums, replayed, with another address in
// them. It knows everything but the keys. Prints what it has sent.
#include <infiniband/verbs.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "test/integration/hostile/record.h"

namespace {

using bfo::engine::Packet;

volatile sig_atomic_t stopped = 0;
constexpr uint32_t kMostBytes = 2048;
constexpr int kDepth = 64;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(3);
}

/// One device of its own, with a datagram queue pair.
struct Adapter {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<char> memory = std::vector<char>(size_t{kDepth} * kMostBytes);
  int under_way = 0;
  int next = 0;
  std::map<uint16_t, ibv_ah*> handles;

  void open(ibv_device* device) {
    context = ibv_open_device(device);
    if (context == nullptr) die("ibv_open_device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, kDepth, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_UD;
    init.sq_sig_all = 1;
    init.cap = {kDepth, 1, 1, 1, 0};
    qp = ibv_create_qp(pd, &init);
    if (qp == nullptr || mr == nullptr) die("queue pair");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = 1;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0)
      die("INIT");
    attr.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) die("RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) != 0) die("RTS");
  }

  ibv_ah* handle(uint16_t lid) {
    ibv_ah*& ah = handles[lid];
    if (ah != nullptr) return ah;
    ibv_ah_attr attr{};
    attr.dlid = lid;
    attr.port_num = 1;
    ah = ibv_create_ah(pd, &attr);
    if (ah == nullptr) die("ibv_create_ah");
    return ah;
  }

  void send(const Record& to, const void* data, uint32_t length) {
    while (under_way == kDepth && stopped == 0) reap();
    if (stopped != 0) return;
    char* buffer = memory.data() + size_t{kMostBytes} * static_cast<size_t>(next);
    next = (next + 1) % kDepth;
    std::memcpy(buffer, data, length);
    ibv_sge sge = {reinterpret_cast<uint64_t>(buffer), length, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = handle(to.lid);
    wr.wr.ud.remote_qpn = to.qpn;
    wr.wr.ud.remote_qkey = to.qkey;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp, &wr, &bad) != 0) die("ibv_post_send");
    ++under_way;
    reap();
  }

  void reap() {
    ibv_wc wc[16];
    const int n = ibv_poll_cq(cq, 16, wc);
    if (n < 0) die("ibv_poll_cq");
    under_way -= n;
  }
};

/// What was heard so far.
class Ear {
 public:
  explicit Ear(const char* path) : path_(path) {}

  void listen() {
    if (file_ == nullptr) file_ = std::fopen(path_, "rb");
    if (file_ == nullptr) return;
    Record record;
    // What was written of the last record so far is read again with the rest of it.
    for (; std::fread(&record, sizeof record, 1, file_) == 1; at_ += sizeof record) {
      if (record.length == 0) {
        queues.push_back(record);
      } else {
        packets.push_back(record);
        if (packets.size() > 4096) packets.erase(packets.begin());
      }
    }
    if (std::fseek(file_, at_, SEEK_SET) != 0) die("records");
  }

  std::vector<Record> queues;
  std::vector<Record> packets;

 private:
  const char* path_;
  std::FILE* file_ = nullptr;
  long at_ = 0;
};

enum Kind { kReplay, kElsewhere, kWrongSum, kField, kTruncated, kOversized, kNoise, kKinds };
constexpr const char* kNames[kKinds] = {"replayed",  "from elsewhere", "wrong sum", "field at an extreme",
                                        "truncated", "oversized",      "noise"};

class Attack {
 public:
  Attack(Ear& ear, unsigned seed) : ear_(ear), rng_(seed) {}

  /// One datagram: its bytes. The kind it is of.
  Kind make(std::vector<char>* bytes) {
    const Record& heard = ear_.packets[rng_() % ear_.packets.size()];
    bytes->assign(heard.bytes, heard.bytes + heard.length);
    const auto kind = static_cast<Kind>(rng_() % kKinds);
    Packet packet;
    std::memcpy(&packet, heard.bytes, sizeof packet);
    switch (kind) {
      case kReplay:
        return kind;
      case kElsewhere:
        packet.lid = static_cast<uint16_t>(rng_());
        packet.gid[rng_() % 16] ^= 0x55;
        packet.cm_qpn = static_cast<uint32_t>(rng_());
        packet.sequence += 1 + rng_() % 64;
        return keep(kind, packet, bytes);
      case kWrongSum:
        packet.type = static_cast<uint8_t>(1 + rng_() % 10);
        packet.sequence += 1 + rng_() % 64;
        packet.sum = rng_() % 2 != 0 ? 0 : ~packet.sum;
        return put(kind, packet, bytes);
      case kField:
        packet.type = static_cast<uint8_t>(1 + rng_() % 10);
        packet.sequence = rng_() % 2 != 0 ? UINT64_MAX : packet.sequence + 1;
        extreme(&packet);
        return keep(kind, packet, bytes);
      case kTruncated:
        bytes->resize(rng_() % bytes->size());
        if (bytes->empty()) bytes->push_back(0);
        return kind;
      case kOversized:
        bytes->resize(bytes->size() + 1 + rng_() % (kMostBytes - bytes->size()), '\x5a');
        return kind;
      default:
        bytes->resize(1 + rng_() % 192);
        for (char& byte : *bytes) byte = static_cast<char>(rng_());
        return kind;
    }
  }

  size_t pick(size_t count) { return rng_() % count; }

 private:
  Kind put(Kind kind, const Packet& packet, std::vector<char>* bytes) {
    std::memcpy(bytes->data(), &packet, sizeof packet);
    return kind;
  }

  /// Summed with a key, which is a wrong one.
  Kind keep(Kind kind, Packet& packet, std::vector<char>* bytes) {
    const uint8_t version = packet.version;
    const uint16_t size = packet.size;
    const uint32_t magic = packet.magic;
    bfo::engine::packet_seal(&packet, bfo::SipKey{packet.source_nonce, rng_() % 2});
    packet.version = version;
    packet.size = size;
    packet.magic = magic;
    return put(kind, packet, bytes);
  }

  /// Any bytes of it: nothing, everything, or the sign.
  void extreme(Packet* packet) {
    const size_t width = size_t{1} << rng_() % 4;
    const size_t at = rng_() % ((sizeof *packet - 8) / width) * width;
    char* field = reinterpret_cast<char*>(packet) + at;
    const unsigned how = rng_() % 3;
    std::memset(field, how == 0 ? 0 : 0xff, width);
    if (how == 2) field[width - 1] = 0x7f;
  }

  Ear& ear_;
  std::mt19937_64 rng_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  struct sigaction action {};
  action.sa_handler = [](int) { stopped = 1; };
  sigaction(SIGTERM, &action, nullptr);
  Ear ear(argv[1]);
  while (stopped == 0 && (ear.queues.size() < 4 || ear.packets.empty())) {
    ear.listen();
    usleep(5000);
  }
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  std::map<std::string, Adapter> adapters;
  for (int i = 0; i < count; ++i) adapters[ibv_get_device_name(devices[i])].open(devices[i]);
  Attack attack(ear, static_cast<unsigned>(std::atoi(argv[2])));
  unsigned long long sent[kKinds] = {};
  std::vector<char> bytes;
  for (unsigned turn = 0; stopped == 0; ++turn) {
    const Kind kind = attack.make(&bytes);
    const Record& to = ear.queues[attack.pick(ear.queues.size())];
    adapters.at(to.device).send(to, bytes.data(), static_cast<uint32_t>(bytes.size()));
    if (stopped == 0) ++sent[kind];
    if (turn % 32 != 31) continue;
    ear.listen();
    usleep(2000);
  }
  unsigned long long sum = 0;
  for (int i = 0; i < kKinds; ++i) {
    std::printf("hostile: %llu %s\n", sent[i], kNames[i]);
    sum += sent[i];
  }
  std::printf("hostile: sent %llu datagrams to %zu queue pairs, %zu packets heard\n", sum, ear.queues.size(),
              ear.packets.size());
  return 0;
}
