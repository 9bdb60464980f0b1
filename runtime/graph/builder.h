#pragma once
// Builds a forward graph. Inputs and parameters are made here, ops by the functions of
// graph/ops/<op>.h, which check shapes, append one op and return its output. Wrong shapes are
// broken invariants: models/ validates what users can get wrong.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/graph/graph.h"

namespace lockstep::graph {

// Rows [first, first + rows) of a linear layer's output.
struct OutputRows {
  int64_t first = 0, rows = 0;
  bool operator==(const OutputRows&) const = default;
};

// Which linear layers have a LoRA: see graph/ops/lora.h.
struct LoraLayers {
  int64_t rank = 8;
  float alpha = 16;
  float dropout = 0;
  // Returns, for a weight's name and number of rows, the parts of its layer that have a LoRA each,
  // in order. Empty: the layer has none.
  std::function<std::vector<OutputRows>(const std::string& weight, int64_t rows)> parts = nullptr;
};

// What a graph is built for, and the device's requirements.
struct GraphOptions {
  GraphOptions(Purpose purpose) : purpose(purpose) {}  // NOLINT: the rest has defaults

  Purpose purpose;
  // type of parameters and activations; statistics of rows are always f32
  DType compute = DType::kF32;
  // the outputs of a head are padded to a multiple of it in memory: see graph/ops/padded_head.h
  int head_multiple = 1;
  bool recompute = false;  // blocks are recomputed in the backward pass
  int lanes = 1;           // of the run
  // products of floats as three bfloat16 numbers, if the device has them: see Graph
  bool bf16x3 = false;
  bool packed = false;    // language models: samples are packed from documents, see packed_tokens.h
  int64_t loss_rows = 0;  // tokens whose logits are computed at a time; 0: all
  std::vector<float> class_weights = {};  // for losses of classes; none: all weights are 1
  // For binary_cross_entropy: one for each output, or one for all; none: 1.
  std::vector<float> pos_weight = {};
  ContrastiveConfig contrastive = {};  // for losses of pairs
  // The length of the loader's samples, in tokens, if graphs for several lengths are built. Each
  // graph computes the first tokens of the samples, and all graphs have the same ops. 0: as many
  // tokens as the graph computes.
  int64_t sample_tokens = 0;
  // For inference with a language model: if above 0, keys and values of this many tokens of each
  // sequence are kept from run to run (cached_attention.h). Samples are packed, with one sequence
  // per document.
  int64_t cached_tokens = 0;
  // language models with a cache: whether the graph ends in the logits, or before the head
  bool head = true;
  LoraLayers lora = {};  // none if `parts` is null
  // for models of tokens: samples are pairs of answers, a chosen and a rejected one
  std::optional<PreferenceConfig> preference = {};
  // For training graphs: called before the backward pass is made, to set how parameters are
  // trained.
  std::function<void(Graph&)> prepare_parameters = nullptr;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const GraphOptions& options) : options_(options) {
    graph_.purpose = options.purpose;
    graph_.bf16x3 = options.bf16x3;
    graph_.lanes = options.sample_tokens > 0 ? 0 : options.lanes;
  }

  TensorId input(const std::string& name, Shape shape, DType dtype);
  TensorId parameter(const std::string& name, Shape shape, Initializer initializer, bool decay);
  // A state: initially zeros, of the compute type. Each run sees what the previous one left in it.
  TensorId state(const std::string& name, Shape shape);
  // A table that never changes: numbers, rounded to the compute type or to `type`, or integers
  // (i32).
  TensorId constant(const std::string& name,
                    Shape shape,
                    const std::vector<float>& numbers,
                    std::optional<DType> type = std::nullopt);
  TensorId constant(const std::string& name, Shape shape, const std::vector<int32_t>& integers);

  // A parameter that each step moves towards the value measured on the batch, by the fraction
  // `momentum`, instead of by a gradient.
  TensorId running_statistic(const std::string& name, Shape shape, float initial, float momentum);
  // Marks a parameter as (O, H, W, C) or (O, H * W * C) here, but channels first in files.
  void set_channels_last(TensorId parameter, Shape extents);
  // Marks a parameter as matrices stacked by rows, with these numbers of rows.
  void set_row_parts(TensorId parameter, std::vector<int64_t> rows);

  // The ops and parameters from here to end_block() form a block of layers. If the options set
  // `recompute`, the backward pass keeps only the block's inputs.
  void begin_block();
  void end_block();
  // Between these two, the network is computed again as its own reference: a parameter is the
  // earlier one of its name, layers have no LoRA, nothing is drawn at random and nothing is
  // recomputed.
  void begin_reference();
  void end_reference();
  bool in_reference() const { return in_reference_; }
  // Ends an inference graph: `output` is its result.
  void keep(TensorId output);

  const Graph& graph() const { return graph_; }
  const GraphOptions& options() const { return options_; }
  bool training() const { return graph_.purpose == Purpose::kTraining && !in_reference_; }
  const Shape& shape(TensorId tensor) const { return graph_.shape(tensor); }
  Tensor& operator[](TensorId tensor) { return graph_[tensor]; }
  Graph finish() &&;

  // The functions below are for the implementations of ops.
  void append(Op op) { graph_.ops.push_back(std::move(op)); }
  // Appends a loss, which ends the graph unless total_loss follows: its statistics are the result.
  // Its inputs are the prediction, the target, unless it is kNoTensor, and `parameters`.
  void append_loss(OpKind kind,
                   TensorId prediction,
                   TensorId target,
                   Attributes attributes,
                   const std::vector<TensorId>& parameters = {});
  // For a loss that counts something else than the rows of its prediction.
  void set_loss_rows_per_sample(int64_t rows) { graph_.loss_rows_per_sample = rows; }
  // Appends an op that outputs statistics, which become the result.
  TensorId append_result(OpKind kind, std::vector<TensorId> inputs, Attributes attributes);
  // The statistics of the losses so far.
  const std::vector<TensorId>& losses() const { return losses_; }
  TensorId tensor(std::string name, Shape shape, DType dtype, Role role);
  TensorId activation_tensor(const std::string& name, Shape shape);  // of the compute type
  TensorId statistics_tensor(const std::string& name, Shape shape);  // f32
  // The number of a random stream that no other op of the graph uses.
  uint32_t new_random_stream() { return random_streams_++; }

 private:
  GraphOptions options_;
  Graph graph_;
  std::vector<TensorId> losses_;
  uint32_t random_streams_ = 0;
  bool in_block_ = false;
  bool in_reference_ = false;
};

}  // namespace lockstep::graph
