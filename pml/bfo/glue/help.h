// SPDX-License-Identifier: BSD-3-Clause
//
// help.h: the texts of help-mpi-pml-bfo.txt, printed by this process itself.
#pragma once

namespace bfo::glue {

/// Prints the text `topic` with its arguments (printf) on standard error, framed. Not by opal_show_help: that
/// of 4.1 hands a text to mpirun, which loses one now and then, and these are the last words of a job; that
/// of 6.0 has no texts but Open MPI's own.
void show_help(const char* topic, ...);

}  // namespace bfo::glue
