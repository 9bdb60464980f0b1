#pragma once

#include <google/protobuf/message.h>

#include <memory>

#include "runtime/config/run_config.h"

namespace lockstep::config {

// Which of the sections with presence IF_CHANGED are written.
enum class Sections { kChanged, kAll };

// A RunConfig message with every field of `config` that applies, so that from_proto() returns an
// equal config. Does not validate.
std::unique_ptr<google::protobuf::Message> to_proto(const RunConfig& config,
                                                    Sections sections = Sections::kChanged);

}  // namespace lockstep::config
