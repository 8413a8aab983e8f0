// SPDX-License-Identifier: BSD-3-Clause
//
// help.h: the texts of help-mpi-pml-bfo.txt, printed by this process itself.
#pragma once

namespace bfo::glue {

/// Prints the text `topic` with its arguments (printf) on standard error, framed. Not through opal_show_help:
/// mpirun of Open MPI 4.1 loses relayed texts now and then, and these are the last words of a job.
void show_help(const char* topic, ...);

}  // namespace bfo::glue
