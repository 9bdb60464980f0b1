#pragma once
// Lowers the bound network of an ONNX file to ops of a graph.
//
// run() visits the nodes in topological order. lower_of() (table.cc) maps a node's op to a function
// that appends native ops which compute the same. The functions share this state:
//
// Layouts. ONNX stores images as (N, C, ...), native ops as (N, ..., C). A value may have several
// tensors (struct Layouts): plain, channels last, and transposed by some permutation. A function
// declares with set() in which layout it computed an output, and requests an input's layout with
// plain(), channels_last() or physical_layout(). A transposition is appended when a missing layout
// is requested, and is kept. So images stay channels last from layer to layer, and the op Transpose
// only changes a permutation.
//
// Copies. Nodes that leave elements as they are need no op: origin_of() is the value that another
// one is a copy of, and source_of() the parameter that it is, possibly transposed. trace() finds
// both first.
//
// Fusion. A function may take over later nodes: the bias after a product, or all nodes of
// attention. It appends one op, sets the last output, and calls mark_fused() for the nodes, which
// are then skipped. Invariant: an intermediate value of fused nodes gets no tensor, so nothing else
// may read it (see only_reader()). Norms that are recognised by their last node are found before
// the first node is lowered (fuse_nodes(), replace()). Elementwise nodes are deferred: their
// program is appended when the value is requested, or becomes part of the program of the
// elementwise node that reads it (pointwise.cc).
//
// Parameters. The first op that uses a parameter decides how it is stored (Storage). can_have()
// returns whether another op can share that. If not, that op must read a copy, plain().

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
  int value = -1;  // number of the network's value
  Storage storage = Storage::kAsInFile;
};

// A value that is computed element by element. It has no tensor before it is requested, so that
// nodes that read it can include its program in theirs.
struct DeferredPointwise {
  std::string name;
  PointwiseProgram program;
  std::vector<int> inputs;  // input i of the program is the value inputs[i]
  bool channels_last = false;
};

class Lowering {
 public:
  // Borrows both. The network's inputs must be set before run().
  Lowering(const Network& network, GraphBuilder& builder);

  // If on, batch norms use the statistics of all lanes together.
  void synchronise_norms(bool on) { synchronised_norms_ = on; }
  bool synchronised_norms() const { return synchronised_norms_; }

  // Appends the ops of all nodes. Throws ConfigError, with Node::description(), for a node whose op
  // is not supported, or one of whose outputs is read but not supported.
  void run();

  // All parameters, in the order of creation: as many as Graph::parameters.
  const std::vector<LoweredParameter>& parameters() const { return parameters_; }

  // Used by the functions that lower nodes, and to append ops after the network.
  GraphBuilder& builder() { return builder_; }
  const Network& network() const { return network_; }
  const Value& value(int number) const { return network_.values[static_cast<size_t>(number)]; }
  // The value with its axes in the file's order. A parameter is copied into an activation, a
  // constant becomes a constant of the graph.
  TensorId plain(int number);
  // A value (N, C, ...) as (N, ..., C).
  TensorId channels_last(int number);
  bool is_channels_last(int number) const;
  // Sets the tensor of an input of the network or of a node's output, in the file's order or
  // channels last. Integers are i32. Floating-point numbers and booleans (1 or 0) have the compute
  // type.
  void set(int number, TensorId tensor, bool channels_last = false);
  // The same for a transposed tensor: axis d of the value is axis permutation[d] of the tensor.
  void set_transposed(int number, TensorId tensor, std::vector<int> permutation);
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
  void defer(int number, DeferredPointwise what);
  // Null if the value is not deferred, or has its tensor already.
  const DeferredPointwise* deferred(int number) const;
  // Whether a gradient may reach the value.
  bool learns(int number) const { return learns_[static_cast<size_t>(number)]; }

  // The parameter that a value is, or whose transpose it is.
  struct Source {
    int value = -1;  // below 0: none
    bool transposed = false;
  };
  Source source_of(int number) const;
  // The value of which this one is a copy, through nodes that leave elements as they are; else
  // itself.
  int origin_of(int number) const;
  // The parameter of the graph with this storage. Created by the first request; throws ConfigError
  // if it exists with another storage.
  TensorId parameter(int number, Storage storage = Storage::kAsInFile);
  // Whether parameter() would succeed.
  bool can_have(int number, Storage storage) const;
  // Like parameter(), for a parameter that no other op may share, such as those of norms.
  TensorId unshared_parameter(int number);
  // A running statistic, which starts from a constant of the file. Each may be used by one node.
  TensorId running_statistic(const Node& node, int number, float momentum);

