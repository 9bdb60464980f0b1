#include "models/onnx/write/additions.h"

#include "models/onnx/schema/onnx.pb.h"

namespace lockstep::onnx {
namespace {

using Entry = schema::StringStringEntryProto;
using Opset = schema::OperatorSetIdProto;

constexpr uint32_t kMetadata = 14;  // of a model

bool has_name_in(const WireField& field, const std::set<std::string>& names) {
  return names.count(text_of(field.value, schema::ValueInfoProto::kNameFieldNumber)) > 0;
}

}  // namespace

bool leaves_out_of_model(const Additions& additions, const WireField& field) {
  if (field.type != WireType::kBytes) return false;
  if (field.number == schema::ModelProto::kOpsetImportFieldNumber)
    return additions.opsets.count(text_of(field.value, Opset::kDomainFieldNumber)) > 0;
  return field.number == kMetadata &&
         additions.metadata.count(text_of(field.value, Entry::kKeyFieldNumber)) > 0;
}

bool leaves_out_of_graph(const Additions& additions, const WireField& field) {
  if (field.type != WireType::kBytes) return false;
  if (field.number == schema::GraphProto::kInputFieldNumber)
    return has_name_in(field, additions.inner_inputs);
  if (field.number == schema::GraphProto::kOutputFieldNumber)
    return has_name_in(field, additions.inner_outputs);
  return false;
}

std::string fields_of_model(const Additions& additions) {
  std::string fields;
  for (const auto& [domain, version] : additions.opsets) {
    Opset opset;
    opset.set_domain(domain);
    opset.set_version(version);
    fields += bytes_field(schema::ModelProto::kOpsetImportFieldNumber, opset.SerializeAsString());
  }
  for (const auto& [key, value] : additions.metadata)
    fields += bytes_field(
        kMetadata,
        bytes_field(Entry::kKeyFieldNumber, key) + bytes_field(Entry::kValueFieldNumber, value));
  return fields;
}

}  // namespace lockstep::onnx
