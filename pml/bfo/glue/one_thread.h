// SPDX-License-Identifier: BSD-3-Clause
//
// one_thread.h: inline functions of Open MPI that every message calls. What a process with several threads
// does there, and what is rare, is long: it is out of line here, so that it takes no room in the instruction
// cache between what every message executes.
#pragma once

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

[[gnu::noinline]] inline opal_free_list_item_t* take_threaded(opal_free_list_t& list) {
  return opal_free_list_get_mt(&list);
}
inline opal_free_list_item_t* take_item(opal_free_list_t& list) {
  if (opal_using_threads()) [[unlikely]]
    return take_threaded(list);
  return opal_free_list_get_st(&list);
}

[[gnu::noinline]] inline void give_threaded(opal_free_list_t& list, opal_free_list_item_t& item) {
  opal_free_list_return_mt(&list, &item);
}
inline void give_item(opal_free_list_t& list, opal_free_list_item_t& item) {
  if (opal_using_threads()) [[unlikely]]
    return give_threaded(list, item);
  opal_free_list_return_st(&list, &item);
}

[[gnu::noinline]] inline void complete_general(ompi_request_t& request) {
  ompi_request_complete(&request, true);
}
/// Marks a request as complete and wakes who waits for it.
inline void complete_request(ompi_request_t& request) {
  if (request.req_complete_cb != nullptr || opal_using_threads() || request.req_complete != REQUEST_PENDING)
      [[unlikely]]
    return complete_general(request);
  request.req_complete = REQUEST_COMPLETED;
}

[[gnu::noinline]] inline void wait_threaded(ompi_request_t& request) {
  ompi_request_wait_completion(&request);
}
/// Returns when the request has ended, or is_failed().
inline void wait_request(ompi_request_t& request) {
  if (opal_using_threads()) [[unlikely]]
    return wait_threaded(request);
  while (!REQUEST_COMPLETE(&request)) {
    opal_progress();
    if (is_failed(request)) break;
  }
}

}  // namespace bfo::glue
