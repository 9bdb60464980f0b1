#pragma once
// The tensors of values. ONNX stores images as (N, C, ...), native ops as (N, ..., C). A value may
// have several tensors: plain, channels last, and transposed by some permutation. A node's function
// declares with set() in which layout it computed an output, and requests an input's layout with
// plain(), channels_last() or physical_layout(). A transposition is appended when a missing layout
// is requested, and is kept. So images stay channels last from layer to layer, and the op Transpose
// only changes a permutation.

#include <map>
#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/parameters.h"
#include "models/onnx/nodes/lowering/readers.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/pointwise_program.h"

namespace lockstep::onnx {

// A value that is computed element by element. It has no tensor before it is requested, so that
// nodes that read it can include its program in theirs.
struct DeferredPointwise {
  std::string name;
  graph::PointwiseProgram program;
  std::vector<int> inputs;  // input i of the program is the value inputs[i]
  bool channels_last = false;
};

class Layouts {
 public:
  // Borrows all.
  Layouts(const Readers& readers, Parameters& parameters, graph::GraphBuilder& builder);

  // The value with its axes in the file's order. A parameter is copied into an activation, a
  // constant becomes a constant of the graph.
  TensorId plain(int number);
  // A value (N, C, ...) as (N, ..., C).
  TensorId channels_last(int number);
  bool is_channels_last(int number) const;
  // The value in one of these two layouts.
  TensorId get(int number, bool last) { return last ? channels_last(number) : plain(number); }
  // Sets the tensor of an input of the network or of a node's output, in the file's order or
  // channels last. Integers are i32. Floating-point numbers and booleans (1 or 0) have the compute
  // type.
  void set(int number, TensorId tensor, bool channels_last = false);
  // The same for a transposed tensor: axis d of the value is axis permutation[d] of the tensor.
  void set_transposed(int number, TensorId tensor, std::vector<int> permutation);
  // Whether the value has a tensor, or is deferred.
  bool is_set(int number) const;
  // The value in a layout that it already has, without moving its elements.
  struct Transposed {
    TensorId tensor;
    std::vector<int> permutation;
  };
  Transposed physical_layout(int number);
  // The value as matrices of its last two axes. They are transposed if the value is stored so, to
  // avoid a copy.
  struct Matrices {
    TensorId tensor;
    bool transposed;
  };
  Matrices matrices(int number);
  // Sets a node's output to a program, which is appended when the value is requested.
  void defer(int number, DeferredPointwise what) { deferred_[number] = std::move(what); }
  // Null if the value is not deferred, or has its tensor already.
  const DeferredPointwise* deferred(int number) const;

 private:
  // The tensors of a value; kNoTensor for layouts that it does not have.
  struct Tensors {
    TensorId plain = kNoTensor, channels_last = kNoTensor, transposed = kNoTensor;
    std::vector<int> permutation = {};  // of `transposed`, see set_transposed()
  };

  Tensors& of(int number) { return tensors_[static_cast<size_t>(number)]; }
  void append_deferred(int number);
  TensorId make_constant(const Value& known);

  const Readers& readers_;
  Parameters& parameters_;
  graph::GraphBuilder& builder_;
  std::vector<Tensors> tensors_;               // by value
  std::map<int, DeferredPointwise> deferred_;  // by value
};

// x itself if it has this shape, else reshaped.
TensorId shaped(graph::GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                const Shape& shape);

// The permutation from (N, ..., C) to (N, C, ...).
std::vector<int> from_channels_last(int rank);
// The extents of (N, C, ...), extended to `rank` by ones in front, in the order (N, ..., C).
Shape channels_last_shape(const Extents& extents, size_t rank);

// Converts the number of a constant to the compute type. Masks contain the lowest numbers of a
// float. In 16 bits these would become -infinity, which hides more than they do, so they are
// raised to half of the type's lowest number.
float storable(float number, DType compute);

}  // namespace lockstep::onnx
