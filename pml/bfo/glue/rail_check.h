// SPDX-License-Identifier: BSD-3-Clause
//
// rail_check.h: looks whether the rule of protection.h holds in this job, and says so when it does not.
#pragma once

#include "common/claims.h"
#include "common/compat/ompi_includes.h"
#include "common/failover_btl.h"
#include "pml/bfo/glue/btl_port.h"
#include "pml/bfo/glue/params.h"
#include "pml/bfo/glue/protection.h"

namespace bfo::glue {

class RailCheck {
 public:
  RailCheck(const Params& params, Claims& claims) : params_(params), claims_(claims) {}

  /// In MPI_Init, when the BTLs have been chosen: this host. Does not return when pml_bfo_min_rails_action
  /// ends the job.
  void at_start();
  /// At the first contact with a peer, whose rails are known: the way to it. Likewise.
  void at_contact(const Peer& peer);
  /// At each new communicator: a window has one of its own.
  void at_comm() { look_at_windows(); }
  /// A message of a window to `proc` was lost: ends the job, which would wait for it for ever.
  void at_lost_window(opal_proc_t& proc) const;

 private:
  void look_at_windows();
  void look_at_host(bool met);
  void tell(const char* text);

  const Params& params_;
  Claims& claims_;
  bool told_ = false;          ///< this host has had its line
  bool windows_told_ = false;  ///< the same of windows
  bool by_rail_ = false;       ///< osc rdma would use a rail to a peer that was met
};

/// The ports of this process that can be rails, now; all 0 where the BTL does not tell.
bfo_host_ports_t host_ports();

}  // namespace bfo::glue
