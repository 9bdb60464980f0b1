#pragma once
// Files that people give as a config and that are in another format.

#include <string>
#include <string_view>

namespace lockstep::config {

// Throws ConfigError if the first bytes show that a file is no text, or not in UTF-8.
void refuse_binary_config(std::string_view text, const std::string& origin);

// What a text is that could not be read with that error, with the remedy: "x.yaml: is YAML, ...".
// Empty if it looks like protobuf text format or JSON.
std::string name_other_format(std::string_view text,
                              const std::string& origin,
                              std::string_view error);

}  // namespace lockstep::config
