// Networks of built-in families that are written as ONNX files and read again. Catches: an op that
// is written as another function, weights in another order or under another name, extents that are
// those of the graph instead of the caller's, and parameters that would not train again.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "models/onnx/from_graph/network_file.h"
#include "models/onnx/network.h"
#include "models/registry.h"
#include "models/small_models.h"
#include "runtime/base/error.h"
#include "runtime/exec/op_runner.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/diffusion_noise.h"
#include "runtime/graph/ops/image_normalize.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/local_response_norm.h"
#include "runtime/graph/ops/pooling.h"
#include "tests/reference/backend_of_tests.h"
#include "tests/reference/models.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::onnx {
namespace {

using graph::Graph;
using graph::Purpose;

// Weights small enough for outputs of the order of 1; variances above 0.
class Weights {
 public:
  explicit Weights(const Graph& graph) {
    std::mt19937_64 random(5);
    for (const TensorId id : graph.parameters) {
      const graph::Tensor& tensor = graph[id];
      const int64_t fan_in =
          tensor.shape.rank() < 2 ? 1 : tensor.shape.elements() / tensor.shape[0];
      const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
      const bool positive = tensor.name.ends_with("running_var");
      std::vector<float>& elements = elements_[tensor.name];
      while (static_cast<int64_t>(elements.size()) < tensor.shape.elements()) {
        const double share = static_cast<double>(random() >> 11) * 0x1p-53;
        elements.push_back(static_cast<float>(positive ? 0.5 + share : bound * (2 * share - 1)));
      }
    }
  }

  const float* operator()(const std::string& name) const { return elements_.at(name).data(); }
  const std::map<std::string, std::vector<float>>& all() const { return elements_; }

 private:
  std::map<std::string, std::vector<float>> elements_;
};

// Pixels, features or tokens. The rows of a text are its tokens, documents, positions and segments;
// every other text ends in padding.
std::vector<double> drawn_input(const graph::Tensor& tensor, int64_t ids, int64_t segments) {
  std::mt19937_64 random(3);
  std::vector<double> elements;
  const Shape& shape = tensor.shape;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const auto word = static_cast<double>(random() >> 11) * 0x1p-53;
    if (tensor.dtype == DType::kF32) elements.push_back(2 * word - 1);
    if (tensor.dtype == DType::kU8) elements.push_back(std::floor(256 * word));
    if (tensor.dtype != DType::kI32) continue;
    const int64_t tokens = shape.columns(), token = i % tokens, row = i / tokens;
    const int64_t kind = shape.rank() == 3 ? row % shape[1] : 0, text = row / 4;
    const bool padding = text % 2 == 1 && token >= tokens - 5;
    const double values[] = {std::floor(static_cast<double>(ids) * word),
                             padding ? -1.0 : 0.0,
                             static_cast<double>(token),
                             std::floor(static_cast<double>(segments) * word)};
    elements.push_back(values[kind]);
  }
  return elements;
}

// A network's outputs. `weights`: null for those that the graph begins with.
std::vector<double> outputs_of(const Graph& graph,
                               const std::vector<double>& input,
                               const Weights* weights) {
  const auto backend = testing::make_backend_of_tests();
  backend->reserve(backend->ops().workspace_bytes +
                   exec::OpRunner::device_bytes(graph, backend->ops()));
  exec::OpRunner runner(graph, *backend);
  runner.begin({.valid_rows = 1});
  for (const TensorId id : graph.parameters) {
    std::vector<float> elements;
    if (weights != nullptr)
      elements = weights->all().at(graph[id].name);
    else
      elements = graph[id].initializer.elements();
    runner.write(id, std::vector<double>(elements.begin(), elements.end()));
  }
  runner.write(graph.inputs[graph::GraphIn::kInput], input);
  for (size_t i = 0; i < graph.ops.size(); ++i) runner.run(i);
  return runner.read(graph.result);
}

// Sets the outputs of padding to 0: nothing is promised about them.
void clear_padding(const std::vector<double>& texts,
                   const Shape& shape,
                   std::vector<double>& outputs) {
  const int64_t tokens = shape[2], columns = std::ssize(outputs) / (shape[0] * tokens);
  for (int64_t i = 0; i < std::ssize(outputs); ++i) {
    const int64_t text = i / columns / tokens, token = i / columns % tokens;
    const int64_t document = (text * shape[1] + 1) * tokens + token;
    if (texts[static_cast<size_t>(document)] < 0) outputs[static_cast<size_t>(i)] = 0;
  }
}

