#pragma once
// From the network of a file to ops of a graph: each node becomes the op that does the same, the fast
// ones of the house where they can. Images lie channels last as long as nothing asks for another order.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/onnx/lowering/storage.h"
#include "models/onnx/lowering/token_mask.h"
#include "models/onnx/network.h"
#include "models/onnx/ranges.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/pointwise_program.h"

namespace lockstep::onnx {

struct LoweredParameter {
  TensorId tensor = kNoTensor;
  int value = -1;  // of the network
  Storage storage = Storage::kAsInFile;
};

// A value that is computed element by element. It has no tensor before it is asked for, so that nodes
// that read it can take its program into theirs.
struct DeferredPointwise {
  std::string name;
  PointwiseProgram program;
  std::vector<int> inputs;  // values: input i of the program is inputs[i]
  bool channels_last = false;
};

class Lowering {
 public:
  // Borrows both. The inputs of the network are set before run().
  Lowering(const Network& network, GraphBuilder& builder);

  // Batch norms take the statistics of all lanes together.
  void synchronise_norms(bool on) { synchronised_norms_ = on; }
  bool synchronised_norms() const { return synchronised_norms_; }

  // Appends the ops of all nodes. Throws ConfigError for nodes that there is no op for, or an output
  // of it that is read and that the op does not have, with Node::description().
  void run();

  // In the order of creation: as many as Graph::parameters.
  const std::vector<LoweredParameter>& parameters() const { return parameters_; }

  // For the functions of nodes, and for what stands behind the network.
  GraphBuilder& builder() { return builder_; }
  const Network& network() const { return network_; }
  const Value& value(int number) const { return network_.values[static_cast<size_t>(number)]; }
  // The value in its own order; a parameter is copied into an activation, a constant is a tensor of
  // the graph.
  TensorId plain(int number);
  // A value (N, C, ...) as (N, ..., C).
  TensorId channels_last(int number);
  bool is_channels_last(int number) const;
  // Says what an input of the network or an output of a node is: as the value has it, or (N, ..., C)
  // for (N, C, ...). Whole numbers are i32; all else is of the compute type, and so is truth, 1 or 0.
  void set(int number, TensorId tensor, bool channels_last = false);
  // Dimension d of the output is dimension permutation[d] of the tensor.
  void set_transposed(int number, TensorId tensor, std::vector<int> permutation);
  // The value as it lies, transposed or not, without moving its elements.
  struct Transposed {
    TensorId tensor;
    std::vector<int> permutation;
  };
  Transposed as_it_lies(int number);
  // The value as matrices, the last two axes: transposed where that is how they lie.
  struct Matrices {
    TensorId tensor;
    bool transposed;
  };
  Matrices matrices(int number);
  // Says that an output of a node is this, once it is asked for.
  void defer(int number, DeferredPointwise what);
  // Null where the value is not deferred, or has its tensor already.
  const DeferredPointwise* deferred(int number) const;
  // Whether a gradient may reach the value.
  bool learns(int number) const { return learns_[static_cast<size_t>(number)]; }

  // The parameter that a value is, or whose transpose it is.
  struct Source {
    int value = -1;  // below 0: it is none
    bool transposed = false;
  };
  Source source_of(int number) const;
  // The value that this one is a copy of, by nodes that leave numbers as they are; else itself.
  int origin_of(int number) const;
  // As an op wants it. The same one again where it was asked for before; throws ConfigError where an
  // op wanted it in another way.
  TensorId parameter(int number, Storage storage = Storage::kAsInFile);
  // Whether parameter() can give it so.
  bool can_have(int number, Storage storage) const;
  // One that no other op may have, as those of norms.
  TensorId unshared_parameter(int number);
  // A running statistic, which a constant of the file begins. Used once.
  TensorId running_statistic(const Node& node, int number, float momentum);

