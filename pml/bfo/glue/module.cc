// SPDX-License-Identifier: BSD-3-Clause
//
// module.cc: the module: start, processes that are added, its end. leaving.cc: processes that are removed.
#include "pml/bfo/glue/module.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include "common/decimal.h"
#include "common/version.h"
#include "pml/bfo/glue/builds.h"
#include "pml/bfo/glue/callbacks.h"
#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/entry.h"
#include "pml/bfo/glue/help.h"
#include "pml/bfo/glue/rail_limits.h"
#include "pml/bfo/glue/trace.h"
#include "pml/bfo/xfer/contract.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::glue {
namespace {

constexpr uint64_t kForever = UINT64_MAX / 4;
constexpr useconds_t kNoteMicros = 500'000;  // for others of the host to find what was said

// What nobody can guess, if the system has it already. Names of sends and receives are apart in any case.
uint64_t draw() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(bits)))
    bits = static_cast<uint64_t>(::getpid()) * 0x9e3779b97f4a7c15u;
  return bits;
}

xfer::Config engine_config(const Params& params) {
  xfer::Config config;
  config.begin_names(draw());
  config.unknown_limit = static_cast<uint64_t>(params.unknown_limit) << 20;
  config.park_timeout_ns =
      params.park_timeout < 0 ? kForever : static_cast<uint64_t>(params.park_timeout) * 1'000'000'000u;
  config.send_depth = static_cast<uint32_t>(params.send_pipeline_depth);
  config.rdma_depth = static_cast<uint32_t>(params.recv_pipeline_depth);
  config.short_limit = static_cast<size_t>(params.short_limit);
  config.connect_wait_ns = static_cast<uint64_t>(params.connect_wait) * 1'000'000u;
  config.degraded_ns = static_cast<uint64_t>(params.degraded_time) * 1'000'000u;
  config.use_get = params.use_get;
  config.use_put = params.use_put;
  config.weights = given_weights(params).kind();
  config.trace_plans = params.verbose >= kTracePlans;
  config.any_source_on_loss = survives_deaths()          ? xfer::AnySource::kRuntime
                              : any_source_waits(params) ? xfer::AnySource::kWait
                                                         : xfer::AnySource::kError;
  return config;
}

int table_add_procs(ompi_proc_t** procs, size_t count) {
  return mca_pml_bfo_component.module->add_procs(procs, count);
}
int table_del_procs(ompi_proc_t** procs, size_t count) {
  return mca_pml_bfo_component.module->del_procs(procs, count);
}
int table_enable(bool) {
  return mca_pml_bfo_component.module->enable();
}

// Releases that know checkpoints ask for it.
template <class Table>
void answer_checkpoints(Table& table) {
  if constexpr (requires { table.pml_ft_event; })
    table.pml_ft_event = [](int) -> int { return OMPI_SUCCESS; };
}

// Releases that know communicators which are revoked.
template <class Table>
void answer_revocations(Table& table) {
  if constexpr (requires { table.pml_revoke_comm; }) table.pml_revoke_comm = pml_revoke_comm;
}

mca_pml_base_module_t make_table() {
  mca_pml_base_module_t t = {};
  t.pml_add_procs = table_add_procs;
  t.pml_del_procs = table_del_procs;
  t.pml_enable = table_enable;
  t.pml_progress = nullptr;  // registered by enable() instead, at low priority
  t.pml_add_comm = pml_add_comm;
  t.pml_del_comm = pml_del_comm;
  t.pml_irecv_init = pml_irecv_init;
  t.pml_irecv = pml_irecv;
  t.pml_recv = pml_recv;
  t.pml_isend_init = pml_isend_init;
  t.pml_isend = pml_isend;
  t.pml_send = pml_send;
  t.pml_iprobe = pml_iprobe;
  t.pml_probe = pml_probe;
  t.pml_start = start_requests;
  t.pml_improbe = pml_improbe;
  t.pml_mprobe = pml_mprobe;
  t.pml_imrecv = pml_imrecv;
  t.pml_mrecv = pml_mrecv;
  t.pml_dump = pml_dump;
  answer_checkpoints(t);
  answer_revocations(t);
  t.pml_max_contextid = UINT16_MAX;  // what MATCH carries
  t.pml_max_tag = INT_MAX;
  return t;
}

void print_line(const char* line) {
  opal_output(0, "%s", line);
}

// The number that the batch system gave the job, else Open MPI's own.
std::string job_number() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"}) {
    const char* const value = getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return job_name();
}

std::string text_of(const char* parameter) {
  return parameter == nullptr ? "" : parameter;
}

}  // namespace

