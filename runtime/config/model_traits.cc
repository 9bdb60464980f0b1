#include "runtime/config/model_traits.h"

#include "runtime/base/text.h"
#include "runtime/config/limits.h"

namespace lockstep::config {

std::string ModelTraits::describe_count(const char* field_name,
                                        int64_t count,
                                        const char* what) const {
  return file.empty() ? fmt::format("{} is {}", field(field_name), count)
                      : fmt::format("{} ({}) has {} {}{}",
                                    in_quotes(file),
                                    field("file"),
                                    count,
                                    what,
                                    plural(count));
}

void ModelTraits::refuse(const char* field_name,
                         int64_t count,
                         const char* what,
                         const std::string& open,
                         const std::string& allowed) const {
  if (file.empty()) refuse_value(field(field_name), count, open + allowed);
  throw ConfigError("{}; allowed: {}", describe_count(field_name, count, what), allowed);
}

}  // namespace lockstep::config
