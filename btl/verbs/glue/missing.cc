// SPDX-License-Identifier: BSD-3-Clause
//
// missing.cc: the messages about what the start or a rail lacks, with the remedy: a resource, the word of the
// subnet administrator.
#include <sys/resource.h>

#include <string>
#include <string_view>

#include "btl/verbs/glue/module.h"
#include "common/decimal.h"

namespace bfo::verbs {
namespace {

std::string limit_text(decltype(RLIMIT_NPROC) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return decimal(limit.rlim_cur);
}

}  // namespace

uint64_t locked_memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

void start_remedy(int error, char* text, size_t size) {
  switch (error) {
    case EAGAIN:
      snprintf(text, size,
               "The kernel gives no more threads: raise the limit of processes (ulimit -u, %s here, and "
               "pids.max of the container or batch job), or run fewer processes on the host.",
               limit_text(RLIMIT_NPROC).c_str());
      return;
    case EMFILE:
      snprintf(text, size, "This process may have %s descriptors (ulimit -n): raise the limit on every node.",
               limit_text(RLIMIT_NOFILE).c_str());
      return;
    case ENFILE:
      snprintf(text, size, "The host has no descriptors left: raise fs.file-max (sysctl).");
      return;
    case EACCES:
    case EPERM:
      snprintf(text, size, "The user of the job needs access to the files in /dev/infiniband.");
      return;
    case ENOMEM: {
      engine::Shortage shortage;
      shortage.object = engine::Object::kMemory;
      return engine::resource_remedy(shortage, locked_memory_limit(), text, size);
    }
    default:
      snprintf(text, size,
               "\"ibv_devinfo -v\" shows whether other programs can use it; name the devices that work in "
               "btl_verbs_if_include.");
  }
}

void start_failed(const char* what, int error) {
  char remedy[400];
  start_remedy(error, remedy, sizeof remedy);
  say(true, "cannot-start", opal_process_info.nodename, what, strerror(error), remedy);
}

void rail_missing(void* ctx, engine::Endpoint& endpoint) {
  Module& module = *static_cast<Module*>(ctx);
  const engine::Shortage& shortage = endpoint.shortage();
  // With many peers all of them lack the same resource, and all processes of a host do: one message is
  // enough. A peer of this host says it itself.
  if (shortage.there && HostName(*proc_of(endpoint)).text() == std::string_view(opal_process_info.nodename))
    return;
  const uint32_t bit = 1u << (static_cast<unsigned>(shortage.object) + (shortage.there ? 16 : 0));
  if ((module.missing_reported & bit) != 0) return;
  module.missing_reported |= bit;
  char what[96];
  char remedy[400];
  engine::resource_text(shortage, what, sizeof what);
  if (!first_to_say((std::string("rail-missing ") + what).c_str())) return;
  engine::resource_remedy(shortage, locked_memory_limit(), remedy, sizeof remedy);
  const opal_process_name_t self = OPAL_PROC_MY_NAME;
  say(false, "rail-missing", self.vpid, opal_process_info.nodename, static_cast<unsigned>(endpoint.peer.name),
      HostName(*proc_of(endpoint)).text(), module.port.device().name(), module.port.number(), what, remedy);
}

void thread_missing(void*, int error) {
  char remedy[400];
  start_remedy(error, remedy, sizeof remedy);
  say(true, "no-control-thread", opal_process_info.nodename, strerror(error), remedy);
}

void path_unknown(void* ctx, const engine::PathTrouble& trouble) {
  const Module& module = *static_cast<const Module*>(ctx);
  char what[160];
  char remedy[160];
  engine::path_trouble_text(trouble, what, sizeof what);
  engine::path_trouble_remedy(trouble, remedy, sizeof remedy);
  say(false, "no-path-record", opal_process_info.nodename, module.port.number(), module.port.device().name(),
      what, remedy);
}

}  // namespace bfo::verbs
