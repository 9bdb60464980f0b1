#pragma once

#include <google/protobuf/message.h>

#include "runtime/config/run_config.h"

namespace lockstep::config {

// Converts `message`, a RunConfig, to the structs. Fields that are not set get their defaults.
// Throws ConfigError for a value outside its limit, for a field that is set but does not apply, and
// for a missing model, data source, optimizer or file. Relations between fields are checked by
// validate().
RunConfig from_proto(const google::protobuf::Message& message);

}  // namespace lockstep::config
