#pragma once
// The PyTorch module that a node comes from.

#include <string>
#include <vector>

namespace lockstep::onnx {

namespace schema {
class NodeProto;
}

// The module's name, "layer1.0.conv1"; empty if the file does not have it. It is in the node's
// metadata (exporter of torch.export) or in the node's name, "/layer1/layer1.0/conv1/Conv"
// (TorchScript).
std::string scope_of(const schema::NodeProto& node);

// Parses a list of strings as Python prints it: ['', 'layer1', 'layer1.0', 'conv2d'].
std::vector<std::string> texts_of(const std::string& list);

}  // namespace lockstep::onnx
