#pragma once
// Conversion between protobuf text format and the message of a config.

#include <google/protobuf/message.h>

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Parses `text` as a RunConfig. Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first error.
// For an unknown field or enum value, or a value of the wrong type, the message lists what is
// allowed. Rejects text above kMaxConfigBytes and nesting deeper than 100.
std::unique_ptr<google::protobuf::Message> parse_text(const std::string& text,
                                                      const std::string& origin);

// Text that parse_text() reads back as an equal message, floats included.
std::string print_text(const google::protobuf::Message& message);

// The same for `all`, but a line whose field `given`, of the same type, does not set ends in "#
// default".
std::string print_with_origins(const google::protobuf::Message& all,
                               const google::protobuf::Message& given);

}  // namespace lockstep
