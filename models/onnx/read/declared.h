#pragma once
// Reads the metadata that PyTorch's exporter writes: which initializers are parameters of the
// module and which are buffers, where no gradient passes, which batch norms were folded into other
// layers, and which module a node comes from.

#include <map>
#include <string>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// The key of the metadata by which a value declares what it is, and two of its values.
inline constexpr const char* kDeclaredKind = "pkg.torch.export.graph_signature.InputSpec.kind";
inline constexpr const char *kDeclaredParameter = "PARAMETER", *kDeclaredConstant = "BUFFER";

namespace schema {
class GraphProto;
class NodeProto;
}  // namespace schema

// Sets FileValue::declared and FileValue::made_of for the graph's values, and File::declares,
// optimized, lost_parameters and dropped_parameters. `by_name` has the numbers of the graph's
// values.
//
// The metadata of the value itself takes precedence over the graph's list of parameters and
// buffers. A value that the exporter's optimizer computed is a parameter if it was computed from a
// parameter.
void read_declarations(const schema::GraphProto& graph,
                       const std::map<std::string, size_t>& by_name,
                       File& file);

// Whether the node is an Identity that PyTorch's exporter wrote for detach().
bool is_detach(const schema::NodeProto& node);

// Whether the exporter's optimizer folded a batch norm into this layer, by multiplying its weights.
bool has_folded_norm(const schema::NodeProto& node);

// Adds to File::folded_norms the convolutions into which the TorchScript exporter folded norms.
// They are recognised by the names that it makes up for their weights.
void find_folded_norms_by_names(File& file);

// The module's name, "layer1.0.conv1"; empty if the file does not have it. It is in the node's
// metadata (exporter of torch.export) or in the node's name, "/layer1/layer1.0/conv1/Conv"
// (TorchScript).
std::string scope_of(const schema::NodeProto& node);

}  // namespace lockstep::onnx
