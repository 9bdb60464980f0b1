#pragma once
// An op as its implementations see it. Lightweight, because all kernel files include it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/graph/attributes.h"
#include "runtime/graph/lane_context.h"
#include "runtime/graph/op_kind.h"
#include "runtime/graph/operands.h"
#include "runtime/graph/tensor_id.h"

namespace lockstep::graph {

struct Graph;
struct Op;
// For the functions that append ops and their gradients.
class GraphBuilder;
class GradientBuilder;

// The type of statistics and gradients of parameters if tensors store T: float, or double in the
// tests' references.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// An array that an op reads or writes.
struct OperandArray {
  DType dtype;
  int64_t elements;  // with the padding of rows
  std::byte* data;   // null for an op that is being planned
};

// The lanes that a call computes at once: an array of activations has those of each lane, one after
// the other.
struct CallLanes {
  int count = 1;
  int64_t gradient_bytes = 0;  // from a lane's gradient of a parameter to the next one's
};

// A copy, in floats, of an array of 16-bit numbers.
struct FloatCopy {
  const std::byte* of;
  std::byte* floats;
};

class OpCall {
 public:
  // An op that is being planned, or checked for support on `device`: all pointers are null.
  OpCall(const Graph& graph, const Op& op, void* device = nullptr)
      : graph_(graph), op_(op), device_(device) {}
  // An op that runs. tensors: by TensorId; everything is borrowed.
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

  // The same for several lanes.
  OpCall of_lanes(const CallLanes& lanes) const {
    OpCall call = *this;
    call.lanes_ = lanes;
    return call;
  }

  // A call without operands and attributes. The struct of an op's arguments begins with
  // `const OpCall& call = OpCall::none();`, and its other fields are initialised from `call`:
  // Struct{call} unpacks a call. A struct that is made by hand gives all fields but operands, which
  // are null by default. Kernels on a GPU must not use its `call`, which is on the host.
  static const OpCall& none();

  // The same op on copies in floats: arrays of 16-bit numbers count as kF32, and are those of
  // `copies`, which is borrowed.
  OpCall on_floats(std::span<const FloatCopy> copies, std::byte* workspace) const;

  OpKind kind() const;
  // All arrays: inputs, then outputs. Those that are absent have no elements.
  size_t arrays() const;
  OperandArray array(size_t i) const;
  bool is_input(size_t i) const;
  // An input or output by its name; null if it is absent.
  template <typename T>
  const T* input(InputName name) const {
    return reinterpret_cast<const T*>(pointer(input_id(name)));
  }
  template <typename T>
  T* output(OutputName name) const {
    return reinterpret_cast<T*>(pointer(output_id(name)));
  }
  bool has_input(InputName name) const { return input_id(name) != kNoTensor; }
  bool has_output(OutputName name) const { return output_id(name) != kNoTensor; }
  const Shape& input_shape(InputName name) const;
  const Shape& output_shape(OutputName name) const;
  DType input_dtype(InputName name) const;
  DType output_dtype(OutputName name) const;
  // Elements from row to row.
  int64_t input_stride(InputName name) const;
  int64_t output_stride(OutputName name) const;
  // The first extent in memory: with the rows of zeros after a parameter.
  int64_t input_rows(InputName name) const;
  template <typename T>
  const T& attributes() const {
    return all_attributes().as<T>();
  }
  // The workspace, with the size that workspace_bytes() returned, aligned to 64 bytes; null if that
  // is 0.
  template <typename T = std::byte>
  T* workspace() const {
    return reinterpret_cast<T*>(workspace_);
  }
  // Only for an op that runs.
  const LaneContext& lane() const { return *lane_; }
  const CallLanes& lanes() const { return lanes_; }
  // The backend's launch_context().
  template <typename T>
  T& device() const {
    return *static_cast<T*>(device_);
  }
  bool training() const;
  // Whether floats are multiplied as three bfloat16 numbers: see Graph.
  bool bf16x3() const;

 private:
  TensorId input_id(InputName name) const;
  TensorId output_id(OutputName name) const;
  const Attributes& all_attributes() const;
  std::byte* pointer(TensorId id) const {
    if (id == kNoTensor || tensors_ == nullptr) return nullptr;
    return copies_.empty() ? tensors_[id] : copy_of(id);
  }
  std::byte* copy_of(TensorId id) const;
  DType dtype_of(TensorId id) const;

  const Graph& graph_;
  const Op& op_;
  std::byte* const* tensors_ = nullptr;
  std::byte* workspace_ = nullptr;
  const LaneContext* lane_ = nullptr;
  void* device_ = nullptr;
  CallLanes lanes_;
  bool on_floats_ = false;
  std::span<const FloatCopy> copies_;
};

}  // namespace lockstep::graph
