#pragma once
// What bind() is made of: the extents of the inputs, and the Binder, which makes a Network from a
// File, node by node.

#include <map>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/nodes/node_type.h"

namespace lockstep::onnx {

class Binder {
 public:
  // The file must outlive the binder.
  Binder(const File& file, const Classes& classes, const BindOptions& options);

  // Adds the next node: folds it if its inputs are known, keeps it otherwise. Sequence ops are
  // resolved.
  void add(const Node& node);
  // Whether an input of the node is undefined, because the node that computes it was not added.
  bool lacks_input(const Node& node) const;
  // A value so far; whether its type and extents are known.
  const Value& value_at(int number) const { return network_.values[static_cast<size_t>(number)]; }
  bool is_defined(int number) const { return defined_[static_cast<size_t>(number)]; }
  // Gives a value of the file, which no node computes, these elements.
  void define(int number, Array array);
  // Returns the network, with only the nodes that the outputs need.
  Network finish();

 private:
  using Sequence = std::vector<int>;  // numbers of values

  // Adds a node that is not a sequence op.
  void add_computation(const Node& node);
  void require_inputs(const Node& node) const;
  void require_own_statistics(const Node& node) const;
  bool evaluate(const Node& node, const NodeType& type, const std::vector<Form>& forms);
  void require_plausible(const NodeView& view, const std::vector<Form>& forms, bool known) const;

  // Whether the node adds a mask of booleans to scores.
  bool is_masking(const Node& node) const;
  void add_masking(const Node& node);
  // Replaces a batch norm by elementwise ops with the file's running statistics.
  void add_running_norm(const Node& node);

  // Resolves the node if it is a sequence op, and returns whether it is one.
  bool add_of_sequence(const Node& node);
  void split_to_sequence(const Node& node);
  void concat_from_sequence(const Node& node);
  // Appends a Squeeze or Unsqueeze of the axis to each part, whose result takes its place.
  void change_axis(const Node& like,
                   const char* op,
                   const char* suffix,
                   const std::string& axes_name,
                   int64_t axis,
                   Sequence& parts);
  Sequence& sequence(const NodeView& view, size_t input);
  // The index that the node's `input` gives in a sequence of `length`, counted from 0. If the input
  // is absent, `end`, which is also the largest index allowed.
  size_t sequence_index(const NodeView& view, size_t input, int64_t end, size_t length) const;
  void copy_value(int from, int to, const Node& like);

  // Adds a value that the file does not have. Returns its number.
  int new_value(const std::string& name);
  int new_constant(const std::string& name, Array array);
  // A node that replaces `like` and has its name and scope.
  static Node node_like(const Node& like,
                        const char* op,
                        std::vector<int> inputs,
                        std::vector<int> outputs);
  Value& value(int number) { return network_.values[static_cast<size_t>(number)]; }

  const File& file_;
  bool running_norms_;
  std::vector<size_t> wanted_outputs_;  // empty: all
  size_t losses_;                       // how many of them have a loss
  int64_t max_folded_bytes_;            // limit for all values that are computed here
  int64_t spare_folded_bytes_;          // how much of it is left
  std::vector<bool> learns_;            // by number of the file's values
  Network network_;
  std::vector<bool> defined_;  // by number of the value: whether type and extents are known
  std::map<int, Sequence> sequences_;
};

// The extents in the order of File::inputs. Throws ConfigError if an axis stays open, the file
// fixes another batch, or a name of the options is unknown; the message has the remedy.
std::vector<Extents> input_extents(const File& file, const BindOptions& options);

}  // namespace lockstep::onnx
