#pragma once
// Sets fields of a config's message from words, as on the command line or in JSON.

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace lockstep::config {

// Sets a field that is neither a list nor a section. Text is taken literally, and an enum
// is matched as by find_enum_value(). `path` names the field in errors. Throws ConfigError.
void set_field(const std::string& path,
               std::string_view text,
               const google::protobuf::FieldDescriptor& field,
               google::protobuf::Message* message);

// The value with this name, in any case, or this number if its name ends with the number: 2 for
// STAGE_2. Null if there is none.
const google::protobuf::EnumValueDescriptor* find_enum_value(
    const google::protobuf::EnumDescriptor& type, std::string_view text);

// Appends an element to a list of numbers or texts. Throws ConfigError.
void add_element(const std::string& path,
                 std::string_view text,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message* message);

}  // namespace lockstep::config
