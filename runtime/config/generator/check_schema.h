#pragma once

#include <google/protobuf/descriptor.h>

namespace lockstep::config {

// Checks that the fields of `root` and of the messages below it have the notes that options.proto
// asks for, and none that have no meaning there. Throws std::runtime_error: "MESSAGE.FIELD: what is
// wrong".
void check_schema(const google::protobuf::Descriptor& root);

}  // namespace lockstep::config
