#pragma once
// What reading the text of a config is made of: the places of its characters, other formats, JSON,
// and errors.

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace lockstep::config {

// The text with "\n" at the end of each line and without a byte order mark.
std::string with_plain_lines(std::string_view text);

// Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first character outside of quotes and
// comments that is not ASCII, or for a curly quote in a text whose quotes do not end on its line.
// The text has plain lines.
void refuse_odd_characters(std::string_view text, const std::string& origin);

// "LINE:COLUMN" of an offset, from 1, in bytes.
std::string place_in(std::string_view text, size_t offset);

// Throws ConfigError if the first bytes show that a file is no text, or not in UTF-8.
void refuse_binary_config(std::string_view text, const std::string& origin);

// What a text is that could not be read with that error, with the remedy: "x.yaml: is YAML, ...".
// Empty if it looks like protobuf text format or JSON.
std::string name_other_format(std::string_view text,
                              const std::string& origin,
                              std::string_view error);

// Reads a JSON object as a RunConfig, in protobuf's JSON mapping: sections are objects, names are
// the schema's or in lowerCamelCase, enums are their names as text, null is a field's default, and
// numbers may be in quotes. Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first error, with
// the field's path and what is allowed. The text has plain lines.
void read_json_config(std::string_view text,
                      const std::string& origin,
                      google::protobuf::Message* config);

// Rewrites an error of protobuf's text parser as "LINE:COLUMN: ...", counted from 1, in bytes,
// pointing at the offending name or value, with the field and what is allowed if they are known.
// `line` and `column` are the parser's: they count from 0, and a tab moves the column to a multiple
// of 8. `root`: the message that the text should have been.
std::string describe_text_error(std::string_view text,
                                int line,
                                int column,
                                const std::string& message,
                                const google::protobuf::Descriptor& root);

}  // namespace lockstep::config
