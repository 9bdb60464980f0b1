#include "runtime/base/table_names.h"

#include "runtime/base/names.h"

namespace lockstep {
namespace {

// An ending, and how files of its kind begin.
struct Ending {
  std::string_view ending, begin;
};
constexpr Ending kEndings[] = {{".parquet", "PAR1"},
                               {".parq", "PAR1"},
                               {".arrow", "ARROW1"},
                               {".feather", "ARROW1"},
                               {".orc", "ORC\n"},
                               {".h5", "\x89HDF\r\n\x1a\n"},
                               {".hdf5", "\x89HDF\r\n\x1a\n"},
                               {".xls", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"},
                               {".xlsx", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"}};

}  // namespace

std::string conversion_by_name(std::string_view path, TableForm form) {
  for (const Ending& known : kEndings)
    if (has_suffix(path, known.ending))
      return "; " + conversion_of_table(file_kind(known.begin).table, form);
  return "";
}

}  // namespace lockstep
