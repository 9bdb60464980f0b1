#pragma once
// The static graph of one lane's forward (and backward) pass: typed tensors and coarse ops in
// execution order. Plain data.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/graph/attributes.h"
#include "runtime/graph/op_kind.h"
#include "runtime/graph/tensor_id.h"

namespace lockstep {

// What the graph is built for. Training has dropout, saved tensors and gradients; evaluation ends
// in the loss statistics; inference ends in the model's output.
enum class Purpose { kTraining, kEvaluation, kInference };

enum class Role : uint8_t {
  kInput,              // filled by the loader before the lane runs
  kParameter,          // a slice of the flat parameter buffer
  kActivation,         // lives in the arena between its first write and its last use
  kParameterGradient,  // a slice of the flat gradient buffer
  kResult,             // kept until the lane is done: statistics (4) f64, or an inference output
  kState,              // stays from run to run, in memory of who runs the graph; ops write it
  kConstant,           // known when the graph is built, and never changes: Tensor::constant
};

// Initial value of a parameter: every element drawn independently from the parameter's own random
// stream, or all of them given.
struct Initializer {
  enum class Kind : uint8_t { kConstant, kNormal, kUniform, kGiven };
  Kind kind = Kind::kConstant;
  float value = 0;  // the constant; standard deviation; bound of U(-value, value)
  // Given: the elements, row by row.
  std::function<std::vector<float>()> elements = nullptr;
  bool anew = false;  // goes before weights that are read from elsewhere (train.init_from)
};

struct Tensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  Role role = Role::kActivation;
  Initializer initializer;  // parameters only
  bool decay = false;       // parameters only: subject to weight decay by default
  // Parameters only: how the optimizer moves it (see graph/parameter_groups.h). Frozen: not at all,
  // so that it has no gradient. A running statistic is never frozen.
  bool frozen = false;
  float lr_scale = 1;       // multiplies the rate
  float weight_decay = -1;  // at least 0: goes before the optimizer's
  // Parameters only: 0 before the first block of layers, then the block's number from 1, and one
  // more than the last one's behind it.
  int level = 0;
  TensorId gradient = kNoTensor;  // parameters only, once differentiated
  // Parameters only, above 0 for a running statistic: its `gradient` is the statistic of a lane's
  // batch, and a step makes it (1 - momentum) of itself + momentum times the mean over the lanes.
  float running_momentum = 0;
  // Parameters only: (O, H, W, C) of a parameter that files hold as (O, C, H, W), its own extents
  // or what its columns stand for, or so of one axis (O, L, C) or three (O, H, W, D, C); no extents
  // where files hold it as it is.
  Shape channels_last;
  // Parameters only: the rows of matrices of which it is made up, one below the other, as q, k and v
  // are where one product computes them; none where it is one matrix.
  std::vector<int64_t> row_parts;
  std::shared_ptr<const std::vector<std::byte>> constant;  // constants only: bytes() of it
  bool detached = false;       // activations only: no gradient comes back through it
  int64_t padded_columns = 0;  // elements from row to row where rows are padded; 0: they are not

  int64_t row_stride() const { return padded_columns > 0 ? padded_columns : shape.columns(); }
  size_t bytes() const {
    const int64_t elements = padded_columns > 0 ? shape.rows() * padded_columns : shape.elements();
    return static_cast<size_t>(elements) * size_of(dtype);
  }
};

// Absent inputs and outputs are kNoTensor.
struct Op {
  OpKind kind;
  std::string name;
  std::vector<TensorId> inputs;  // in the order that the op's header documents
  std::vector<TensorId> outputs;
  Attributes attributes;

  template <typename T>
  const T& as() const {
    return attributes.as<T>();
  }
};

// Forward ops [begin, end) whose activations are not kept for the backward pass, which runs them
// again instead.
struct RecomputedBlock {
  size_t begin = 0, end = 0;
};

struct Graph {
  Purpose purpose = Purpose::kTraining;
  bool bf16x3 = false;  // linear layers and convolutions multiply floats as three bfloat16 numbers
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  size_t forward_ops = 0;                   // ops[0, forward_ops) are the forward pass
  std::vector<RecomputedBlock> recomputed;  // in order; they do not overlap
  std::vector<TensorId> inputs;             // input, target (inference: input only)
  std::vector<TensorId> parameters;         // in order of creation
  TensorId result = kNoTensor;              // statistics or inference output
  // Rows of `statistics` that the loss counts per sample: 1 for an MLP, T for a language model.
  int64_t loss_rows_per_sample = 1;
  int blocks = 0;  // of layers, where the model consists of some

  Tensor& operator[](TensorId id) { return tensors[static_cast<size_t>(id)]; }
  const Tensor& operator[](TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  const Shape& shape(TensorId id) const { return (*this)[id].shape; }
  int64_t parameter_count() const;
  // Whether a lane needs what the others have found (gather_lanes): then all lanes of a rank run
  // together, each up to such an op before any goes on.
  bool crosses_lanes() const;
};

// Statistics of one lane's loss, as every loss op writes them: (4) f64.
enum StatisticIndex {
  kLossSum = 0,
  kValidCount = 1,
  kCorrectCount = 2,
  kTop5Count = 3,
  kStatisticCount = 4
};

}  // namespace lockstep
