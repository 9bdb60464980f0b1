#include "models/onnx/read/sort.h"

#include <functional>
#include <queue>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

// For each value, the index of the node that computes it, or -1.
std::vector<int> producers_of(const File& file) {
  std::vector<int> producers(file.values.size(), -1);
  for (size_t node = 0; node < file.nodes.size(); ++node)
    for (const int output : file.nodes[node].outputs)
      if (output >= 0) producers[static_cast<size_t>(output)] = static_cast<int>(node);
  return producers;
}

}  // namespace

void sort_nodes(File& file) {
  const std::vector<int> producers = producers_of(file);
  std::vector<std::vector<size_t>> users(file.nodes.size());
  std::vector<size_t> awaited(file.nodes.size(), 0);  // inputs that are not computed yet
  for (size_t node = 0; node < file.nodes.size(); ++node) {
    for (const int input : file.nodes[node].inputs) {
      const int producer = input < 0 ? -1 : producers[static_cast<size_t>(input)];
      if (producer < 0) continue;
      users[static_cast<size_t>(producer)].push_back(node);
      ++awaited[node];
    }
  }
  // Kahn's algorithm. Among the nodes that are ready, the first in the file is taken.
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t node = 0; node < file.nodes.size(); ++node)
    if (awaited[node] == 0) ready.push(node);
  std::vector<Node> sorted;
  sorted.reserve(file.nodes.size());
  while (!ready.empty()) {
    const size_t node = ready.top();
    ready.pop();
    sorted.push_back(std::move(file.nodes[node]));
    for (const size_t user : users[node])
      if (--awaited[user] == 0) ready.push(user);
  }
  for (size_t node = 0; node < file.nodes.size(); ++node)
    if (awaited[node] > 0)
      throw ConfigError(
          "{}: {} is part of a cycle or depends on one; the graph must have no cycles",
          file.path,
          file.nodes[node].description());
  file.nodes = std::move(sorted);
}

}  // namespace lockstep::onnx
