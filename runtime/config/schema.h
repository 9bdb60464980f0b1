#pragma once
// The schema of the configuration, runtime/config/schema/: one place for the names, types, defaults
// and limits of all fields. Messages are read and written by reflection alone, so that no classes
// are compiled for them.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/config/limits.h"
#include "runtime/config/schema/options.pb.h"

namespace lockstep {

// A FileDescriptorSet; generator/ writes it.
extern const char kSchemaBytes[];
extern const size_t kSchemaSize;

// The message RunConfig; lives as long as the program.
const google::protobuf::Descriptor& config_type();

// A RunConfig without any field set.
std::unique_ptr<google::protobuf::Message> new_config_message();

// What the schema says of a field.
const proto::FieldNote& note_of(const google::protobuf::FieldDescriptor& field);

// The limit of an int64, and of a float or double, or of each element of a list of them.
IntegerLimit integer_limit(const google::protobuf::FieldDescriptor& field);
RealLimit real_limit(const google::protobuf::FieldDescriptor& field);

// Whether `message` gives a field of its type a meaning; see When in options.proto.
bool applies(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field);

// When a field with `when` in the section `section` has a meaning: "only with schedule.kind STEP".
std::string when_words(const std::string& section, const google::protobuf::FieldDescriptor& field);

}  // namespace lockstep
