#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

namespace lockstep::config {

// Replaces each `like` in the notes of the fields by the note that it names. Throws
// std::runtime_error if there is none, or if that has a `like` itself.
void resolve_likes(google::protobuf::FileDescriptorSet* files);

// Checks that the fields of `root` and of the messages below it have the notes that options.proto
// asks for, and none that have no meaning there. Throws std::runtime_error: "MESSAGE.FIELD: what is
// wrong".
void check_schema(const google::protobuf::Descriptor& root);

}  // namespace lockstep::config
