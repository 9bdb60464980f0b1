#pragma once
// Protobuf text format <-> the message of a config.

#include <google/protobuf/message.h>

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

inline constexpr size_t kMostConfigBytes = size_t{1} << 20;

// The RunConfig that `text` describes. Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first error; an unknown field
// or enum value, and a value of the wrong type, say what is allowed. Refuses text above
// kMostConfigBytes and nesting deeper than 100.
std::unique_ptr<google::protobuf::Message> parse_text(const std::string& text,
                                                      const std::string& origin);

// Text that parse_text reads back to an equal message, floats included.
std::string print_text(const google::protobuf::Message& message);

// The same of `all`; a line whose field `given`, of the same type, does not set ends in a comment
// that it is the default.
std::string print_with_origins(const google::protobuf::Message& all,
                               const google::protobuf::Message& given);

}  // namespace lockstep
