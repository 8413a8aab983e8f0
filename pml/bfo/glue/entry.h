// SPDX-License-Identifier: BSD-3-Clause
//
// entry.h: the functions of the PML table that libmpi calls for communicators and messages. Signatures and
// meaning: ompi/mca/pml/pml.h. All may be called by any thread under MPI_THREAD_MULTIPLE.
#pragma once

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

int pml_add_comm(ompi_communicator_t* comm);
int pml_del_comm(ompi_communicator_t* comm);

int pml_isend_init(const void* buffer, size_t count, ompi_datatype_t* datatype, int dst, int tag,
                   mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_request_t** request);
int pml_isend(const void* buffer, size_t count, ompi_datatype_t* datatype, int dst, int tag,
              mca_pml_base_send_mode_t mode, ompi_communicator_t* comm, ompi_request_t** request);
int pml_send(const void* buffer, size_t count, ompi_datatype_t* datatype, int dst, int tag,
             mca_pml_base_send_mode_t mode, ompi_communicator_t* comm);

int pml_irecv_init(void* buffer, size_t count, ompi_datatype_t* datatype, int src, int tag,
                   ompi_communicator_t* comm, ompi_request_t** request);
int pml_irecv(void* buffer, size_t count, ompi_datatype_t* datatype, int src, int tag,
              ompi_communicator_t* comm, ompi_request_t** request);
int pml_recv(void* buffer, size_t count, ompi_datatype_t* datatype, int src, int tag,
             ompi_communicator_t* comm, ompi_status_public_t* status);
int pml_imrecv(void* buffer, size_t count, ompi_datatype_t* datatype, ompi_message_t** message,
               ompi_request_t** request);
int pml_mrecv(void* buffer, size_t count, ompi_datatype_t* datatype, ompi_message_t** message,
              ompi_status_public_t* status);

int pml_iprobe(int src, int tag, ompi_communicator_t* comm, int* matched, ompi_status_public_t* status);
int pml_probe(int src, int tag, ompi_communicator_t* comm, ompi_status_public_t* status);
int pml_improbe(int src, int tag, ompi_communicator_t* comm, int* matched, ompi_message_t** message,
                ompi_status_public_t* status);
int pml_mprobe(int src, int tag, ompi_communicator_t* comm, ompi_message_t** message,
               ompi_status_public_t* status);

int pml_dump(ompi_communicator_t* comm, int verbose);

}  // namespace bfo::glue
