#include "models/onnx/nodes/lowering/parameters.h"

#include "models/onnx/nodes/lowering/layouts.h"
#include "models/onnx/read/constants.h"
#include "runtime/base/error.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// Initialises a parameter with the file's elements, which are read only when they are needed.
lockstep::graph::Initializer given(const Value& value, Storage storage) {
  return {.kind = lockstep::graph::Initializer::Kind::kGiven,
          .elements = [value, storage] { return elements_of(value, storage); }};
}

}  // namespace

TensorId Parameters::get(int number, Storage storage) {
  const Value& origin = value(number);
  if (!can_have(number, storage))
    throw ConfigError("parameter \"{}\": the nodes that use it need different layouts of it",
                      origin.name);
  const auto found = index_of_.find(number);
  if (found != index_of_.end()) return all_[found->second].tensor;
  const bool decays = origin.extents.size() > 1;
  return add(number,
             storage,
             builder_.parameter(
                 origin.name, stored_shape(origin, storage), given(origin, storage), decays));
}

bool Parameters::can_have(int number, Storage storage) const {
  const auto found = index_of_.find(number);
  return found == index_of_.end() ||
         (all_[found->second].storage == storage && !unshared_.contains(number));
}

TensorId Parameters::unshared(int number) {
  unshared_.insert(number);
  return get(number);
}

TensorId Parameters::running_statistic(const Node& node, int number, float momentum) {
  const Value& origin = value(number);
  if (origin.kind == ValueKind::kComputed || origin.kind == ValueKind::kInput)
    refuse(node, "\"{}\" is computed; must be a constant of the file", origin.name);
  if (index_of_.contains(number))
    refuse(node,
           "shares the statistic \"{}\" with another node. Exporters merge statistics that "
           "start out equal; export with torch.onnx.export(..., dynamo=True, "
           "optimize=False)",
           origin.name);
  const TensorId tensor = builder_.running_statistic(origin.name, shape_of(origin), 0, momentum);
  builder_[tensor].initializer = given(origin, Storage::kAsInFile);
  return add(number, Storage::kAsInFile, tensor);
}

TensorId Parameters::add(int number, Storage storage, TensorId tensor) {
  index_of_[number] = all_.size();
  all_.push_back({tensor, number, storage});
  return tensor;
}

TensorId Parameters::copy_of(ParameterSource source, const std::string& name) {
  const auto found = index_of_.find(source.value);
  const Storage storage =
      found == index_of_.end() ? Storage::kAsInFile : all_[found->second].storage;
  const TensorId stored = get(source.value, storage);
  if (storage == Storage::kKernel) {
    const Shape order = kernel_order(value(source.value));
    const TensorId kernel = shaped(builder_, name + ".kernel", stored, order);
    const bool deep = order.rank() == 5;
    return ops::transpose(
        builder_,
        name,
        kernel,
        deep ? std::vector<int>{0, 4, 3, 1, 2} : from_channels_last(order.rank()));
  }
  return (storage == Storage::kTransposed) != source.transposed
             ? ops::transpose(builder_, name, stored, {1, 0})
             : ops::copy_parameter(builder_, name, stored);
}

}  // namespace lockstep::onnx
