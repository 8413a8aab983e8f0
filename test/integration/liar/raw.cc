// SPDX-License-Identifier: BSD-3-Clause
//
// raw.cc: sends by the BTLs alone (raw.h).
#include "test/integration/liar/raw.h"

#include <algorithm>
#include <thread>

#include "common/compat/ompi_includes.h"

#include <mpi.h>

namespace {

std::atomic<long> under_way{0};

void ended(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, mca_btl_base_descriptor_t*, int) {
  --under_way;
}

/// Changes bytes that a BTL was given, on a thread of its own.
class Changer {
 public:
  Changer() : thread_([this] { run(); }) {}
  ~Changer() {
    stop_ = true;
    thread_.join();
  }
  void begin(void* at, const void* one, const void* other, size_t length) {
    length_ = std::min(length, sizeof one_);
    std::memcpy(one_, one, length_);
    std::memcpy(other_, other, length_);
    at_ = static_cast<volatile uint8_t*>(at);
    go_.store(true, std::memory_order_release);
  }
  /// When it returns nothing is written any more.
  void end() {
    go_.store(false, std::memory_order_release);
    while (busy_.load(std::memory_order_acquire)) sched_yield();
  }

 private:
  void run() {
    while (!stop_) {
      busy_.store(true, std::memory_order_release);
      if (!go_.load(std::memory_order_acquire)) {
        busy_.store(false, std::memory_order_release);
        const timespec pause{0, 20000};
        nanosleep(&pause, nullptr);
        continue;
      }
      for (const uint8_t* bytes : {other_, one_})
        for (size_t i = 0; i < length_; ++i) at_[i] = bytes[i];
      busy_.store(false, std::memory_order_release);
    }
  }
  uint8_t one_[128], other_[128];
  size_t length_ = 0;
  volatile uint8_t* at_ = nullptr;
  std::atomic<bool> go_{false}, busy_{false}, stop_{false};
  std::thread thread_;
};

}  // namespace

Raw::Raw(int peer) {
  ompi_proc_t* proc = ompi_comm_peer_lookup(reinterpret_cast<ompi_communicator_t*>(MPI_COMM_WORLD), peer);
  mca_bml_base_endpoint_t* endpoint = mca_bml_base_get_endpoint(proc);
  if (endpoint == nullptr) return;
  for (size_t i = 0; i < mca_bml_base_btl_array_get_size(&endpoint->btl_send); ++i) {
    const mca_bml_base_btl_t* rail = mca_bml_base_btl_array_get_index(&endpoint->btl_send, i);
    rails_.push_back({rail->btl, rail->btl_endpoint});
    eager_limit_ = std::min(eager_limit_, rail->btl->btl_eager_limit);
    most_ = std::min(most_, std::max(rail->btl->btl_eager_limit, rail->btl->btl_max_send_size));
  }
}

mca_btl_base_descriptor_t* Raw::take(const Rail& rail, size_t length, double until) {
  while (true) {
    mca_btl_base_descriptor_t* des =
        rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, length,
                            MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    if (des != nullptr || MPI_Wtime() > until) return des;
    opal_progress();
  }
}

bool Raw::hand_over(const Rail& rail, mca_btl_base_descriptor_t* des, uint8_t tag) {
  des->des_cbfunc = ended;
  des->des_flags |= MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
  ++under_way;
  const int rc = rail.btl->btl_send(rail.btl, rail.ep, des, tag);
  if (rc >= 0 || rc == OPAL_ERR_RESOURCE_BUSY) return true;
  --under_way;
  rail.btl->btl_free(rail.btl, des);
  return false;
}

bool Raw::send(uint8_t tag, const void* bytes, size_t length, size_t rail, bool at_once, double patience_s) {
  const double until = MPI_Wtime() + patience_s;
  do {
    const Rail& way = rails_[rail++ % rails_.size()];
    if (at_once && way.btl->btl_sendi != nullptr && length <= eager_limit_) {
      mca_btl_base_descriptor_t* left = nullptr;
      static char nothing = 0;
      void* header = length == 0 ? &nothing : const_cast<void*>(bytes);
      const int rc = way.btl->btl_sendi(way.btl, way.ep, nullptr, header, length, 0, MCA_BTL_NO_ORDER,
                                        MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, tag, &left);
      if (rc == OPAL_SUCCESS) return true;
      if (left != nullptr) way.btl->btl_free(way.btl, left);
    }
    mca_btl_base_descriptor_t* des = take(way, length, until);
    if (des == nullptr) return false;
    if (length != 0) std::memcpy(des->des_segments[0].seg_addr.pval, bytes, length);
    des->des_segments[0].seg_len = length;
    if (hand_over(way, des, tag)) return true;
    opal_progress();
  } while (MPI_Wtime() < until);
  return false;
}

bool Raw::race(uint8_t tag, const void* bytes, const void* other, size_t length, size_t rail,
               double patience_s) {
  static Changer changer;
  const double until = MPI_Wtime() + patience_s;
  const Rail& way = rails_[rail % rails_.size()];
  mca_btl_base_descriptor_t* des = take(way, length, until);
  if (des == nullptr) return false;
  void* memory = des->des_segments[0].seg_addr.pval;
  std::memcpy(memory, bytes, length);
  des->des_segments[0].seg_len = length;
  changer.begin(memory, bytes, other, length);
  const long before = under_way;
  const bool taken = hand_over(way, des, tag);
  // The memory is the BTL's again when the descriptor has ended, which is after the peer has read it.
  while (taken && under_way > before && MPI_Wtime() < until) opal_progress();
  changer.end();
  return taken;
}

bool Raw::drain(double patience_s) {
  const double until = MPI_Wtime() + patience_s;
  while (under_way > 0 && MPI_Wtime() < until) opal_progress();
  return under_way == 0;
}
