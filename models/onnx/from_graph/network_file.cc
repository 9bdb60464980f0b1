// write_network(): from a forward graph to an ONNX file.
//
// A graph has a fixed number of samples and tokens, a file has not. So the graph is built twice,
// with other numbers: an extent that differs between the two is an open axis
// (GraphWriter::open_axis). Each op is written by its row (op_rows.h) in the order of the graph,
// which is not fused: fusion is up to the program that reads the file. The model is first
// serialised without the elements of its initializers, and write_model() puts them in their place,
// or into an external file.
#include "models/onnx/from_graph/network_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "models/onnx/from_graph/graph_writer.h"
#include "models/onnx/from_graph/op_rows.h"
#include "models/onnx/schema/onnx.pb.h"
#include "models/onnx/write/write_file.h"
#include "runtime/base/error.h"
#include "runtime/graph/ops/rotary.h"

namespace lockstep::onnx {
namespace {

// Any two numbers that no other extent depends on.
constexpr int64_t kSamples = 2, kOtherSamples = 3;

// Whether the network's weights or tables are those of one length: with dynamic NTK scaling, the
// frequencies of rotary positions change beyond the original context.
bool depends_on_length(const graph::Graph& graph) {
  return std::ranges::any_of(graph.ops, [&](const graph::Op& op) {
    if (op.kind != graph::OpKind::kRotary) return false;
    const auto& rotary = op.as<graph::RotaryAttributes>();
    return rotary.scaling == graph::RotaryScaling::kDynamicNtk &&
           graph.shape(op.inputs[graph::RotaryIn::kX])[1] > rotary.original_context;
  });
}

ProbedGraph probe(const models::OpenedModel& model, const models::ModelIo& io) {
  ProbedGraph network;
  network.samples = kSamples;
  network.other_samples = kOtherSamples;
  network.tokens = network.other_tokens = model.traits().context;
  network.graph = model.build(io, kSamples, graph::Purpose::kInference);
  if (network.tokens > 1 && !depends_on_length(network.graph)) --network.other_tokens;
  network.other = model.build(io, kOtherSamples, graph::Purpose::kInference, network.other_tokens);
  return network;
}

const OpRow* row_of(graph::OpKind kind) {
  for (const auto& rows :
       {layer_rows(), image_rows(), token_rows(), attention_rows(), movement_rows()})
    for (const OpRow& row : rows)
      if (row.kind == kind) return &row;
  return nullptr;
}

// A file beside the one to write, and its external data.
struct PlainFile {
  std::string path;

  explicit PlainFile(const std::string& target) : path(target + ".plain") {}
  ~PlainFile() {
    std::error_code ignored;
    for (const std::string& name : {path, path + ".data"}) std::filesystem::remove(name, ignored);
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;
};

}  // namespace

void write_network(const models::OpenedModel& model,
                   const models::ModelIo& io,
                   const std::string& path,
                   const TrainedElements& elements,
                   const TrainedFileOptions& options) {
  const ProbedGraph network = probe(model, io);
  const std::string name = "model." + model.traits().section;
  if (options.preprocessing == nullptr)
    return write_graph(network, name, path, elements, {.metadata = options.metadata});
  // The nodes of the preprocessing are added to a file that can be read.
  const PlainFile plain(path);
  write_graph(network, name, plain.path, elements);
  OnnxConfig config;
  config.file = plain.path;
  config.loss = model.traits().loss;
  write_trained(config, path, nullptr, options);
}

void write_graph(const ProbedGraph& network,
                 const std::string& name,
                 const std::string& path,
                 const TrainedElements& elements,
                 const Additions& additions,
                 uint64_t limit_bytes) {
  std::string bytes;
  std::map<std::string, Array> arrays;
  try {
    GraphWriter writer(network, elements);
    for (const graph::Op& op : network.graph.ops) {
      writer.begin(op);
      if (row_of(op.kind) == nullptr) writer.refuse("this kind of op");
    }
    for (const graph::Op& op : network.graph.ops) {
      writer.begin(op);
      row_of(op.kind)->write(writer, op);
    }
    writer.finish(name).SerializeToString(&bytes);
    arrays = writer.elements();
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", name, error.what());
  }
  write_model({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
              path,
              path,
              arrays,
              additions,
              limit_bytes);
}

}  // namespace lockstep::onnx
