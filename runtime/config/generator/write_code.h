#pragma once
// Generates C++ from the schema of the configuration. Each function returns the text of a file.
// `root` is the message of a whole file, which check_schema() has accepted.

#include <google/protobuf/descriptor.h>

#include <string>

namespace lockstep::config {

// Plain structs and enums, with defaults and comments. A section becomes a struct, a oneof a
// std::variant of its members in order, and an enum value GELU_TANH becomes kGeluTanh.
std::string write_structs(const google::protobuf::Descriptor& root);

// For each struct, a function that passes every field and its name in the schema to a visitor.
// `structs` is the header that has the structs.
std::string write_visits(const google::protobuf::Descriptor& root, const std::string& structs);

// The bytes of `schema` as a constant.
std::string write_bytes(const std::string& schema);

}  // namespace lockstep::config
