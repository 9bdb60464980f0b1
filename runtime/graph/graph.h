#pragma once
// The static graph of one lane's forward (and backward) pass: typed tensors and coarse ops in
// execution order. Plain data.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"
#include "runtime/graph/attributes.h"
#include "runtime/graph/op_kind.h"
#include "runtime/graph/operands.h"
#include "runtime/graph/tensor_id.h"

namespace lockstep::graph {

// What the graph is built for. Training has dropout, saved tensors and gradients; evaluation ends
// in the loss statistics; inference ends in the model's output.
enum class Purpose { kTraining, kEvaluation, kInference };

enum class Role : uint8_t {
  kInput,              // filled by the loader before the lane runs
  kParameter,          // a slice of the flat parameter buffer
  kActivation,         // in the arena between its first write and its last use
  kParameterGradient,  // a slice of the flat gradient buffer
  kResult,             // kept until the lane is done: statistics (4) f64, or an inference output
  kState,              // kept from run to run, in memory of the caller; ops write it
  kConstant,           // known when the graph is built, never changes: Tensor::constant
};

// Initial value of a parameter: every element is drawn independently from the parameter's own
// random stream, or all elements are given.
struct Initializer {
  enum class Kind : uint8_t { kConstant, kNormal, kUniform, kGiven };
  Kind kind = Kind::kConstant;
  float value = 0;  // the constant; standard deviation; bound of U(-value, value)
  // kGiven: the elements, row by row.
  std::function<std::vector<float>()> elements = nullptr;
  bool overrides_weights =
      false;  // overrides weights that were read from elsewhere (train.init_from)
};

// What a tensor has only if it is a parameter.
struct ParameterAttributes {
  Initializer initializer = {};
  bool decay = false;  // subject to weight decay by default
  // How the optimizer updates it (see graph/parameter_groups.h). A frozen parameter is not updated
  // and has no gradient. A running statistic is never frozen.
  bool frozen = false;
  float lr_scale = 1;       // multiplies the learning rate
  float weight_decay = -1;  // if at least 0, overrides the optimizer's
  // Above 0 for a running statistic. Its `gradient` is then the statistic of a lane's batch, and a
  // step sets it to (1 - momentum) times itself + momentum times the mean over the lanes.
  float running_momentum = 0;
  // (O, H, W, C) if files hold the parameter as (O, C, H, W). The parameter's shape is this or
  // (O, H W C). Likewise (O, L, C) with one spatial axis and (O, H, W, D, C) with three. Empty if
  // files hold it as it is.
  Shape channels_last = {};
  // The rows of each of the matrices that are stacked in it, such as q, k and v computed by one
  // product. Empty if it is one matrix.
  std::vector<int64_t> row_parts = {};
};

struct Tensor : ParameterAttributes {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  Role role = Role::kActivation;
  // Parameters only: 0 before the first block of layers, the block's number from 1 within a block,
  // and one more than the last block's number after it.
  int level = 0;
  TensorId gradient = kNoTensor;  // parameters only, set by differentiate()
  std::shared_ptr<const std::vector<std::byte>> constant;  // constants only: bytes() of it
  bool detached = false;       // activations only: gradients do not flow through it
  int64_t padded_columns = 0;  // elements from row to row if rows are padded; 0: they are not
  // Parameters and their gradients only: the first extent in memory if zeros follow the elements;
  // 0: none do. Files, norms and hashes never see the zeros. See graph/ops/padded_head.h.
  int64_t padded_rows = 0;

  int64_t row_stride() const { return padded_columns > 0 ? padded_columns : shape.columns(); }
  // The first extent, with the rows of zeros.
  int64_t memory_rows() const { return padded_rows > 0 ? padded_rows : shape[0]; }
  // With all padding.
  int64_t memory_elements() const {
    if (padded_rows > 0) return padded_rows * (shape.elements() / shape[0]);
    return padded_columns > 0 ? shape.rows() * padded_columns : shape.elements();
  }
  size_t bytes() const { return static_cast<size_t>(memory_elements()) * size_of(dtype); }
};

// Absent inputs and outputs are kNoTensor.
struct Op {
  OpKind kind;
  std::string name;
  OpInputs inputs;  // by the names in the op's header
  OpOutputs outputs;
  Attributes attributes;

  template <typename T>
  const T& as() const {
    return attributes.as<T>();
  }
};

// Forward ops [begin, end) whose activations are not kept for the backward pass, which runs these
// ops again.
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
  OpInputs inputs;                          // by GraphIn
  std::vector<TensorId> parameters;         // in order of creation
  int lanes = 1;                            // of the run; 0 if lanes have several lengths
  TensorId result = kNoTensor;              // statistics or inference output
  // Rows per sample that the loss counts in its statistics: 1 for an MLP, T for a language model.
  int64_t loss_rows_per_sample = 1;
  int blocks = 0;  // number of blocks of layers, if the model has blocks

  Tensor& operator[](TensorId id) { return tensors[static_cast<size_t>(id)]; }
  const Tensor& operator[](TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  const Shape& shape(TensorId id) const { return (*this)[id].shape; }
  TensorId add(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(tensors.size()) - 1;
  }
  // dropped: by op.
  void drop_ops(const std::vector<bool>& dropped) {
    size_t i = 0;
    std::erase_if(ops, [&](const Op&) { return dropped[i++]; });
  }
  // Whether a lane needs values of the other lanes (gather_lanes). If so, all lanes of a rank run
  // together: each lane runs up to such an op before any continues.
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

}  // namespace lockstep::graph
