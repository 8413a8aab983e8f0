// SPDX-License-Identifier: BSD-3-Clause
//
// waits.cc: see waits.h.
#include "pml/bfo/glue/waits.h"

#include <atomic>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/module.h"

namespace bfo::glue {

#if OMPI_MAJOR_VERSION < 5
namespace {

struct Wait {
  int status = OPAL_SUCCESS;
  std::atomic<bool> over{false};
};

// On a thread of the runtime.
void end(int status, void* data) {
  auto* wait = static_cast<Wait*>(data);
  wait->status = status;
  wait->over.store(true, std::memory_order_release);
}

int finish(int rc, const Wait& wait) {
  if (rc == OPAL_OPERATION_SUCCEEDED) return OPAL_SUCCESS;  // complete already: there is no callback
  if (rc != OPAL_SUCCESS) return rc;
  while (!wait.over.load(std::memory_order_acquire)) opal_progress();
  return wait.status;
}

int fence_here(opal_list_t* procs, int collect_data) {
  return mca_pml_bfo_component.module->waits().fence(procs, collect_data);
}

int connect_here(opal_list_t* procs) {
  return mca_pml_bfo_component.module->waits().connect(procs);
}

// Looks up what another process publishes, and blocks until it does. Everything that was sent to that process
// has arrived before.
int lookup_here(opal_list_t* data, opal_list_t* info) {
  mca_pml_bfo_component.module->drain();
  return mca_pml_bfo_component.module->waits().lookup(data, info);
}

}  // namespace

int Waits::fence(opal_list_t* procs, int collect_data) const {
  Wait wait;
  return finish(was_.fence_nb(procs, collect_data, end, &wait), wait);
}

int Waits::connect(opal_list_t* procs) const {
  Wait wait;
  return finish(was_.connect_nb(procs, end, &wait), wait);
}

void Waits::take() {
  if (taken_) return;
  taken_ = true;
  was_ = opal_pmix;
  if (was_.fence != nullptr && was_.fence_nb != nullptr) opal_pmix.fence = fence_here;
  if (was_.connect != nullptr && was_.connect_nb != nullptr) opal_pmix.connect = connect_here;
  if (was_.lookup != nullptr) opal_pmix.lookup = lookup_here;
}

void Waits::release() {
  if (!taken_) return;
  taken_ = false;
  opal_pmix.fence = was_.fence;
  opal_pmix.connect = was_.connect;
  opal_pmix.lookup = was_.lookup;
}
#else
void Waits::take() {}
void Waits::release() {}
#endif

}  // namespace bfo::glue