OnnxConfig::Task task_of(const config::ModelTraits& traits) {
  using Task = OnnxConfig::Task;
  switch (traits.text_task) {
    case config::TextTask::kMaskedTokens: return Task::kMaskedTokens;
    case config::TextTask::kSequenceClass: return Task::kSequenceClasses;
    case config::TextTask::kSequenceValues:
    case config::TextTask::kEmbeddings: return Task::kSequenceValues;
    case config::TextTask::kTokenClasses: return Task::kTokenClasses;
    default: return Task::kNextToken;
  }
}

// Sums of a few thousand products of numbers below 1, in another order.
void expect_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  double largest = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], 1e-5 * largest) << "output " << i;
}

class WrittenNetworks : public ::testing::Test {
 protected:
  // A new one for each network, because files that were read are kept.
  std::string new_path() {
    return (folder_.path() / fmt::format("net{}.onnx", number_++)).string();
  }

  // Writes the network, and compares its outputs with those of the file for other numbers of
  // samples and tokens than the file was written with.
  void check(const ModelConfig& config, const models::ModelIo& io) {
    const auto model = models::open_model(config);
    const Weights weights(model->build(io, 1, Purpose::kInference));
    OnnxConfig onnx;
    onnx.file = new_path();
    write_network(*model, io, onnx.file, std::cref(weights));
    onnx.task = task_of(model->traits());
    if (model->traits().input == config::ModelInput::kFeatures) onnx.loss = model->traits().loss;
    onnx.context = model->traits().context;
    const auto read = models::open_model(onnx);
    const int64_t tokens = std::max<int64_t>(model->traits().context - 7, 0);
    const Graph graph = model->build(io, 5, Purpose::kInference, tokens),
                again = read->build(io, 5, Purpose::kInference, tokens);
    const std::vector<double> input = drawn_input(graph[graph.inputs[graph::GraphIn::kInput]],
                                                  io.classes + io.vocabulary,
                                                  model->traits().segments);
    const Shape& shape = graph[graph.inputs[graph::GraphIn::kInput]].shape;
    const bool of_tokens = shape.rank() == 3 && graph.shape(graph.result).rank() == 3;
    std::vector<double> found = outputs_of(again, input, nullptr),
                        wanted = outputs_of(graph, input, &weights);
    if (of_tokens) {
      for (std::vector<double>* outputs : {&found, &wanted}) clear_padding(input, shape, *outputs);
    }
    expect_near(found, wanted);
    std::vector<std::string> names;
    for (const TensorId id : again.parameters) names.push_back(again[id].name);
    EXPECT_EQ(names.size(), weights.all().size());
    for (const std::string& name : names) EXPECT_TRUE(weights.all().contains(name)) << name;
  }

  testing::TemporaryFolder folder_;
  int number_ = 0;
};

TEST_F(WrittenNetworks, OfAllFamilies) {
  for (const models::SmallModel& small : models::small_models()) {
    if (std::holds_alternative<DitConfig>(small.config) || small.io.height > 12) continue;
    if (small.answers) continue;  // a reward model has packed texts, and no file
    SCOPED_TRACE(small.name);
    models::ModelIo io = small.io;
    io.texts = 1;  // a file has the vector of one text
    check(small.config, io);
  }
}

TEST_F(WrittenNetworks, OfTextEncoders) {
  using Task = BertConfig::Task;
  for (const Task task : {Task::kMaskedTokens,
                          Task::kSequenceClasses,
                          Task::kSequenceValues,
                          Task::kTokenClasses,
                          Task::kEmbeddings}) {
    BertConfig bert = testing::small_bert(task);
    bert.segments = 2;
    SCOPED_TRACE(static_cast<int>(task));
    check(bert, {.vocabulary = bert.vocabulary});
    bert.layout = BertConfig::Layout::kRoberta;
    bert.pooling = BertConfig::Pooling::kMean;
    bert.segments = 1;
    check(bert, {.vocabulary = bert.vocabulary});
  }
}

// Images of other than the usual sizes, with each kind of adaptive window.
TEST_F(WrittenNetworks, OfImages) {
  models::ModelIo io = testing::small_image_io();
  MobilenetV2Config mobilenet;
  mobilenet.classes = 7;
  check(mobilenet, io);
  LenetConfig lenet;
  lenet.classes = 7;
  lenet.activation = Activation::kTanh;
  lenet.pooling = LenetConfig::Pooling::kAverage;
  io.height = 36;
  io.channels = 1;
  io.mean = io.std = {0.5f};
  check(lenet, io);
}

