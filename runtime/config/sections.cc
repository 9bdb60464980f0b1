#include "runtime/config/sections.h"

#include "runtime/base/error.h"
#include "runtime/config/run_config.pb.h"

namespace lockstep {
namespace {

// Variants have their alternatives in the order of the members of the oneof.
template <typename Variant>
std::string member_of(const google::protobuf::OneofDescriptor& oneof, const Variant& variant) {
  LOCKSTEP_CHECK(oneof.field_count() == std::variant_size_v<Variant>);
  return oneof.field(static_cast<int>(variant.index()))->name();
}

}  // namespace

std::string section_of(const ModelConfig& model) {
  return member_of(*proto::ModelConfig::descriptor()->oneof_decl(0), model);
}

std::string section_of_source(const DataConfig& data) {
  return "data." +
         member_of(*proto::DataConfig::descriptor()->FindOneofByName("source"), data.source);
}

std::string name_of(Activation activation) {
  return proto::Activation_Name(static_cast<proto::Activation>(activation));
}

}  // namespace lockstep
