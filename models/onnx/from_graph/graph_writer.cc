#include "models/onnx/from_graph/graph_writer.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "models/onnx/read/declared.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/transpose.h"
#include "runtime/graph/op_kind.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kIrVersion = 8;  // of opset 17
constexpr const char* kOutput = "output";

// A parameter's elements in the order of files, where images have their channels first. Elements
// that need no other order are borrowed.
Array in_order_of_files(const graph::Tensor& parameter, const float* elements) {
  const Shape& order = parameter.channels_last;
  const Shape& shape = parameter.shape;
  Extents extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  const auto borrowed = [](const float* data) {
    return std::shared_ptr<const std::byte>(std::shared_ptr<const std::byte>(),
                                            reinterpret_cast<const std::byte*>(data));
  };
  if (order.rank() == 0) return {ElementType::kFloat, std::move(extents), borrowed(elements)};
  LOCKSTEP_CHECK(order.rank() == 4, "{}: channels last ", parameter.name);
  const int64_t pixels = order[1] * order[2], channels = order[3];
  if (shape.rank() == 4) extents = {order[0], channels, order[1], order[2]};
  NewArray array = make_array(ElementType::kFloat, std::move(extents));
  auto* const to = reinterpret_cast<float*>(array.data);
  for (int64_t o = 0; o < order[0]; ++o) {
    const int64_t first = o * pixels * channels;
    transpose(elements + first, channels, pixels, to + first);
  }
  return std::move(array.array);
}

void set_attribute(schema::AttributeProto& to, const NodeAttribute& attribute) {
  to.set_name(attribute.name);
  if (const auto* const integer = std::get_if<int64_t>(&attribute.value)) {
    to.set_type(schema::AttributeProto::INT);
    to.set_i(*integer);
  } else if (const auto* const number = std::get_if<float>(&attribute.value)) {
    to.set_type(schema::AttributeProto::FLOAT);
    to.set_f(*number);
  } else {
    to.set_type(schema::AttributeProto::INTS);
    for (const int64_t element : std::get<std::vector<int64_t>>(attribute.value))
      to.add_ints(element);
  }
}

}  // namespace

GraphWriter::GraphWriter(const ProbedGraph& network, const TrainedElements& elements)
    : network_(network), trained_(elements), model_(std::make_unique<schema::ModelProto>()) {
  model_->set_ir_version(kIrVersion);
  model_->set_producer_name("lockstep");
  model_->add_opset_import()->set_version(kWrittenOpset);
  model_->mutable_opset_import(0)->set_domain("");
  // Features and tokens are inputs of the file, too. Pixels and texts are read by an op of their
  // own, which adds the inputs.
  const TensorId id = graph().inputs[graph::GraphIn::kInput];
  const graph::Tensor& given = graph()[id];
  if (given.shape.rank() != 2) return;
  if (given.dtype == DType::kF32)
    set(id, input("features", schema::TensorProto::FLOAT, id, {0, 1}));
  else if (given.dtype == DType::kI32)
    set(id, input("input_ids", schema::TensorProto::INT64, id, {0, 1}));
}

GraphWriter::~GraphWriter() = default;

const char* GraphWriter::open_axis(TensorId tensor, int dimension) const {
  const int64_t extent = shape(tensor)[dimension], other = network_.other.shape(tensor)[dimension];
  if (extent == other) return nullptr;
  if (extent == network_.samples && other == network_.other_samples) return kBatch;
  if (extent == network_.tokens && other == network_.other_tokens) return kSequence;
  refuse(fmt::format("an axis of {} that depends on the number of samples", graph()[tensor].name));
}

void GraphWriter::refuse(const std::string& what) const {
  throw ConfigError(
      "op {} \"{}\": {} cannot be written as ONNX; --format safetensors writes the weights",
      op_ == nullptr ? "" : graph::name_of(op_->kind),
      op_ == nullptr ? "" : op_->name,
      what);
}

