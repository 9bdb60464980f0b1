#pragma once
// pointwise: y = program(inputs), element by element, inputs broadcast as NumPy's are.
//   inputs  what the program reads: activations of any floating type or i32, in any mix
//   outputs y, of the compute type or i32
// The gradient of an input is such an op too, of the program's derivative, whose inputs are d_y and
// those inputs that it reads. Where the input was broadcast it is summed by `reduce`.

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/graph/op_call.h"
#include "runtime/graph/pointwise_code.h"

namespace lockstep {

class GraphBuilder;
struct Op;

struct PointwiseAttributes {
  PointwiseProgram program;
  PointwiseCode code;         // of the program
  std::vector<Shape> shapes;  // of the inputs as they are read: their elements in other extents
};

namespace ops {

// y = program(inputs) -> the shape that the inputs' shapes are broadcast to; i32, towards zero,
// where `integers` says so, and then without a gradient. None of the inputs is a parameter; an i32
// input is read as a float, exactly below 2^24, and has no gradient. What the program does not read
// counts for the shape alone.
TensorId pointwise(GraphBuilder& builder,
                   const std::string& name,
                   const std::vector<TensorId>& inputs,
                   const PointwiseProgram& program,
                   bool integers = false);

}  // namespace ops

// An input, and the extents that it is read in, which have as many elements as it.
struct PointwiseInput {
  TensorId tensor;
  Shape shape;
};

// For rules: the op, of those inputs that the program reads, with y as its output.
Op pointwise_op(const std::string& name,
                const std::vector<PointwiseInput>& inputs,
                const PointwiseProgram& program,
                TensorId y);

// Whether shapes can be broadcast together; if so `to` becomes what to.
bool broadcast(const Shape& with, Shape& to);

// The elements of y as nested loops, with adjacent dimensions joined wherever all inputs allow it:
// so y has one dimension where no input is broadcast but scalars.
struct PointwiseLoops {
  int rank = 0;  // at least one
  int64_t extents[Shape::kMaxRank];
  // Elements from one step of a loop to the next, 0 where the input is broadcast. Of the innermost
  // loop 0 or 1.
  int64_t strides[PointwiseCode::kMostInputs][Shape::kMaxRank];

  static PointwiseLoops of(const Shape& y, const std::vector<Shape>& inputs);
};

template <typename T>
struct PointwiseForward {
  const PointwiseProgram* program;
  const PointwiseCode* code;
  PointwiseLoops loops;
  int64_t n;                                       // elements of y
  const void* inputs[PointwiseCode::kMostInputs];  // of their shapes and types
  DType input_types[PointwiseCode::kMostInputs];   // floating types are T where that is double
  void* y;                                         // (n). May be an input of the same shape
  DType y_type;

  static PointwiseForward of(const OpCall& op) {
    const auto& attributes = op.attributes<PointwiseAttributes>();
    PointwiseForward forward{.program = &attributes.program,
                             .code = &attributes.code,
                             .loops = {},
                             .n = op.output_shape(0).elements(),
                             .inputs = {},
                             .input_types = {},
                             .y = op.output<std::byte>(0),
                             .y_type = type_of(op.output_dtype(0))};
    for (size_t k = 0; k < attributes.shapes.size(); ++k) {
      forward.inputs[k] = op.input<std::byte>(k);
      forward.input_types[k] = type_of(op.input_dtype(k));
    }
    forward.loops = PointwiseLoops::of(op.output_shape(0), attributes.shapes);
    return forward;
  }

 private:
  static DType type_of(DType stored) {
    return std::is_same_v<T, double> && stored != DType::kI32 ? DType::kF64 : stored;
  }
};

}  // namespace lockstep
