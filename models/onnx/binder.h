#pragma once
// The pass that makes a Network of a File, node by node. Used by bind() alone.

#include <map>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/rules/table.h"

namespace lockstep::onnx {

class Binder {
 public:
  // The file must outlive the binder.
  Binder(const File& file, const Classes& classes, const BindOptions& options);

  // The next node: known, computed, or resolved where it handles sequences.
  void add(const Node& node);
  // Whether a node that would compute one of its inputs has not been added.
  bool lacks_input(const Node& node) const;
  // What the outputs need.
  Network finish();

 private:
  using Sequence = std::vector<int>;  // numbers of values

  // Any op but those of sequences.
  void add_computation(const Node& node);
  void require_inputs(const Node& node) const;
  void require_own_statistics(const Node& node) const;
  bool evaluate(const Node& node, const Op& op, const std::vector<Form>& forms);
  void require_plausible(const NodeView& view, const std::vector<Form>& forms, bool known) const;

  // Whether the node adds a mask of truth values to scores.
  bool is_masking(const Node& node) const;
  void add_masking(const Node& node);
  // A batch norm with the statistics of the file.
  void add_running_norm(const Node& node);

  // Whether the node handles sequences; then it is done.
  bool add_of_sequence(const Node& node);
  void split_to_sequence(const Node& node);
  void concat_from_sequence(const Node& node);
  Sequence& sequence(const NodeView& view, size_t place);
  size_t place_in(const NodeView& view, size_t place, int64_t index, size_t length) const;
  void copy_value(int from, int to, const Node& like);

  // A value that the file does not have.
  int new_value(const std::string& name);
  int new_constant(const std::string& name, Array array);
  // A node that stands in the place of another.
  static Node node_like(const Node& like,
                        const char* op,
                        std::vector<int> inputs,
                        std::vector<int> outputs);
  Value& value(int number) { return network_.values[static_cast<size_t>(number)]; }

  const File& file_;
  bool running_norms_;
  std::vector<size_t> wanted_outputs_;  // none: all are
  int64_t most_folded_bytes_;           // of all values that are computed here
  int64_t spare_folded_bytes_;          // which are left of those
  std::vector<bool> learns_;            // by number of a value of the file
  Network network_;
  std::vector<bool> defined_;  // by number of a value: whether type and extents are known
  std::map<int, Sequence> sequences_;
};

}  // namespace lockstep::onnx
