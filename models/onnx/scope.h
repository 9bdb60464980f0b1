#pragma once
// Where a node stood in PyTorch's modules.

#include <string>
#include <vector>

namespace lockstep::onnx {

namespace schema {
class NodeProto;
}

// The module's name: "layer1.0.conv1"; empty where the file does not tell. It stands in the node's metadata (torch.export's
// exporter) or in its name, "/layer1/layer1.0/conv1/Conv" (TorchScript's).
std::string scope_of(const schema::NodeProto& node);

// The texts of a list as Python prints it: ['', 'layer1', 'layer1.0', 'conv2d'].
std::vector<std::string> texts_of(const std::string& list);

}  // namespace lockstep::onnx
