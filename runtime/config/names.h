#pragma once
// Names of the schema's fields and enum values, for messages that list allowed values.

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/schema.h"

namespace lockstep::config {

// A field of the schema with its path from the root: "model.gpt.width".
struct SchemaField {
  std::string path;
  const google::protobuf::FieldDescriptor* field;
};

// Every field below a root of the schema, including sections, in schema order.
const std::vector<SchemaField>& schema_fields(
    const google::protobuf::Descriptor& root = config_type());

// The field at `path`; null if there is none.
const google::protobuf::FieldDescriptor* find_field(std::string_view path);

// All fields with this name, anywhere below the root.
std::vector<SchemaField> schema_fields_named(
    std::string_view name, const google::protobuf::Descriptor& root = config_type());

// The path of the section with this message type: "model.gpt", "the config".
std::string section_name(const google::protobuf::Descriptor& type);

// The names of a message's fields: "layers, heads, width".
std::string field_names(const google::protobuf::Descriptor& type);

// The type of a field in words: "a whole number", "one of FAIL, SKIP, REPLACE".
std::string describe_type(const google::protobuf::FieldDescriptor& field);

// How many letters differ, are missing or are swapped with their neighbour; the case is ignored.
size_t edit_distance(std::string_view a, std::string_view b);

// " did you mean 'width'?" if one of `candidates` is similar to `name`, otherwise "".
std::string suggestion(std::string_view name, const std::vector<std::string>& candidates);

// "unknown field 'widht' in model.gpt; did you mean 'width'? allowed: layers, heads, ..."
// `in_text`: the name stands in the text of a config, where a bracket may be missing before it.
std::string unknown_field_message(const google::protobuf::Descriptor& type,
                                  std::string_view name,
                                  bool in_text = true);

// "value is 'COSIN'; did you mean 'COSINE'? allowed: one of CONSTANT, LINEAR, ..."
std::string unknown_enum_message(const google::protobuf::FieldDescriptor& field,
                                 std::string_view value);

}  // namespace lockstep::config
