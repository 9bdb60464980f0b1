#pragma once
// pointwise: y = program(inputs), element by element; inputs are broadcast as in NumPy.
// The gradient of an input is such an op too, for the program's derivative, which reads d_y and
// some of the inputs. If the input was broadcast, `reduce` sums up its gradient.

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/graph/op_call.h"
#include "runtime/graph/pointwise_code.h"

namespace lockstep::graph {

// Those that the program reads: activations of any floating type or i32, in any mix.
enum class PointwiseIn : InputIndex { kX };
enum class PointwiseOut : OutputIndex { kY };  // of the compute type or i32

struct PointwiseAttributes {
  PointwiseProgram program;
  PointwiseCode code;         // of the program
  std::vector<Shape> shapes;  // of the inputs as read: the same elements with other extents
};

namespace ops {

// y = program(inputs), with the shape to which the inputs are broadcast. With `integers`, y is i32,
// rounded towards zero, and has no gradient. No input may be a parameter. An i32 input is read as a
// float, exactly below 2^24, and has no gradient. Inputs that the program does not read only affect
// the shape.
TensorId pointwise(GraphBuilder& builder,
                   const std::string& name,
                   const std::vector<TensorId>& inputs,
                   const PointwiseProgram& program,
                   bool integers = false);

}  // namespace ops

// An input, and the extents with which it is read, which have the same number of elements.
struct PointwiseInput {
  TensorId tensor;
  Shape shape;
};

// For backward rules: the op that computes y from those inputs that the program reads.
Op pointwise_op(const std::string& name,
                const std::vector<PointwiseInput>& inputs,
                const PointwiseProgram& program,
                TensorId y);

// Whether shapes can be broadcast together; if so, `to` becomes the result's shape.
bool broadcast(const Shape& with, Shape& to);

// The elements of y as nested loops. Adjacent dimensions are merged if all inputs allow it, so y
// has one dimension if no input is broadcast except scalars.
struct PointwiseLoops {
  int rank = 0;  // at least one
  int64_t extents[Shape::kMaxRank];
  // Elements from one iteration of a loop to the next; 0 if the input is broadcast. For the
  // innermost loop always 0 or 1.
  int64_t strides[PointwiseCode::kMaxInputs][Shape::kMaxRank];

  static PointwiseLoops of(const Shape& y, const std::vector<Shape>& inputs);
};

template <typename T>
struct PointwiseForward {
  const PointwiseProgram* program;
  const PointwiseCode* code;
  PointwiseLoops loops;
  int64_t n;                                           // elements of y
  const void* inputs[PointwiseCode::kMaxInputs] = {};  // with their shapes and types
  DType input_types[PointwiseCode::kMaxInputs] = {};   // floating types are T if that is double
  void* y;                                             // (n). May be an input of the same shape
  DType y_type;

  explicit PointwiseForward(const OpCall& call)
      : program(&call.attributes<PointwiseAttributes>().program),
        code(&call.attributes<PointwiseAttributes>().code),
        loops(PointwiseLoops::of(call.output_shape(PointwiseOut::kY),
                                 call.attributes<PointwiseAttributes>().shapes)),
        n(call.output_shape(PointwiseOut::kY).elements()),
        y(call.output<std::byte>(PointwiseOut::kY)),
        y_type(type_of(call.output_dtype(PointwiseOut::kY))) {
    for (size_t k = 0; k < call.attributes<PointwiseAttributes>().shapes.size(); ++k) {
      inputs[k] = call.input<std::byte>({PointwiseIn::kX, k});
      input_types[k] = type_of(call.input_dtype({PointwiseIn::kX, k}));
    }
  }

 private:
  static DType type_of(DType stored) {
    return std::is_same_v<T, double> && stored != DType::kI32 ? DType::kF64 : stored;
  }
};

}  // namespace lockstep::graph
