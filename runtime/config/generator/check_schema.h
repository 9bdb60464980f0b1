#pragma once

#include <google/protobuf/descriptor.h>

namespace lockstep {

// Checks that `root` and the messages below it say of each field what options.proto asks for, and
// nothing that has no meaning there. Throws std::runtime_error: "MESSAGE.FIELD: what is wrong".
void check_schema(const google::protobuf::Descriptor& root);

}  // namespace lockstep
