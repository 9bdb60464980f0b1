#pragma once
// Tables of other formats by the endings of their names, for files that are not opened.

#include <string>
#include <string_view>

#include "runtime/base/file_kind.h"

namespace lockstep {

// "; to convert it: ..." if the ending is that of a table that pandas reads, such as .parquet;
// otherwise "".
std::string conversion_by_name(std::string_view path, TableForm form);

}  // namespace lockstep
