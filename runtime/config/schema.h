#pragma once
// The schema of the configuration and of hardware files, runtime/config/schema/: the single source
// for names, types, defaults and limits of all fields. Messages are read and written by reflection,
// so no classes are compiled for them.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/config/limits.h"
#include "runtime/config/schema/options.pb.h"

namespace lockstep::config {

// A serialised FileDescriptorSet, which generator/ writes.
extern const char kSchemaBytes[];
extern const size_t kSchemaSize;

// The message RunConfig. It lives as long as the program.
const google::protobuf::Descriptor& config_type();

// The message Hardware.
const google::protobuf::Descriptor& hardware_type();

// The one of the two above that has `type` below it, or is it.
const google::protobuf::Descriptor& root_of(const google::protobuf::Descriptor& type);

// A message of this type, one of the two above, without any field set.
std::unique_ptr<google::protobuf::Message> new_message(
    const google::protobuf::Descriptor& root = config_type());

// The schema's note on a field.
const proto::FieldNote& note_of(const google::protobuf::FieldDescriptor& field);

// The limit of an int64, or of a float or double; for a list, of each element.
IntegerLimit integer_limit(const google::protobuf::FieldDescriptor& field);
RealLimit real_limit(const google::protobuf::FieldDescriptor& field);

// Whether the field has a meaning in `message`, given its other fields; see When in options.proto.
bool applies(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field);

// "required with schedule.kind EXPONENTIAL" if `message`, the section `section`, must have the
// field and lacks it; else empty.
std::string required_words(const google::protobuf::Message& message,
                           const std::string& section,
                           const google::protobuf::FieldDescriptor& field);

// The condition under which a field with `when` in the section `section` applies: "only with
// schedule.kind STEP".
std::string when_words(const std::string& section, const google::protobuf::FieldDescriptor& field);

}  // namespace lockstep::config