// Ops of AlexNet and VGG, whose own weights are too large for a test.
TEST_F(WrittenNetworks, LayersOfPooledImages) {
  for (const int64_t windows : {2, 3, 7}) {
    SCOPED_TRACE(windows);
    const auto build = [&](int64_t samples) {
      graph::GraphBuilder builder{graph::GraphOptions(Purpose::kInference)};
      const models::ModelIo io = testing::small_image_io();
      TensorId x = builder.input("images", {samples, 6, 4, 3}, DType::kU8);
      x = ops::image_normalize(builder, "normal", x, {io.mean, io.std});
      const auto parameter = [&](const char* name, Shape shape) {
        return builder.parameter(name, shape, {}, true);
      };
      const TensorId kernel = parameter("kernel", {8, 3, 3, 3});
      builder.set_channels_last(kernel, {8, 3, 3, 3});
      graph::Conv2dAttributes conv;
      conv.padding = {1, 1};
      conv.activation = Activation::kRelu6;
      x = ops::conv2d(builder, "conv", x, kernel, parameter("bias", {8}), conv);
      x = ops::local_response_norm(builder, "norm", x, {.size = 5, .alpha = 0.5f, .k = 2});
      x = ops::max_pool(
          builder, "pool", x, {.kernel = {3, 2}, .stride = {1, 1}, .padding = {1, 0}});
      x = ops::adaptive_avg_pool(builder, "means", x, {windows, windows});
      const TensorId weight = parameter("weight", {7, windows * windows * 8});
      builder.set_channels_last(weight, {7, windows, windows, 8});
      builder.keep(ops::linear(builder, "linear", x, weight, kNoTensor, Activation::kSilu));
      return std::move(builder).finish();
    };
    ProbedGraph network{build(2), build(3), 2, 3};
    const Weights weights(network.graph);
    OnnxConfig onnx;
    onnx.file = new_path();
    write_graph(network, "net", onnx.file, std::cref(weights));
    models::ModelIo io = testing::small_image_io();
    io.height = 6;
    io.width = 4;
    const Graph graph = build(5),
                again = models::open_model(onnx)->build(io, 5, Purpose::kInference);
    const std::vector<double> input =
        drawn_input(graph[graph.inputs[graph::GraphIn::kInput]], 0, 0);
    expect_near(outputs_of(again, input, nullptr), outputs_of(graph, input, &weights));
  }
}

TEST_F(WrittenNetworks, InputsAndOutput) {
  const BertConfig bert = testing::small_bert(BertConfig::Task::kTokenClasses);
  const auto model = models::open_model(bert);
  const Weights weights(model->build({}, 1, Purpose::kInference));
  const std::string path = new_path();
  write_network(*model, {}, path, std::cref(weights));
  const File file = read_file(path);
  const auto described = [&](int number) {
    const FileValue& value = file.values[static_cast<size_t>(number)];
    std::string text = value.name;
    for (const OpenExtent& extent : value.extents)
      text += extent.extent > 0 ? " " + std::to_string(extent.extent) : " " + extent.name;
    return text;
  };
  std::vector<std::string> inputs;
  for (const int input : file.inputs) inputs.push_back(described(input));
  EXPECT_EQ(inputs,
            (std::vector<std::string>{"input_ids batch sequence",
                                      "attention_mask batch sequence",
                                      "token_type_ids batch sequence"}));
  ASSERT_EQ(file.outputs.size(), 1U);
  EXPECT_EQ(file.values[static_cast<size_t>(file.outputs[0])].name, "output");
}

TEST_F(WrittenNetworks, LargeOnesHaveTheirWeightsInAFileOfTheirOwn) {
  const models::ModelIo io = testing::small_mlp_io();
  const auto model = models::open_model(testing::small_mlp());
  const auto build = [&](int64_t samples) {
    return model->build(io, samples, Purpose::kInference);
  };
  ProbedGraph network{build(2), build(3), 2, 3};
  const Weights weights(network.graph);
  OnnxConfig onnx;
  onnx.file = new_path();
  write_graph(network, "net", onnx.file, std::cref(weights), {}, 3000);
  EXPECT_LE(std::filesystem::file_size(onnx.file), 3000U);
  EXPECT_GE(std::filesystem::file_size(onnx.file + ".data"), 18U * 24 * sizeof(float));
  const Graph graph = build(5), again = models::open_model(onnx)->build(io, 5, Purpose::kInference);
  const std::vector<double> input = drawn_input(graph[graph.inputs[graph::GraphIn::kInput]], 0, 0);
  expect_near(outputs_of(again, input, nullptr), outputs_of(graph, input, &weights));
}

TEST_F(WrittenNetworks, AnOpWithoutARowIsRefusedByName) {
  const models::ModelIo io = testing::small_image_io();
  DitConfig dit;
  dit.layers = 1;
  dit.heads = 2;
  dit.width = 8;
  dit.patch = 4;
  dit.classes = 7;
  const auto model = models::open_model(dit);
  const Weights weights(model->build(io, 1, Purpose::kInference));
  const std::string path = new_path();
  try {
    write_network(*model, io, path, std::cref(weights));
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 14), "model.dit: op ") << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep::onnx
