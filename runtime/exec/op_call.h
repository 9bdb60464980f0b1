#pragma once
// What a launcher sees of an op that it is to run: pointers, shapes, attributes and the lane.

#include <cstddef>
#include <cstdint>

#include "runtime/exec/lane_context.h"
#include "runtime/graph/graph.h"

namespace lockstep {

class OpCall {
 public:
  OpCall(const Graph& graph,
         const Op& op,
         std::byte* const* tensors,
         std::byte* workspace,
         const LaneContext& lane,
         void* device)
      : graph_(graph),
        op_(op),
        tensors_(tensors),
        workspace_(workspace),
        lane_(lane),
        device_(device) {}

  // Input or output by its place in the op; null where it is absent.
  template <typename T>
  const T* input(size_t place) const {
    return pointer<const T>(op_.inputs, place);
  }
  template <typename T>
  T* output(size_t place) const {
    return pointer<T>(op_.outputs, place);
  }
  const Shape& input_shape(size_t place) const { return graph_.shape(op_.inputs[place]); }
  const Shape& output_shape(size_t place) const { return graph_.shape(op_.outputs[place]); }
  template <typename T>
  const T& attributes() const {
    return op_.as<T>();
  }
  std::byte* workspace() const {
    return workspace_;
  }  // as long as workspace_bytes() asked for, 64-byte aligned
  DType input_dtype(size_t place) const { return graph_[op_.inputs[place]].dtype; }
  DType output_dtype(size_t place) const { return graph_[op_.outputs[place]].dtype; }
  // Elements from row to row of an input.
  int64_t input_stride(size_t place) const { return graph_[op_.inputs[place]].row_stride(); }
  int64_t output_stride(size_t place) const { return graph_[op_.outputs[place]].row_stride(); }
  const LaneContext& lane() const { return lane_; }
  // The backend's launch_context().
  template <typename T>
  T& device() const {
    return *static_cast<T*>(device_);
  }
  bool training() const { return graph_.purpose == Purpose::kTraining; }

 private:
  template <typename T>
  T* pointer(const std::vector<TensorId>& ids, size_t place) const {
    if (place >= ids.size() || ids[place] == kNoTensor) return nullptr;
    return reinterpret_cast<T*>(tensors_[ids[place]]);
  }
  const Graph& graph_;
  const Op& op_;
  std::byte* const* tensors_;
  std::byte* workspace_;
  const LaneContext& lane_;
  void* device_;
};

}  // namespace lockstep
