#pragma once
// Builds a forward graph: inputs and parameters here, ops by the functions of graph/ops/<op>.h,
// which append one op and return its output; shapes are checked there. Shape mistakes are broken
// invariants: models/ validates what users can get wrong.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"

namespace lockstep {

// Rows [first, first + rows) of a linear layer's output.
struct OutputRows {
  int64_t first = 0, rows = 0;
  bool operator==(const OutputRows&) const = default;
};

// Linear layers that have a LoRA: see graph/ops/lora.h.
struct LoraLayers {
  int64_t rank = 8;
  float alpha = 16;
  float dropout = 0;
  // Of a weight's name and its rows: the parts of its layer that have one each, in order; none: the
  // layer has none.
  std::function<std::vector<OutputRows>(const std::string& weight, int64_t rows)> parts = nullptr;
};

// What a graph is built for, and how the device wants it.
struct GraphOptions {
  GraphOptions(Purpose purpose) : purpose(purpose) {}  // NOLINT: the rest has defaults

  Purpose purpose;
  DType compute = DType::kF32;  // of parameters and activations; statistics of rows stay f32
  int logits_alignment = 1;     // bytes: rows of logits are padded to multiples of it
  bool recompute = false;       // blocks are computed again in the backward pass
  int lanes = 1;                // of the run
  bool bf16x3 = false;          // products of floats, where the device has them: see Graph
  bool packed = false;          // of a language model: samples are documents, see packed_tokens.h
  int64_t loss_rows = 0;        // tokens whose logits are computed at a time; 0: all
  std::vector<float> class_weights = {};  // of losses of classes; none: all weigh the same
  // Tokens of a sample as the loader fills it, where graphs of several lengths are built, of which
  // each computes the first of them: all have the same ops. 0: as many as the graph computes.
  int64_t sample_tokens = 0;
  // Of a language model in inference, above 0: keys and values of so many tokens of each sequence
  // are kept from run to run (cached_attention.h). Samples are packed, a sequence a document.
  int64_t cached_tokens = 0;
  bool head = true;  // of a language model with a cache: ends in the logits, else before the head
  LoraLayers lora = {};  // none where it has no `parts`
  // Of a training graph: is given it before its backward pass is made, to say how its parameters are
  // trained.
  std::function<void(Graph&)> prepare_parameters = nullptr;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const GraphOptions& options) : options_(options) {
    graph_.purpose = options.purpose;
    graph_.bf16x3 = options.bf16x3;
  }

  TensorId input(const std::string& name, Shape shape, DType dtype);
  TensorId parameter(const std::string& name, Shape shape, Initializer initializer, bool decay);
  // Zeros at first, of the compute type; what a run leaves in it the next one finds.
  TensorId state(const std::string& name, Shape shape);
  // A table that never changes: numbers, rounded to the compute type or the one that is given, or
  // integers (i32).
  TensorId constant(const std::string& name,
                    Shape shape,
                    const std::vector<float>& numbers,
                    std::optional<DType> type = std::nullopt);
  TensorId constant(const std::string& name, Shape shape, const std::vector<int32_t>& integers);

  // A parameter that each step moves by the share `momentum` towards what the batch shows, instead
  // of by a gradient.
  TensorId running_statistic(const std::string& name, Shape shape, float initial, float momentum);
  // Says that files hold the parameter, here (O, H, W, C) or (O, H * W * C), channels first.
  void set_channels_last(TensorId parameter, Shape extents);
  // Says that the parameter is matrices one below the other, of so many rows each.
  void set_row_parts(TensorId parameter, std::vector<int64_t> rows);

  // The ops and parameters from here to end_block() form a block of layers: its inputs are all that
  // the backward pass keeps of it where the options say so.
  void begin_block();
  void end_block();
  // Ends an inference graph: `output` is kept.
  void keep(TensorId output);

  const Graph& graph() const { return graph_; }
  const GraphOptions& options() const { return options_; }
  bool training() const { return graph_.purpose == Purpose::kTraining; }
  const Shape& shape(TensorId tensor) const { return graph_.shape(tensor); }
  Tensor& operator[](TensorId tensor) { return graph_[tensor]; }
  Graph finish() &&;

  // For the functions of ops.
  void append(Op op) { graph_.ops.push_back(std::move(op)); }
  // A loss, which ends the graph, unless total_loss follows: its statistics are the result. Its inputs
  // are the prediction, the target and `parameters`.
  void append_loss(OpKind kind,
                   TensorId prediction,
                   TensorId target,
                   Attributes attributes,
                   const std::vector<TensorId>& parameters = {});
  // An op whose output is statistics, the result.
  TensorId append_result(OpKind kind, std::vector<TensorId> inputs, Attributes attributes);
  // The statistics of the losses so far.
  const std::vector<TensorId>& losses() const { return losses_; }
  TensorId tensor(std::string name, Shape shape, DType dtype, Role role);
  TensorId activation_tensor(const std::string& name, Shape shape);  // of the compute type
  TensorId statistics_tensor(const std::string& name, Shape shape);  // f32
  // The number of a random stream that no other op of the graph has.
  uint32_t new_random_stream() { return random_streams_++; }

 private:
  GraphOptions options_;
  Graph graph_;
  std::vector<TensorId> losses_;
  uint32_t random_streams_ = 0;
  bool in_block_ = false;
};

}  // namespace lockstep