Module::Module(const Params& params, const xfer::Config& config)
    : table_(make_table()),
      params_(params),
      weights_(given_weights(params)),
      port_(*this),
      engine_(port_, config),
      events_(mca_pml_bfo_component.claims, print_line),
      console_(print_line, mca_pml_bfo_component.claims),
      summary_(print_line, mca_pml_bfo_component.claims),
      rail_check_(params, mca_pml_bfo_component.claims) {}

Module* Module::create(const Params& params, bool threads) {
  Module* module = new (std::nothrow) Module(params, engine_config(params));
  if (module == nullptr) return nullptr;
  if (!module->port_.init(params, threads)) {
    destroy(module);
    return nullptr;
  }
  for_each_btl([module](const mca_btl_base_module_t* btl) {
    if ((btl->btl_flags & MCA_BTL_FLAGS_SINGLE_ADD_PROCS) != 0) {
      module->table_.pml_flags |= MCA_PML_BASE_FLAG_REQUIRE_WORLD;
    }
  });
  return module;
}

int Module::destroy(Module* module) {
  module->summary_.finish(opal_process_info.nodename, kBuild);
  module->waits_.release();
  module->unbind_failover_btls();
  if (module->progressing_) opal_progress_unregister(engine_progress);
  if (RecvRequest* req = module->take_cached(); req != nullptr) {
    opal_free_list_return(&mca_pml_base_recv_requests, &req->base.req_base.req_ompi.super);
  }
  const int rc = mca_bml.bml_finalize != nullptr ? mca_bml.bml_finalize() : OMPI_SUCCESS;
  delete module;
  return rc;
}

void Module::connect_on() {
  if (connecting_on_.exchange(true, std::memory_order_acquire)) return;
  opal_progress();
  connecting_on_.store(false, std::memory_order_release);
}

int Module::enable() {
  const int rc = request_lists_init(params_);
  if (rc != OPAL_SUCCESS) return rc;
  // Retries and park times. Low priority: they are not critical for latency.
  opal_progress_register_lp(engine_progress);
  progressing_ = true;
  waits_.take();
  open_page();
  rail_check_.at_start();
  return OMPI_SUCCESS;
}

int Module::check_limits() const {
  int rc = OMPI_SUCCESS;
  for_each_btl([&rc](const mca_btl_base_module_t* btl) {
    const size_t longest = xfer::post_limit(btl->btl_eager_limit, btl->btl_max_send_size);
    if ((btl->btl_flags & MCA_BTL_FLAGS_SEND) == 0 || longest >= xfer::kLeastPost) return;
    show_help("limits-too-small", component_name(btl), static_cast<unsigned long>(longest),
              static_cast<unsigned long>(xfer::kLeastPost), component_name(btl), component_name(btl));
    rc = OMPI_ERR_BAD_PARAM;
  });
  return rc;
}

int Module::register_callbacks() {
  // vader and tcp call what stands at the tag of a message without a look, and the sender chooses the tag. So
  // the PML takes all of its own, and those that belong to nobody: the engine drops what it does not know.
  for (unsigned tag = 0; tag < MCA_BTL_TAG_MAX; ++tag) {
    const bool of_pml = tag >= MCA_BTL_TAG_PML && tag < MCA_BTL_TAG_OSC_RDMA;
    if (!of_pml && mca_btl_base_active_message_trigger[tag].cbfunc != nullptr) continue;
    const int rc = mca_bml.bml_register(static_cast<mca_btl_base_tag_t>(tag), btl_message_callback(), this);
    if (rc != OMPI_SUCCESS) return rc;
  }
  return mca_bml.bml_register_error(on_btl_error);
}

void Module::bind_failover_btls() {
  for_each_btl([this](mca_btl_base_module_t* btl) {
    for (const auto& [known, contract] : bound_) {
      if (known == btl) return;
    }
    const bfo_failover_btl_t* contract = find_failover(btl);
    if (contract == nullptr) return;
    if (contract->bind(btl, failover_sink(), this) == OPAL_SUCCESS) bound_.emplace_back(btl, contract);
  });
}

void Module::unbind_failover_btls() {
  for (const auto& [btl, contract] : bound_) contract->bind(btl, nullptr, nullptr);
  bound_.clear();
}

void Module::rail_bytes(unsigned long long* out, unsigned n) const {
  std::fill_n(out, n, 0ull);
  unsigned i = 0;
  for (const auto& [btl, contract] : bound_) {
    bfo_accounting_t accounting = {};
    if (contract->accounting(btl, &accounting) == OPAL_SUCCESS) out[i] += accounting.bytes_posted;
    if (i + 1 < n) ++i;
  }
}

uint8_t Module::port_index(const mca_btl_base_module_t* btl) const {
  for (size_t i = 0; i < bound_.size() && i < xfer::kMaxRails; ++i)
    if (bound_[i].first == btl) return static_cast<uint8_t>(i);
  return UINT8_MAX;
}

