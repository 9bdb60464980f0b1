#pragma once
// What PyTorch's exporter writes beside values and nodes: which initializers are parameters of the module
// and which are buffers, where no gradient passes, and which batch norms it has folded into other layers.

#include <map>
#include <string>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

namespace schema {
class GraphProto;
class NodeProto;
}  // namespace schema

// Sets FileValue::declared and FileValue::made_of of the graph's values, and File::declares,
// optimized, lost_parameters and dropped_parameters. `by_name`: numbers of the graph's values.
//
// A value's own entry goes first, then the graph's list of all parameters and buffers, by its name. What the
// exporter's optimizer has computed counts as what it was computed of: as a parameter if one is among it.
void read_declarations(const schema::GraphProto& graph,
                       const std::map<std::string, size_t>& by_name,
                       File& file);

// Whether the node is PyTorch's detach(), of which the file has a copy.
bool is_detach(const schema::NodeProto& node);

// Whether the layer stands where a batch norm stood: the exporter's optimizer has multiplied its weights by
// the norm's.
bool has_folded_norm(const schema::NodeProto& node);

// Adds to File::folded_norms the convolutions that the TorchScript exporter has folded norms into, by the
// names that it makes up for their weights.
void find_folded_norms_by_names(File& file);

}  // namespace lockstep::onnx
