// SPDX-License-Identifier: BSD-3-Clause
//
// raw.h: any bytes with any tag to another rank, by the BTLs that reach it and nothing above them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct mca_btl_base_module_t;
struct mca_btl_base_endpoint_t;
struct mca_btl_base_descriptor_t;

class Raw {
 public:
  /// The rails to rank `peer` of MPI_COMM_WORLD.
  explicit Raw(int peer);

  size_t rails() const { return rails_.size(); }
  size_t eager_limit() const { return eager_limit_; }  ///< the least of all rails
  size_t most() const { return most_; }                ///< the longest message all rails take

  /// False: no rail took it within `patience_s`. `at_once`: by btl_sendi, if the BTL has one.
  bool send(uint8_t tag, const void* bytes, size_t length, size_t rail, bool at_once, double patience_s);
  /// The same, and while it is under way `other` and `bytes` take turns in the memory that was handed over.
  bool race(uint8_t tag, const void* bytes, const void* other, size_t length, size_t rail, double patience_s);
  /// Waits until the BTLs have given back what was sent.
  bool drain(double patience_s);

 private:
  struct Rail {
    mca_btl_base_module_t* btl;
    mca_btl_base_endpoint_t* ep;
  };
  mca_btl_base_descriptor_t* take(const Rail& rail, size_t length, double until);
  bool hand_over(const Rail& rail, mca_btl_base_descriptor_t* des, uint8_t tag);

  std::vector<Rail> rails_;
  size_t eager_limit_ = SIZE_MAX;
  size_t most_ = SIZE_MAX;
};
