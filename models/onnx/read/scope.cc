#include "models/onnx/read/scope.h"

#include "models/onnx/schema/onnx.pb.h"

namespace lockstep::onnx {
namespace {

// "layer1.0.conv1" for "/layer1/layer1.0/conv1/Conv": a module in a list repeats the list's name.
std::string from_name(const std::string& name) {
  std::string scope;
  std::string last;
  size_t begin = 1;
  for (size_t end; (end = name.find('/', begin)) != std::string::npos; begin = end + 1) {
    const std::string part = name.substr(begin, end - begin);
    const bool repeats = !last.empty() && part.starts_with(last + ".");
    if (repeats) scope.resize(scope.size() - last.size());
    if (!repeats && !scope.empty()) scope += '.';
    scope += part;
    last = part;
  }
  return scope;
}

}  // namespace

std::vector<std::string> texts_of(const std::string& list) {
  std::vector<std::string> texts;
  size_t at = 0;
  while ((at = list.find_first_of("'\"", at)) != std::string::npos) {
    const size_t end = list.find(list[at], at + 1);
    if (end == std::string::npos) break;
    texts.push_back(list.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return texts;
}

std::string scope_of(const schema::NodeProto& node) {
  for (const schema::StringStringEntryProto& entry : node.metadata_props()) {
    if (entry.key() != "pkg.torch.onnx.name_scopes") continue;
    const std::vector<std::string> scopes = texts_of(entry.value());
    if (scopes.size() > 1) return scopes[scopes.size() - 2];  // the last one is the op's name
  }
  return node.name().starts_with('/') ? from_name(node.name()) : "";
}

}  // namespace lockstep::onnx
