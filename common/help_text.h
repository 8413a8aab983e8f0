// SPDX-License-Identifier: BSD-3-Clause
//
// help_text.h: what users are told in more than a line. The texts lie in a file beside each component.
// They are read here, the same way with every release: the opal_show_help of Open MPI 6.0 reads no file, and
// has the texts only that it was compiled with.
#pragma once

#include <cstdarg>
#include <string>

namespace bfo {

/// The path of `file` beside the shared object that this code is in, wherever that was loaded from.
std::string help_path(const char* file);

/// The text `topic` of the help file `path` with its arguments (printf), between two lines of dashes. The
/// file is of the build that calls, like its code: the arguments must be those the text asks for. A topic
/// begins with a line that is its name in brackets, and ends before the next one; lines that begin with # are
/// comments. Where there is no such text, a line that says what is missing. Any thread.
std::string help_text(const std::string& path, const char* topic, va_list arguments);

}  // namespace bfo
