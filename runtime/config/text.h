#pragma once
// Conversion between texts and the messages of configs and hardware files.

#include <google/protobuf/message.h>

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::config {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Parses `text` as a RunConfig: JSON if it begins with a brace, otherwise protobuf text format.
// Lines may end as on any system. Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first error.
// For an unknown field or enum value, or a value of the wrong type, the message lists what is
// allowed. Rejects text above kMaxConfigBytes, nesting deeper than 100, and characters that are not
// ASCII outside of quotes and comments. A text of another format is named as what it is.
std::unique_ptr<google::protobuf::Message> parse_text(const std::string& text,
                                                      const std::string& origin);

// The same for a hardware file, in protobuf text format alone.
std::unique_ptr<google::protobuf::Message> parse_hardware_text(const std::string& text,
                                                               const std::string& origin);

// Text that parse_text() or parse_hardware_text() reads back as an equal message, floats included.
std::string print_text(const google::protobuf::Message& message);

// The same for `all`, but a line whose field `given`, of the same type, does not set ends in "#
// default".
std::string print_with_origins(const google::protobuf::Message& all,
                               const google::protobuf::Message& given);

}  // namespace lockstep::config
