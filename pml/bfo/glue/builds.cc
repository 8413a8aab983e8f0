// SPDX-License-Identifier: BSD-3-Clause
//
// builds.cc: see builds.h. What is printed here is the reason why a job ends: it goes to standard error at
// once, in one piece.
#include "pml/bfo/glue/builds.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "common/version.h"
#include "common/wire_versions.h"
#include "pml/bfo/core/wire.h"
#include "pml/bfo/glue/component.h"

// For a test in which a PML meets a BTL that is one change of the contract apart.
#ifndef BFO_TEST_CONTRACT_AHEAD
#define BFO_TEST_CONTRACT_AHEAD 0
#endif

namespace bfo::glue {
namespace {

constexpr uint32_t kContract = BFO_FAILOVER_VERSION + BFO_TEST_CONTRACT_AHEAD;
// From this version on a contract names its build.
constexpr uint32_t kNamesBuild = 10;

constexpr WireVersions kVersions = {core::kWireVersion + BFO_TEST_WIRE_AHEAD,
                                    core::kWireOldest + BFO_TEST_WIRE_AHEAD};
constexpr uint32_t kMagic = 0x4d504f42;  // "BOPM"
constexpr uint16_t kFirstRecord = 1;
// Not the name that Open MPI makes of a component and its version: that differs between builds.
char kKey[] = "bfo.pml.wire";

const char* component_name(const mca_btl_base_module_t* btl) {
  return btl->btl_component->btl_version.mca_component_name;
}

void tell(const char* text, size_t length) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, length);
}

// A contract of any version.
const bfo_failover_btl_t* exported_contract(const mca_btl_base_module_t* btl) {
  if ((btl->btl_flags & MCA_BTL_FLAGS_FAILOVER_SUPPORT) == 0) return nullptr;
  const bfo_failover_btl_t* const contract = contract_of(component_name(btl));
  return contract != nullptr && contract->magic == BFO_FAILOVER_MAGIC ? contract : nullptr;
}

const char* build_of(const bfo_failover_btl_t& contract) {
  const bool named = contract.version >= kNamesBuild &&
                     contract.size >= offsetof(bfo_failover_btl_t, build) + sizeof(contract.build);
  return named && contract.build != nullptr ? contract.build : "older";
}

}  // namespace

const bfo_failover_btl_t* contract_of(const char* name) {
  char symbol[MCA_BASE_MAX_COMPONENT_NAME_LEN + 32];
  snprintf(symbol, sizeof(symbol), "mca_btl_%s_failover", name);
  return static_cast<const bfo_failover_btl_t*>(dlsym(RTLD_DEFAULT, symbol));
}

bool speaks(const bfo_failover_btl_t& contract) {
  return contract.magic == BFO_FAILOVER_MAGIC && contract.version == kContract &&
         contract.size >= sizeof(bfo_failover_btl_t);
}

const bfo_failover_btl_t* find_failover(const mca_btl_base_module_t* btl) {
  const bfo_failover_btl_t* const contract = exported_contract(btl);
  return contract != nullptr && speaks(*contract) ? contract : nullptr;
}

bool contract_fits(const mca_btl_base_module_t* btl) {
  const bfo_failover_btl_t* const contract = exported_contract(btl);
  if (contract == nullptr) return true;
  const char* const theirs = build_of(*contract);
  if (speaks(*contract)) {
    if (strcmp(theirs, kBuild) != 0)
      opal_output_verbose(10, mca_pml_bfo_component.output,
                          "pml/bfo: build %s works with build %s of the BTL %s: both have contract %u",
                          kBuild, theirs, component_name(btl), kContract);
    return true;
  }
  char text[640];
  const int n = snprintf(
      text, sizeof(text),
      "bfo: on host %s the PML bfo (contract %u, build %s) and the BTL %s (contract %u, build %s) do not fit "
      "together, and no rail would survive a failure: install mca_pml_bfo.so and mca_btl_%s.so of one build, "
      "or leave the BTL out (--mca btl ^%s)\n",
      opal_process_info.nodename, kContract, kBuild, component_name(btl), contract->version, theirs,
      component_name(btl), component_name(btl));
  if (mca_pml_bfo_component.claims.take_once(claim_key("contract", component_name(btl))))
    tell(text, std::min(sizeof(text) - 1, static_cast<size_t>(n)));
  return false;
}

int publish_versions() {
  mca_pml_bfo_component.claims.open(opal_process_info.job_session_dir, opal_process_info.my_local_rank);
  WireRecord record = make_record(kMagic, kVersions, 0, 0);
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_SEND_STRING(rc, kModexGlobal, kKey, &record, sizeof(record));
  if (rc != OPAL_SUCCESS)
    opal_output(0, "pml/bfo: cannot publish the version of its messages (%s); the component is not used",
                opal_strerror(rc));
  return rc;
}

bool understands(const opal_proc_t* proc) {
  const opal_process_name_t self = OPAL_PROC_MY_NAME;
  if (proc->proc_name.jobid == self.jobid && proc->proc_name.vpid == self.vpid) return true;
  void* data = nullptr;
  size_t size = 0;
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_RECV_STRING(rc, kKey, const_cast<opal_process_name_t*>(&proc->proc_name), &data, &size);
  const PeerRecord theirs =
      read_record(rc == OPAL_SUCCESS ? data : nullptr, size, kMagic, kFirstRecord, kVersions);
  free(data);
  if (theirs.state == RecordState::kRead) return true;
  const WireSide here = {opal_process_info.nodename, self.vpid};
  const HostName host(*proc);
  const WireSide there = {host.text(), proc->proc_name.vpid};
  char text[768];
  const size_t length = refusal_text(text, sizeof(text), "PML bfo", here, kVersions, there, theirs);
  if (mca_pml_bfo_component.claims.take_once(claim_key("pml-version", there.host))) tell(text, length);
  return false;
}

}  // namespace bfo::glue