std::string GraphWriter::unused_name(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

std::string GraphWriter::node(const char* type,
                              const Names& inputs,
                              const std::vector<NodeAttribute>& attributes) {
  schema::NodeProto& node = *model_->mutable_graph()->add_node();
  node.set_op_type(type);
  node.set_name(unused_name(op_ == nullptr ? type : fmt::format("{}/{}", op_->name, type)));
  for (const std::string& name : inputs) node.add_input(name);
  node.add_output(node.name());
  for (const NodeAttribute& attribute : attributes) set_attribute(*node.add_attribute(), attribute);
  return node.name();
}

Names GraphWriter::split(const std::string& x, int64_t axis, const std::vector<int64_t>& extents) {
  const std::string first = node("Split", {x, integers(extents)}, {{"axis", axis}});
  Names parts = {first};
  schema::GraphProto& graph = *model_->mutable_graph();
  schema::NodeProto& node = *graph.mutable_node(graph.node_size() - 1);
  for (size_t i = 1; i < extents.size(); ++i) {
    parts.push_back(unused_name(first));
    node.add_output(parts.back());
  }
  return parts;
}

void GraphWriter::add_initializer(const std::string& name, Array array, const char* kind) {
  schema::TensorProto& tensor = *model_->mutable_graph()->add_initializer();
  tensor.set_name(name);
  const bool floats = array.type == ElementType::kFloat;
  tensor.set_data_type(floats ? schema::TensorProto::FLOAT : schema::TensorProto::INT64);
  for (const int64_t extent : array.extents) tensor.add_dims(extent);
  tensor.set_raw_data("");
  if (floats) {
    schema::StringStringEntryProto& entry = *tensor.add_metadata_props();
    entry.set_key(kDeclaredKind);
    entry.set_value(kind);
  }
  elements_[name] = std::move(array);
}

std::string GraphWriter::constant(const std::string& key, Array array) {
  return shared(key, [&] {
    const std::string name = unused_name("constant");
    add_initializer(name, std::move(array), kDeclaredConstant);
    return name;
  });
}

std::string GraphWriter::integer(int64_t value) {
  return constant(fmt::format("integer {}", value), array_of_int64({}, {value}));
}

std::string GraphWriter::integers(const std::vector<int64_t>& list) {
  return constant(fmt::format("integers {}", to_string(list)), list_of(list));
}

std::string GraphWriter::number(double value) {
  return constant(fmt::format("number {}", value), array_of(ElementType::kFloat, {}, {value}));
}

std::string GraphWriter::numbers(const Extents& extents, const std::vector<float>& elements) {
  NewArray array = make_array(ElementType::kFloat, extents);
  std::memcpy(array.data, elements.data(), elements.size() * sizeof(float));
  const std::string name = unused_name("constant");
  add_initializer(name, std::move(array.array), kDeclaredConstant);
  return name;
}

std::string GraphWriter::shared(const std::string& key, const std::function<std::string()>& make) {
  if (const auto found = shared_.find(key); found != shared_.end()) return found->second;
  return shared_[key] = make();
}

std::string GraphWriter::length(TensorId tensor, int dimension) {
  const char* const axis = open_axis(tensor, dimension);
  if (axis == nullptr) return integers({shape(tensor)[dimension]});
  return shared(fmt::format("length {}", axis), [&] {
    const auto& [value, at] = open_.at(axis);
    return node("Shape", {value}, {{"start", int64_t{at}}, {"end", int64_t{at} + 1}});
  });
}

std::string GraphWriter::positions(TensorId tensor, int dimension) {
  const std::string count = length(tensor, dimension);
  return shared("positions " + count, [&] {
    const std::string scalar = node("Squeeze", {count, integers({0})});
    return node("Range", {integer(0), scalar, integer(1)});
  });
}

void GraphWriter::set_axes(schema::ValueInfoProto& value,
                           int element_type,
                           TensorId tensor,
                           const std::vector<int>& order) const {
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(element_type);
  type.mutable_shape();
  for (const int dimension : order) {
    auto& axis = *type.mutable_shape()->add_dim();
    if (const char* const open = open_axis(tensor, dimension))
      axis.set_dim_param(open);
    else
      axis.set_dim_value(shape(tensor)[dimension]);
  }
}

std::string GraphWriter::input(const std::string& name,
                               int element_type,
                               TensorId tensor,
                               const std::vector<int>& order) {
  schema::ValueInfoProto& value = *model_->mutable_graph()->add_input();
  value.set_name(unused_name(name));
  set_axes(value, element_type, tensor, order);
  for (size_t i = 0; i < order.size(); ++i)
    if (const char* const axis = open_axis(tensor, order[i]))
      open_.try_emplace(axis, value.name(), static_cast<int>(i));
  return value.name();
}

std::string GraphWriter::parameter(TensorId id) {
  const graph::Tensor& tensor = graph()[id];
  const std::string name = unused_name(tensor.name);
  LOCKSTEP_CHECK(name == tensor.name, "{}: two parameters of this name ", name);
  add_initializer(name,
                  in_order_of_files(tensor, trained_(name)),
                  tensor.running_momentum > 0 ? kDeclaredConstant : kDeclaredParameter);
  return plain_[id] = name;
}

std::string GraphWriter::plain(TensorId tensor) {
  if (const auto found = plain_.find(tensor); found != plain_.end()) return found->second;
  if (graph()[tensor].role == graph::Role::kParameter) return parameter(tensor);
  const auto first = first_.find(tensor);
  if (first == first_.end()) refuse(fmt::format("its operand {}", graph()[tensor].name));
  return plain_[tensor] =
             node("Transpose", {first->second}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
}

std::string GraphWriter::channels_first(TensorId tensor) {
  if (is_channels_first(tensor)) return first_.at(tensor);
  return first_[tensor] =
             node("Transpose", {plain(tensor)}, {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
}

bool GraphWriter::is_channels_first(TensorId tensor) const { return first_.contains(tensor); }

void GraphWriter::rename(const std::string& from, const std::string& to) {
  for (schema::NodeProto& node : *model_->mutable_graph()->mutable_node()) {
    std::ranges::replace(*node.mutable_input(), from, to);
    std::ranges::replace(*node.mutable_output(), from, to);
  }
}

const schema::ModelProto& GraphWriter::finish(const std::string& name) {
  const TensorId result = graph().result;
  rename(plain(result), unused_name(kOutput));
  std::vector<int> order;
  for (int i = 0; i < shape(result).rank(); ++i) order.push_back(i);
  schema::GraphProto& graph = *model_->mutable_graph();
  graph.set_name(name);
  graph.add_output()->set_name(kOutput);
  set_axes(*graph.mutable_output(0), schema::TensorProto::FLOAT, result, order);
  return *model_;
}

}  // namespace lockstep::onnx
