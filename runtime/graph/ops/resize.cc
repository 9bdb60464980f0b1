#include "runtime/graph/ops/resize.h"

#include <algorithm>
#include <bit>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

TensorId reads_table(GraphBuilder& builder, const std::string& name, const ResizeAxis& axis) {
  std::vector<int32_t> table;
  for (const ResizeAxis::Read& read : axis.reads) {
    table.push_back(static_cast<int32_t>(read.first));
    table.push_back(static_cast<int32_t>(read.second));
    table.push_back(std::bit_cast<int32_t>(read.weight));
  }
  return builder.constant(name, {static_cast<int64_t>(axis.reads.size()), 3}, table);
}

// The outputs that read each index; the range is empty if there are none.
TensorId readers_table(GraphBuilder& builder,
                       const std::string& name,
                       const ResizeAxis& axis,
                       int64_t extent) {
  std::vector<int32_t> table(static_cast<size_t>(2 * extent), 0);
  for (size_t i = 0; i < axis.reads.size(); ++i) {
    const ResizeAxis::Read& read = axis.reads[i];
    const bool is_ascending = i == 0 || (axis.reads[i - 1].first <= read.first &&
                                         axis.reads[i - 1].second <= read.second);
    LOCKSTEP_CHECK(
        is_ascending && read.first >= 0 && read.first <= read.second && read.second < extent,
        "{}: output {} reads {} and {} of {} ",
        name,
        i,
        read.first,
        read.second,
        extent);
    for (const int64_t index : {read.first, read.second}) {
      int32_t* const readers = table.data() + 2 * index;
      if (readers[1] == 0) readers[0] = static_cast<int32_t>(i);
      readers[1] = static_cast<int32_t>(i) + 1;
    }
  }
  return builder.constant(name, {extent, 2}, table);
}

}  // namespace

TensorId ops::resize(GraphBuilder& builder,
                     const std::string& name,
                     TensorId x,
                     const ResizeAxis& down,
                     const ResizeAxis& across) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4 && !down.reads.empty() && !across.reads.empty(),
                 "{}: x {} ",
                 name,
                 to_string(shape));
  const std::vector<TensorId> inputs = {
      x,
      reads_table(builder, name + ".reads_down", down),
      reads_table(builder, name + ".reads_across", across),
      readers_table(builder, name + ".readers_down", down, shape[1]),
      readers_table(builder, name + ".readers_across", across, shape[2])};
  const auto height = static_cast<int64_t>(down.reads.size());
  const auto width = static_cast<int64_t>(across.reads.size());
  const TensorId y = builder.activation_tensor(name, {shape[0], height, width, shape[3]});
  builder.append({OpKind::kResize, name, inputs, {y}, {}});
  return y;
}

namespace {

OpInputs resize_gradient(GradientBuilder& builder, const Op& op, const OpOutputs& d_outputs) {
  OpInputs inputs = op.inputs;
  inputs[ResizeIn::kDY] = d_outputs[ResizeOut::kY];
  return first_input_gradient(builder, op, OpKind::kResizeBackward, std::move(inputs));
}

// Four taps per pixel of the larger image.
int64_t resize_flops(const Graph& graph, const Op& op) {
  return 8 * std::max(graph.shape(op.inputs[ResizeIn::kX]).elements(),
                      graph.shape(op.outputs[ResizeOut::kY]).elements());
}

}  // namespace

const OpSchema kResizeSchema = {resize_gradient, resize_flops, {}};
const OpSchema kResizeBackwardSchema = {nullptr, resize_flops, {}};

}  // namespace lockstep::graph
