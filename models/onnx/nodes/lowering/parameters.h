#pragma once
// The parameters of the graph. The first op that uses a parameter decides how it is stored
// (Storage). An op that cannot share that reads a copy.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/readers.h"
#include "models/onnx/nodes/lowering/storage.h"
#include "runtime/graph/builder.h"

namespace lockstep::onnx {

struct LoweredParameter {
  TensorId tensor = kNoTensor;
  int value = -1;  // number of the network's value
  Storage storage = Storage::kAsInFile;
};

class Parameters {
 public:
  // Borrows both.
  Parameters(const Network& network, graph::GraphBuilder& builder)
      : network_(network), builder_(builder) {}

  // The parameter of the graph with this storage. Created by the first request; throws ConfigError
  // if it exists with another storage.
  TensorId get(int number, Storage storage = Storage::kAsInFile);
  // Whether get() would succeed.
  bool can_have(int number, Storage storage) const;
  // Like get(), for a parameter that no other op may share, such as those of norms.
  TensorId unshared(int number);
  // A running statistic, which starts from a constant of the file. Each may be used by one node.
  TensorId running_statistic(const Node& node, int number, float momentum);
  // Copies the parameter into an activation.
  TensorId copy_of(ParameterSource source, const std::string& name);
  // In the order of creation: as many as Graph::parameters.
  const std::vector<LoweredParameter>& all() const { return all_; }

 private:
  const Value& value(int number) const { return network_.values[static_cast<size_t>(number)]; }
  TensorId add(int number, Storage storage, TensorId tensor);

  const Network& network_;
  graph::GraphBuilder& builder_;
  std::vector<LoweredParameter> all_;
  std::map<int, size_t> index_of_;  // by value: index in all_
  std::set<int> unshared_;          // values
};

}  // namespace lockstep::onnx
