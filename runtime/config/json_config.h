#pragma once
// Reads a config in JSON.

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace lockstep::config {

// Reads a JSON object as a RunConfig, in protobuf's JSON mapping: sections are objects, names are
// the schema's or in lowerCamelCase, enums are their names as text, null is a field's default, and
// numbers may be in quotes. Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first error, with
// the field's path and what is allowed. The text has plain lines.
void read_json_config(std::string_view text,
                      const std::string& origin,
                      google::protobuf::Message* config);

}  // namespace lockstep::config
