// SPDX-License-Identifier: BSD-3-Clause
//
// component.cc: registration, opening, selection and closing of the PML component.
#include "pml/bfo/glue/component.h"

#include "common/compat/class_sizes.h"
#include "common/version.h"
#include "pml/bfo/glue/builds.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/pvars.h"

namespace bfo::glue {
namespace {

bool fits() {
  const std::array ours = {BFO_CLASS_SIZE(ompi_communicator_t),
                           BFO_CLASS_SIZE(ompi_group_t),
                           BFO_CLASS_SIZE(ompi_proc_t),
                           BFO_CLASS_SIZE(ompi_datatype_t),
                           BFO_CLASS_SIZE(ompi_request_t),
                           BFO_CLASS_SIZE(ompi_message_t),
                           BFO_CLASS_SIZE(mca_pml_base_request_t),
                           BFO_CLASS_SIZE(mca_pml_base_send_request_t),
                           BFO_CLASS_SIZE(mca_pml_base_recv_request_t),
                           BFO_CLASS_SIZE(mca_bml_base_btl_array_t),
                           BFO_CLASS_SIZE(mca_bml_base_endpoint_t)};
  const auto opal = opal_class_sizes();
  std::vector<ClassSize> classes(opal.begin(), opal.end());
  classes.insert(classes.end(), ours.begin(), ours.end());
  return fits_running("PML bfo", built_for().c_str(), classes);
}

// The first code of the component that runs. NOT_AVAILABLE: it has said why itself.
int component_register() {
  if (!fits()) return OMPI_ERR_NOT_AVAILABLE;
  const int rc = register_params(&mca_pml_bfo_component.super.pmlm_version, mca_pml_bfo_component.params);
  if (rc != OPAL_SUCCESS) return rc;
  register_pvars(&mca_pml_bfo_component.super.pmlm_version);
  return OMPI_SUCCESS;
}

int component_open() {
  Component& c = mca_pml_bfo_component;
  if (!params_in_range(c.params)) return OMPI_ERR_BAD_PARAM;
  c.output = opal_output_open(nullptr);
  opal_output_set_verbosity(c.output, c.params.verbose);
  const int rc = mca_base_framework_open(&ompi_bml_base_framework, static_cast<mca_base_open_flag_t>(0));
  c.bml_open = rc == OPAL_SUCCESS;
  return rc;
}

int component_close() {
  Component& c = mca_pml_bfo_component;
  const int rc =
      std::exchange(c.bml_open, false) ? mca_base_framework_close(&ompi_bml_base_framework) : OPAL_SUCCESS;
  if (c.output >= 0) opal_output_close(c.output);
  c.output = -1;
  return rc;
}

mca_pml_base_module_t* component_init(int* priority, bool enable_progress_threads, bool enable_mpi_threads) {
  Component& c = mca_pml_bfo_component;
  *priority = c.params.priority;
  if (mca_bml_base_init(enable_progress_threads, enable_mpi_threads) != OMPI_SUCCESS) return nullptr;
  if (publish_versions() != OPAL_SUCCESS) return nullptr;
  c.devices = has_accelerator();
  c.module = Module::create(c.params, enable_mpi_threads);
  return c.module == nullptr ? nullptr : &c.module->table();
}

int component_finalize() {
  Component& c = mca_pml_bfo_component;
  Module* module = std::exchange(c.module, nullptr);
  if (module == nullptr) return OMPI_SUCCESS;  // not selected
  return Module::destroy(module);
}

}  // namespace
}  // namespace bfo::glue

extern "C" {

bfo::glue::Component mca_pml_bfo_component = {
    .super =
        {
            .pmlm_version =
                {
                    BFO_PML_BASE_VERSION,
                    .mca_component_name = "bfo",
                    MCA_BASE_MAKE_VERSION(component, bfo::version_part(BFO_VERSION, 0),
                                          bfo::version_part(BFO_VERSION, 1),
                                          bfo::version_part(BFO_VERSION, 2)),
                    .mca_open_component = bfo::glue::component_open,
                    .mca_close_component = bfo::glue::component_close,
                    .mca_query_component = nullptr,
                    .mca_register_component_params = bfo::glue::component_register,
                    .mca_component_flags = 0,
                    .reserved = {},
                },
            .pmlm_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE, .reserved = {}},
            .pmlm_init = bfo::glue::component_init,
            .pmlm_finalize = bfo::glue::component_finalize,
        },
    .params = {},
    .claims = {},
    .output = -1,
    .bml_open = false,
    .devices = false,
    .module = nullptr,
};
}
