#pragma once
// What an implementation sees of an op. Light: files of kernels read it.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/graph/attributes.h"
#include "runtime/graph/lane_context.h"
#include "runtime/graph/op_kind.h"
#include "runtime/graph/tensor_id.h"

namespace lockstep {

struct Graph;
struct Op;

// What statistics and gradients of parameters are stored in where tensors store T: floats, and
// doubles in the references of the tests.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

class OpCall {
 public:
  // An op that is planned, or asked about on `device`: all pointers are null.
  OpCall(const Graph& graph, const Op& op, void* device = nullptr)
      : graph_(graph), op_(op), device_(device) {}
  // An op that runs. tensors: by id; all is borrowed.
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
        lane_(&lane),
        device_(device) {}

  OpKind kind() const;
  // Input or output by its place in the op; null where it is absent.
  template <typename T>
  const T* input(size_t place) const {
    return reinterpret_cast<const T*>(pointer(input_id(place)));
  }
  template <typename T>
  T* output(size_t place) const {
    return reinterpret_cast<T*>(pointer(output_id(place)));
  }
  bool has_input(size_t place) const { return input_id(place) != kNoTensor; }
  bool has_output(size_t place) const { return output_id(place) != kNoTensor; }
  const Shape& input_shape(size_t place) const;
  const Shape& output_shape(size_t place) const;
  DType input_dtype(size_t place) const;
  DType output_dtype(size_t place) const;
  // Elements from row to row.
  int64_t input_stride(size_t place) const;
  int64_t output_stride(size_t place) const;
  template <typename T>
  const T& attributes() const {
    return all_attributes().as<T>();
  }
  // As long as workspace_bytes() asked for, 64-byte aligned; null for none.
  template <typename T = std::byte>
  T* workspace() const {
    return reinterpret_cast<T*>(workspace_);
  }
  // Of an op that runs.
  const LaneContext& lane() const { return *lane_; }
  // The backend's launch_context().
  template <typename T>
  T& device() const {
    return *static_cast<T*>(device_);
  }
  bool training() const;
  // Whether floats are multiplied as three bfloat16 numbers: see Graph.
  bool bf16x3() const;

 private:
  TensorId input_id(size_t place) const;
  TensorId output_id(size_t place) const;
  const Attributes& all_attributes() const;
  std::byte* pointer(TensorId id) const {
    return id == kNoTensor || tensors_ == nullptr ? nullptr : tensors_[id];
  }

  const Graph& graph_;
  const Op& op_;
  std::byte* const* tensors_ = nullptr;
  std::byte* workspace_ = nullptr;
  const LaneContext* lane_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace lockstep
