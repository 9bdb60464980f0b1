#pragma once
// Converts between messages of the schema and the structs that are generated from it.

#include <google/protobuf/message.h>

#include <memory>

#include "runtime/config/hardware_structs.h"
#include "runtime/config/run_config.h"

namespace lockstep::config {

// Converts `message`, a RunConfig, to the structs. Fields that are not set get their defaults.
// Throws ConfigError for a value outside its limit, for a field that is set but does not apply, and
// for a missing model, data source, optimizer or file. Relations between fields are checked by
// validate().
RunConfig from_proto(const google::protobuf::Message& message);

// Which of the sections with presence IF_CHANGED are written.
enum class Sections { kChanged, kAll };

// A RunConfig message with every field of `config` that applies, so that from_proto() returns an
// equal config. Does not validate.
std::unique_ptr<google::protobuf::Message> to_proto(const RunConfig& config,
                                                    Sections sections = Sections::kChanged);

// The same for a hardware file. Its figures are checked one by one, as from_proto() does.
Hardware hardware_from_proto(const google::protobuf::Message& message);
std::unique_ptr<google::protobuf::Message> hardware_to_proto(const Hardware& hardware);

}  // namespace lockstep::config