// Of a list in pml_bfo_weights.
uint32_t Module::given_weight(const RailHandle& handle) const {
  if (weights_.kind() != xfer::Weights::kGiven) return 1;
  bfo_rail_info_t info = {};
  const bool named =
      handle.failover != nullptr && handle.failover->rail_info(handle.btl, handle.ep, &info) == OPAL_SUCCESS;
  const uint32_t weight =
      named ? weights_.of(info.device, info.port) : weights_.of(component_name(handle.btl), 0);
  return weight != 0 ? weight : 1;
}

void Module::port_rates(unsigned long long* out, unsigned n) {
  for (unsigned i = 0; i < n; ++i) out[i] = engine_.port_rate(i);
}

// btl_bandwidth has the new rate: a peer that is added meanwhile, under the engine's lock, has read it, or is
// there already.
void Module::port_speed(const mca_btl_base_module_t* btl, const bfo_port_speed_t& speed) {
  PortSpeed told;
  told.rails = engine_.on_port_speed([btl](const RailHandle& rail) { return rail.btl == btl; }, speed.now);
  if (speed.before == 0 || leaving_) return;
  told.rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  told.device = speed.device;
  told.port = speed.port;
  told.before = speed.before;
  told.now = speed.now;
  told.cause = speed.text;
  events_.write(told);
  summary_.events_lost(events_.lost());
  console_.tell_speed(told, port_.now_ns());
}

void Module::port_loss(const mca_btl_base_module_t* btl, const bfo_port_loss_t& loss) {
  if (leaving_) return;
  PortLoss told;
  told.rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  told.host = opal_process_info.nodename;
  told.device = loss.device;
  told.port = loss.port;
  told.rail = port_index(btl);
  told.in = loss.in != 0;
  told.lossy = loss.lossy != 0;
  told.lost = loss.signs;
  told.packets = loss.packets;
  told.ns = loss.ns;
  events_.write(told);
  if (told.lossy) {
    console_.tell_loss(told);
    summary_.lossy(told);
  }
  summary_.events_lost(events_.lost());
}

// Of the BTLs of this process and of the PMLs of `procs`.
bool Module::builds_fit(ompi_proc_t** procs, size_t count) const {
  bool fit = true;
  for_each_btl([&fit](const mca_btl_base_module_t* btl) { fit = fit && contract_fits(btl); });
  for (size_t i = 0; fit && i < count; ++i) fit = understands(&procs[i]->super);
  return fit;
}

int Module::add_procs(ompi_proc_t** procs, size_t count) {
  if (count == 0) return OMPI_SUCCESS;
  const ompi_proc_t* me = ompi_proc_local();
  for (size_t i = 0; i < count; ++i) {
    if (procs[i]->super.proc_arch == me->super.proc_arch) continue;
    show_help("other-architecture", HostName(procs[i]->super).text());
    return OMPI_ERR_NOT_SUPPORTED;
  }
  int rc = mca_pml_base_pml_check_selected("bfo", procs, count);
  if (rc != OMPI_SUCCESS) return rc;
  if (!builds_fit(procs, count)) {
    // The others of this host find the note that it was said: the end of this process removes it.
    ::usleep(kNoteMicros);
    return OMPI_ERR_NOT_SUPPORTED;
  }

  opal_bitmap_t reachable;
  OBJ_CONSTRUCT(&reachable, opal_bitmap_t);
  rc = opal_bitmap_init(&reachable, static_cast<int>(count));
  if (rc == OMPI_SUCCESS) rc = mca_bml.bml_add_procs(count, procs, &reachable);
  OBJ_DESTRUCT(&reachable);
  if (rc != OMPI_SUCCESS) return rc;

  if ((rc = check_limits()) != OMPI_SUCCESS) return rc;
  bind_failover_btls();  // first: their messages never come through the callbacks
  return register_callbacks();
}

void Module::keep_alive_now() {
  if (survives_deaths()) [[unlikely]]
    settle_deaths(*this);
  if (!bound_.empty() && look_.due(port_.now_ns())) engine_.keep_alive();
}

void Module::open_page() {
  page_.open(opal_process_info.job_session_dir, opal_process_info.my_local_rank,
             static_cast<unsigned>(opal_process_info.num_local_peers) + 1, sizeof(Facts));
  EventFile to;
  to.file = text_of(params_.event_file);
  to.folder = text_of(params_.event_dir);
  to.job = job_number();
  to.host = text_of(opal_process_info.nodename);
  to.rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  to.limit = static_cast<uint64_t>(params_.event_limit) << 20;
  events_.open(to);
  if (params_.summary) summary_.open(page_, to.rank);
}

}  // namespace bfo::glue
