// SPDX-License-Identifier: BSD-3-Clause
//
// params.cc: one table of integer parameters (name, default, range, level, help) and the few others by hand.
#include "pml/bfo/glue/params.h"
#include "common/version.h"
#include "common/compat/given_text.h"
#include "pml/bfo/glue/help.h"

namespace bfo::glue {
namespace {

struct IntParam {
  const char* name;
  int Params::*value;
  int initial;
  int min;
  int max;
  mca_base_var_info_lvl_t level;
  const char* help;
};

constexpr int kMaxCount = 1 << 20;

constexpr IntParam kIntParams[] = {
    {"verbose", &Params::verbose, 0, 0, 100, OPAL_INFO_LVL_9,
     "Verbosity: 0 = silent, 10 = rails going down and up, 20 = dropped headers, 30 = every restart message, "
     "40 = every plan for a piece of a long message"},
    {"priority", &Params::priority, 5, 0, 1000, OPAL_INFO_LVL_9,
     "Selection priority; bfo must in any case be asked for with --mca pml bfo"},
    {"free_list_num", &Params::free_list_num, 4, 0, kMaxCount, OPAL_INFO_LVL_9,
     "Number of requests allocated in advance"},
    {"free_list_max", &Params::free_list_max, -1, -1, INT_MAX, OPAL_INFO_LVL_9,
     "Most requests ever allocated per kind (-1 = no limit)"},
    {"free_list_inc", &Params::free_list_inc, 64, 1, kMaxCount, OPAL_INFO_LVL_9,
     "Number of requests allocated each time none is left"},
    {"send_pipeline_depth", &Params::send_pipeline_depth, 3, 1, 1024, OPAL_INFO_LVL_9,
     "Fragments of one message in flight at a time"},
    {"recv_pipeline_depth", &Params::recv_pipeline_depth, 2, 1, 1024, OPAL_INFO_LVL_9,
     "RDMA reads, or grants of RDMA writes, of one message under way at a time on each rail. Over several "
     "rails they are at most 1 MiB or 2 % of the message together. Reads that are queued are 128 KiB long, "
     "or a thirty-second of what a rail moves; while all rails keep up with the processor each has one of "
     "1 MiB"},
    {"max_rdma_per_request", &Params::max_rdma_per_request, 4, 0, 8, OPAL_INFO_LVL_5,
     "Most rails of a peer that are used for RDMA; further ones carry copied fragments only (0 = no RDMA)"},
    {"max_send_per_range", &Params::max_send_per_range, 8, 1, 8, OPAL_INFO_LVL_5,
     "Most rails a message is striped over; rails of a peer beyond this number are not used"},
    {"unexpected_limit", &Params::unexpected_limit, 128, 0, kMaxCount, OPAL_INFO_LVL_9,
     "Bytes of an unexpected message kept inside its record; longer ones come from the allocator"},
    {"unknown_limit", &Params::unknown_limit, 1024, 1, 4095, OPAL_INFO_LVL_9,
     "MiB of messages kept from one peer for communicators that this process has not made yet. A peer that "
     "sends more is given up. Messages of BTLs that do not name their sender are counted together"},
    {"rdma_threshold", &Params::rdma_threshold, 0, 0, INT_MAX, OPAL_INFO_LVL_5,
     "Contiguous messages of at least this many bytes go by RDMA where the rails can; shorter ones are "
     "copied (0 = what is longer than the BTL's eager limit, or than blocking_eager_limit for MPI_Send)"},
    {"blocking_eager_limit", &Params::blocking_limit, 17 << 10, 0, INT_MAX, OPAL_INFO_LVL_5,
     "Longest message, in bytes, that a blocking send copies and sends at once over a BTL that fails over, "
     "even if it is longer than the BTL's eager limit: the sender then need not wait until the receiver has "
     "read it. Nonblocking sends, and all while a receive is posted in the communicator, keep the BTL's "
     "limit: their callers have other work meanwhile, and save the copies. "
     "btl_*_max_send_size bounds it, and so does rdma_threshold if it is set (0 = the BTL's eager limit)"},
    {"short_limit", &Params::short_limit, 256, 0, INT_MAX, OPAL_INFO_LVL_5,
     "Messages shorter than this many bytes to one peer all use one rail while it has room, which saves "
     "latency; longer eager ones do while no more than the rail moves in 10 us, or four of them, have no "
     "answer (0 = spread all). Different peers use different rails"},
    {"buffer_wait", &Params::buffer_wait, 1000, 0, INT_MAX / 1000, OPAL_INFO_LVL_5,
     "Milliseconds MPI_Bsend waits for buffered messages before it to end, none of which does, until it "
     "returns MPI_ERR_BUFFER. What has been received ends much sooner, unless it has lost its rail"},
    {"connect_wait", &Params::connect_wait, 500, 0, 1000, OPAL_INFO_LVL_5,
     "Milliseconds the first long messages to a peer wait, when one of its rails is up, for the others to be "
     "connected, so that they use all of them; without any rail twice as long. Rails that do not come cost a "
     "process about five times this, and then a hundredth of it for each peer (0 = messages use what is up)"},
    {"degraded_time", &Params::degraded_time, 1000, 0, 3'600'000, OPAL_INFO_LVL_3,
     "Milliseconds for which a rail must move less than a quarter of what it moved before, and of what "
     "another rail to the same peer moves, until it is called degraded: in a line and in the event file. "
     "What it carries follows from what it moves in any case (0 = never)"},
    {"event_limit", &Params::event_limit, 64, 0, INT_MAX, OPAL_INFO_LVL_3,
     "MiB of the event file after which it gets one line that says so and no further one (0 = no limit)"},
    {"park_timeout", &Params::park_timeout, 30, -1, INT_MAX / 1000, OPAL_INFO_LVL_3,
     "Seconds a peer may be without any usable rail before its requests end with an MPI error (0 = at once, "
     "-1 = wait for ever). A rail that returns in time resumes them"},
    {"min_rails", &Params::min_rails, 2, 0, 8, OPAL_INFO_LVL_3,
     "A host with fewer rails up than this says so when the job starts, once, with what is missing: with "
     "fewer than 2 the job does not survive the loss of a rail (0 = nothing is said)"},
};

// One of two words. Prints the message when it is neither.
bool one_of(const char* value, const char* parameter, const char* first, const char* second) {
  if (value != nullptr && (strcmp(value, first) == 0 || strcmp(value, second) == 0)) return true;
  show_help("one-of-two-words", parameter, value == nullptr ? "" : shown(value).c_str(), first, second,
            first);
  return false;
}

}  // namespace

int register_params(const mca_base_component_t* component, Params& params) {
  auto add = [component](const char* name, const char* help, mca_base_var_type_t type,
                         mca_base_var_info_lvl_t level, void* storage) {
    return registered(mca_base_component_var_register(component, name, help, type, nullptr, 0,
                                                      static_cast<mca_base_var_flag_t>(0), level,
                                                      MCA_BASE_VAR_SCOPE_READONLY, storage));
  };
  for (const IntParam& p : kIntParams) {
    params.*p.value = p.initial;
    const int rc = add(p.name, p.help, MCA_BASE_VAR_TYPE_INT, p.level, &(params.*p.value));
    if (rc < 0) return rc;
  }
  params.use_get = true;
  int rc = add("use_get", "Let the receiver read long messages by RDMA where the rails can",
               MCA_BASE_VAR_TYPE_BOOL, OPAL_INFO_LVL_5, &params.use_get);
  if (rc < 0) return rc;
  params.use_put = true;
  rc = add("use_put", "Let the sender write long messages by RDMA where the rails can",
           MCA_BASE_VAR_TYPE_BOOL, OPAL_INFO_LVL_5, &params.use_put);
  if (rc < 0) return rc;
  params.weights = const_cast<char*>("measured");
  rc = add("weights",
           "What counts when the rails to a peer share its messages: \"measured\" = what they are measured "
           "to move, "
           "when they differ by 1.3 times; \"nominal\" = the rates of their ports, whatever is measured; or "
           "a list of "
           "ports of any host of the job with numbers of which only the ratios count, such as "
           "mlx5_0:1=4,mlx5_1:1=1. A "
           "device without a port number stands for all of its ports, and a port that is not named counts 1",
           MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &params.weights);
  if (rc < 0) return rc;
  params.allocator = const_cast<char*>("bucket");
  rc = add("allocator", "Allocator component for unexpected messages above unexpected_limit",
           MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_9, &params.allocator);
  if (rc < 0) return rc;
  params.any_source_on_loss = const_cast<char*>("error");
  rc =
      add("any_source_on_loss",
          "What a receive or probe from MPI_ANY_SOURCE does when a process of its communicator is given up: "
          "\"error\" = it ends with the error of that process, \"wait\" = it goes on while any other is left",
          MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &params.any_source_on_loss);
  if (rc < 0) return rc;
  params.min_rails_action = const_cast<char*>("warn");
  rc = add(
      "min_rails_action",
      "What happens to a job that has fewer rails than min_rails: \"warn\" = a line says so, \"abort\" = it "
      "ends with that line, in MPI_Init or when a process meets one that it has too few rails to",
      MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &params.min_rails_action);
  if (rc < 0) return rc;
  params.summary = true;
  rc = add(
      "summary",
      "Print one line at the end of a job that lost a rail, had one that never came up, or gave a peer up",
      MCA_BASE_VAR_TYPE_BOOL, OPAL_INFO_LVL_3, &params.summary);
  if (rc < 0) return rc;
  params.version = const_cast<char*>(kBuild);
  rc = mca_base_component_var_register(component, "version", "Version of this build; it cannot be changed",
                                       MCA_BASE_VAR_TYPE_STRING, nullptr, 0, MCA_BASE_VAR_FLAG_DEFAULT_ONLY,
                                       OPAL_INFO_LVL_1, MCA_BASE_VAR_SCOPE_READONLY, &params.version);
  if (rc < 0) return rc;
  params.event_file = const_cast<char*>("");
  rc = add(
      "event_file",
      "File that gets one JSON line per failover and per rail that comes back, appended by every process: "
      "%h in its name is the host, %j the job, %r the rank, %% a percent sign. A pipe must have a reader "
      "(empty = none)",
      MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &params.event_file);
  if (rc < 0) return rc;
  params.event_dir = const_cast<char*>("");
  rc = add(
      "event_dir",
      "Folder where such a file, bfo-events.HOST.JOB.jsonl, is made for each host and job when event_file "
      "names none (empty = none)",
      MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &params.event_dir);
  return rc < 0 ? rc : OPAL_SUCCESS;
}

bool params_in_range(const Params& params) {
  std::string why;
  if (const std::string name = first_misread("ompi", "pml", "bfo", &why); !name.empty()) {
    show_help("parameter-misread", name.c_str(), why.c_str());
    return false;
  }
  for (const IntParam& p : kIntParams) {
    const int value = params.*p.value;
    if (value >= p.min && value <= p.max) continue;
    show_help("parameter-out-of-range", p.name, value, p.min, p.max, p.initial);
    return false;
  }
  if (!GivenWeights().parse(params.weights, &why)) {
    show_help("weights", params.weights == nullptr ? "" : shown(params.weights).c_str(), why.c_str());
    return false;
  }
  return one_of(params.any_source_on_loss, "any_source_on_loss", "error", "wait") &&
         one_of(params.min_rails_action, "min_rails_action", "warn", "abort");
}

GivenWeights given_weights(const Params& params) {
  GivenWeights given;
  std::string why;
  given.parse(params.weights, &why);
  return given;
}

bool min_rails_aborts(const Params& params) {
  return strcmp(params.min_rails_action, "abort") == 0;
}

bool any_source_waits(const Params& params) {
  return strcmp(params.any_source_on_loss, "wait") == 0;
}

}  // namespace bfo::glue
