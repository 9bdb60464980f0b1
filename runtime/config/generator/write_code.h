#pragma once
// The C++ that the schema of the configuration becomes. Each function returns the text of a whole
// file; `root` is the message of the whole configuration, checked by check_schema().

#include <google/protobuf/descriptor.h>

#include <string>

namespace lockstep {

// Plain structs and enums, with defaults and comments: a section is a struct, a oneof a
// std::variant of its members in their order, an enum value GELU_TANH is kGeluTanh.
std::string write_structs(const google::protobuf::Descriptor& root);

// For each struct a function that shows a visitor every field and its name in the schema.
std::string write_visits(const google::protobuf::Descriptor& root);

// The bytes of `schema` as a constant.
std::string write_bytes(const std::string& schema);

}  // namespace lockstep