  // Says which inputs of the network are masks of tokens (N, T), 1 where a token's document in `documents`
  // (N, T) i32 is at least 0, else 0. Before run(). What is computed of them is followed in `few`, the same
  // network of fewer samples, where it takes little memory; borrowed.
  void set_token_masks(std::vector<int> masks, TensorId documents, const Network& few);
  // The number of a constant, for the compute type. If that has 16 bits, the lowest numbers of a float,
  // which masks hold, would become -infinity, which hides what they do not: they are raised to half of the
  // lowest that it has.
  float storable(float number) const;
  // What an attention's mask says.
  MaskForm mask_form(int number, bool true_hides = false) {
    return token_masks_->form_of(origin_of(number), true_hides);
  }
  // (N, T) i32: 0, and of padding -1.
  TensorId seen_tokens();

  // Says that the elements of an input of the network lie in [0, limit).
  void set_limit(int number, int64_t limit) { limits_[number] = limit; }
  // Between what the value's elements lie.
  std::optional<Range> range_of(int number) const {
    return onnx::range_of(network_, number, limits_);
  }

  // All nodes that read the value, or a copy of it.
  std::vector<const Node*> readers(int number) const;
  // The only one; null where there are others, or it is an output.
  const Node* only_reader(int number) const;
  // Lowers now all that the value is computed by. False, and then nothing is done, where `node` is of it.
  bool lower_ahead(int number, const Node& node);
  bool has_reading_node(int number) const;
  bool is_output(int number) const;
  // Whether a node reads the value, or it is an output.
  bool is_read(int number) const;
  // The same, also where that node is passed over: what was done for it may read the value.
  bool has_reader(int number) const;
  // The node that computes the value; null where none does.
  const Node* producer(int number) const;
  // What a node has done for another one, which is passed over then.
  void pass_over(const Node& node);
  // Appends the ops of nodes after all that were passed over, once all others are done.
  void lower_passed_over(const std::vector<const Node*>& nodes);
  // Says what is appended in the place of a node, before its turn has come.
  using Replacement = std::function<void(Lowering& lowering, const Node& node)>;
  void replace(const Node& node, Replacement replacement);

  // The node's name, or that of its first output.
  std::string name_of(const Node& node) const;

 private:
  struct Place {
    TensorId plain = kNoTensor, channels_last = kNoTensor, transposed = kNoTensor;
    std::vector<int> permutation = {};  // of the transposed one

    bool is_set() const {
      return plain != kNoTensor || channels_last != kNoTensor || transposed != kNoTensor;
    }
  };

  bool is_done(size_t number) const;
  void lower_node(size_t number);
  void detach(const Node& node);
  [[noreturn]] void refuse_op(size_t number) const;
  void trace(size_t number);
  void append_deferred(int number);
  TensorId make_constant(int number);
  TensorId copy_of(Source source, const std::string& name);
  void require_outputs(const Node& node) const;

  const Network& network_;
  GraphBuilder& builder_;
  std::vector<Place> places_;                   // by value
  std::vector<Source> sources_;                 // by value
  std::vector<int> origins_;                    // by value
  std::vector<std::vector<size_t>> readers_;    // by value: the nodes
  std::vector<int> producers_;                  // by value: the node, or -1
  std::vector<bool> learns_;                    // by value
  std::vector<bool> passed_over_, lowered_;     // by node
  std::map<int, DeferredPointwise> deferred_;   // by value
  std::map<size_t, Replacement> replacements_;  // by node
  std::vector<LoweredParameter> parameters_;
  std::map<int, size_t> parameter_of_;  // by value: place in parameters_
  std::set<int> unshared_;              // values
  std::map<int, int64_t> limits_;       // by value
  bool synchronised_norms_ = false;
  std::optional<TokenMasks> token_masks_;
  TensorId documents_ = kNoTensor, seen_tokens_ = kNoTensor;
};

// The tensor of what was deferred.
TensorId append_pointwise(Lowering& lowering, const Value& value, const DeferredPointwise& what);

// A node that cannot be run: its description, and what is not known here.
[[noreturn]] void refuse(const Node& node, const std::string& what);

// Appends the ops of a node.
using LowerNode = void (*)(Lowering& lowering, const Node& node);
// Null where there is none.
LowerNode lower_of(const Node& node);

}  // namespace lockstep::onnx
