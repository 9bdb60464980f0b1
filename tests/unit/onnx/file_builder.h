#pragma once
// Builds a File in code, value by value, as read_file() would give it.

#include <string>
#include <utility>
#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

class FileBuilder {
 public:
  FileBuilder() {
    file_.path = "net.onnx";
    file_.opset = 23;
  }

  int input(const std::string& name,
            std::vector<OpenExtent> extents,
            ElementType type = ElementType::kFloat) {
    const int number = value(name);
    FileValue& v = file_.values.back();
    v.typed = true;
    v.type = type;
    v.has_extents = true;
    v.extents = std::move(extents);
    file_.inputs.push_back(number);
    return number;
  }

  int initializer(const std::string& name, Array array) {
    const int number = value(name);
    file_.values.back().initializer = static_cast<int>(file_.initializers.size());
    file_.initializers.push_back({name, std::move(array)});
    return number;
  }

  // Of numbers that do not repeat, so that none looks like a mask.
  int floats(const std::string& name, const Extents& extents) {
    std::vector<double> values;
    for (int64_t i = 0; i < elements(extents); ++i)
      values.push_back(0.5 + static_cast<double>(i % 7));
    return initializer(name, array_of(ElementType::kFloat, extents, values));
  }

  int integers(const std::string& name, const std::vector<int64_t>& values) {
    return initializer(name, array_of_int64({static_cast<int64_t>(values.size())}, values));
  }

  // Adds a node and gives its first output.
  int node(const std::string& op,
           std::vector<int> inputs,
           std::map<std::string, Attribute> attributes = {},
           size_t outputs = 1) {
    Node made;
    made.op = op;
    made.opset = file_.opset;
    made.name = op + "_" + std::to_string(file_.nodes.size());
    made.inputs = std::move(inputs);
    made.attributes = std::move(attributes);
    for (size_t i = 0; i < outputs; ++i)
      made.outputs.push_back(value(made.name + ".out" + std::to_string(i)));
    file_.nodes.push_back(made);
    return made.outputs.empty() ? -1 : made.outputs[0];
  }

  void output(int number) { file_.outputs.push_back(number); }
  void opset(int64_t opset) { file_.opset = opset; }
  File& file() { return file_; }

 private:
  int value(const std::string& name) {
    file_.values.emplace_back();
    file_.values.back().name = name;
    return static_cast<int>(file_.values.size()) - 1;
  }

  File file_;
};

}  // namespace lockstep::onnx