  // Sets which inputs of the network are masks of tokens (N, T): 1 if the token's document in
  // `documents` (N, T) i32 is at least 0, else 0. Called before run(). The masks of attention are
  // analysed in `probe`, the same network with fewer samples, which takes less memory; borrowed.
  void set_token_masks(std::vector<int> masks, TensorId documents, const Network& probe);
  // Converts the number of a constant to the compute type. Masks contain the lowest numbers of a
  // float. In 16 bits these would become -infinity, which hides more than they do, so they are
  // raised to half of the type's lowest number.
  float storable(float number) const;
  // Called for a node that computes with integers in floats, which only FP32 holds exactly. Throws
  // ConfigError if the graph computes in 16 bits.
  void require_fp32(const Node& node);
  // Why the graph needs FP32; empty: it does not. After run().
  const std::string& reason_for_fp32() const { return reason_for_fp32_; }
  // The form of a mask of attention.
  MaskForm mask_form(int number, bool true_hides = false) {
    return token_masks_->form_of(origin_of(number), true_hides);
  }
  // (N, T) i32: 0 for tokens and -1 for padding.
  TensorId seen_tokens();

  // Declares that the elements of an input of the network are in [0, limit).
  void set_limit(int number, int64_t limit) { limits_[number] = limit; }
  // Bounds for the value's elements, if they are known.
  std::optional<Range> range_of(int number) const {
    return onnx::range_of(network_, number, limits_);
  }

  // All nodes that read the value, or a copy of it.
  std::vector<const Node*> readers(int number) const;
  // The only node that reads the value; null if there are several or none, or if it is an output.
  const Node* only_reader(int number) const;
  // Lowers all nodes that the value depends on, before it is their turn. If `node` is one of them,
  // does nothing and returns false.
  bool lower_early(int number, const Node& node);
  bool has_reading_node(int number) const;
  bool is_output(int number) const;
  // Whether a node that is not fused reads the value, or it is an output.
  bool is_read(int number) const;
  // The same, but fused nodes count too: the op that replaces them may read the value.
  bool has_reader(int number) const;
  // The node that computes the value; null if there is none.
  const Node* producer(int number) const;
  // Marks a node as fused: another node's op computes its outputs, so that it is skipped.
  void mark_fused(const Node& node);
  // Lowers nodes that were marked as fused after all. Called when all other nodes are lowered.
  void lower_unfused(const std::vector<const Node*>& nodes);
  // Sets what is appended instead of a node. Called before it is the node's turn.
  using Replacement = std::function<void(Lowering& lowering, const Node& node)>;
  void replace(const Node& node, Replacement replacement);

  // The node's name, or that of its first output.
  std::string name_of(const Node& node) const;

 private:
  // The tensors of a value; kNoTensor for layouts that it does not have.
  struct Layouts {
    TensorId plain = kNoTensor, channels_last = kNoTensor, transposed = kNoTensor;
    std::vector<int> permutation = {};  // of `transposed`, see set_transposed()

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
  std::vector<Layouts> layouts_;                // by value
  std::vector<Source> sources_;                 // by value
  std::vector<int> origins_;                    // by value
  std::vector<std::vector<size_t>> readers_;    // by value: the nodes
  std::vector<int> producers_;                  // by value: the node, or -1
  std::vector<bool> learns_;                    // by value
  std::vector<bool> fused_, lowered_;           // by node
  std::map<int, DeferredPointwise> deferred_;   // by value
  std::map<size_t, Replacement> replacements_;  // by node
  std::vector<LoweredParameter> parameters_;
  std::map<int, size_t> parameter_of_;  // by value: index in parameters_
  std::set<int> unshared_;              // values
  std::map<int, int64_t> limits_;       // by value
  bool synchronised_norms_ = false;
  std::string reason_for_fp32_;
  std::optional<TokenMasks> token_masks_;
  TensorId documents_ = kNoTensor, seen_tokens_ = kNoTensor;
};

// Appends the program of a deferred value and returns its tensor.
TensorId append_pointwise(Lowering& lowering, const Value& value, const DeferredPointwise& what);

// Throws ConfigError: the node's description, and what is not supported.
[[noreturn]] void refuse(const Node& node, const std::string& what);

// Appends the ops of a node.
using LowerNode = void (*)(Lowering& lowering, const Node& node);
// The function that lower_node() calls for a node; null if its op is not supported.
LowerNode lower_of(const Node& node);

}  // namespace lockstep::onnx
