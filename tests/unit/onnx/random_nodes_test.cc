// Nodes with random inputs and attributes: each is bound or refused, and never reads or writes outside, overflows
// or divides by zero (which the sanitizers' builds of this test say).

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "models/onnx/network.h"
#include "models/onnx/rules/table.h"
#include "runtime/base/error.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

std::vector<std::string> all_ops() {
  std::vector<std::string> names = {"SplitToSequence", "SequenceConstruct", "ConcatFromSequence"};
  for (const std::span<const Op> family : {activation_ops(),
                                           attention_ops(),
                                           convolution_ops(),
                                           creation_ops(),
                                           elementwise_ops(),
                                           indexing_ops(),
                                           movement_ops(),
                                           normalization_ops(),
                                           product_ops(),
                                           random_ops(),
                                           recurrence_ops(),
                                           reduction_ops(),
                                           resizing_ops(),
                                           slicing_ops()})
    for (const Op& op : family) names.push_back(op.name);
  return names;
}

const std::vector<std::string> kAttributes = {"axis",         "axes",
                                              "perm",         "keepdims",
                                              "kernel_shape", "strides",
                                              "pads",         "dilations",
                                              "group",        "auto_pad",
                                              "ceil_mode",    "allowzero",
                                              "blocksize",    "mode",
                                              "split",        "starts",
                                              "ends",         "num_outputs",
                                              "to",           "dtype",
                                              "value",        "k",
                                              "upper",        "batch_dims",
                                              "equation",     "transA",
                                              "transB",       "exclusive",
                                              "reverse",      "hidden_size",
                                              "direction",    "layout",
                                              "q_num_heads",  "kv_num_heads",
                                              "scales",       "output_padding",
                                              "start",        "end",
                                              "min",          "max",
                                              "num_groups",   "output_shape",
                                              "fmod",         "shape",
                                              "new_axis"};

const std::vector<std::string> kTexts = {"SAME_UPPER",
                                         "VALID",
                                         "ij,jk->ik",
                                         "...i,i...->...",
                                         "ii->i",
                                         "reflect",
                                         "edge",
                                         "wrap",
                                         "CRD",
                                         "bidirectional",
                                         "",
                                         "i->ii",
                                         "not_larger"};

class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}
  int64_t below(int64_t end) {
    return static_cast<int64_t>(generator_() % static_cast<uint64_t>(end));
  }
  template <typename T>
  const T& of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }
  // Mostly small, at times as large as there are.
  int64_t integer() {
    static const std::vector<int64_t> kLarge = {std::numeric_limits<int64_t>::min(),
                                                std::numeric_limits<int64_t>::max(),
                                                int64_t{1} << 33,
                                                -(int64_t{1} << 60),
                                                int64_t{1} << 40};
    return below(12) == 0 ? of(kLarge) : below(9) - 3;
  }
  std::vector<int64_t> integers() {
    std::vector<int64_t> values(static_cast<size_t>(below(5)));
    for (int64_t& value : values) value = integer();
    return values;
  }
  Extents extents(bool large) {
    Extents extents(static_cast<size_t>(below(6)));
    for (int64_t& extent : extents)
      extent = large && below(10) == 0 ? int64_t{1} << below(46) : below(5);
    return extents;
  }

 private:
  std::mt19937_64 generator_;
};

const std::vector<ElementType> kTypes = {ElementType::kFloat,
                                         ElementType::kFloat,
                                         ElementType::kFloat,
                                         ElementType::kInt64,
                                         ElementType::kInt64,
                                         ElementType::kBool,
                                         ElementType::kInt32,
                                         ElementType::kUint64,
                                         ElementType::kFloat16,
                                         ElementType::kInt8,
                                         ElementType::kDouble};

Array random_array(Random& random) {
  const Extents extents = random.below(3) == 0 ? Extents{random.below(5)} : random.extents(false);
  const ElementType type = random.of(kTypes);
  std::vector<double> values(static_cast<size_t>(elements(extents)));
  for (double& value : values) value = static_cast<double>(random.integer());
  return array_of(type, extents, values);
}

Attribute random_attribute(Random& random) {
  switch (random.below(6)) {
    case 0: return random.of(kTexts);
    case 1: return static_cast<float>(random.integer());
    case 2: return random_array(random);
    case 3: return random.integers();
    case 4: return std::vector<float>{static_cast<float>(random.integer()), 2};
    default: return random.integer();
  }
}

int random_input(Random& random,
                 FileBuilder& builder,
                 BindOptions& options,
                 const std::string& name) {
  if (random.below(20) == 0) return -1;
  if (random.below(2) == 0) return builder.initializer(name, random_array(random));
  options.inputs[name] = random.extents(true);
  const std::vector<OpenExtent> open(options.inputs[name].size());
  return builder.input(name, open, random.of(kTypes));
}

// Whether the node was bound.
bool bind_random_node(const std::string& op, Random& random) {
  FileBuilder builder;
  builder.opset(9 + random.below(15));
  BindOptions options;
  std::vector<int> inputs(static_cast<size_t>(random.below(6)));
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = random_input(random, builder, options, "input" + std::to_string(i));
  std::map<std::string, Attribute> attributes;
  for (int64_t count = random.below(5); count > 0; --count)
    attributes[random.of(kAttributes)] = random_attribute(random);
  builder.output(builder.node(op, inputs, attributes, 1 + static_cast<size_t>(random.below(3))));
  options.all_constant = random.below(2) == 0;
  try {
    const Network network = bind(builder.file(), classify(builder.file()), options);
    for (const int64_t extent : network.values[static_cast<size_t>(network.outputs[0])].extents)
      EXPECT_GE(extent, 0) << op;
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

TEST(OnnxRandomNodes, AreBoundOrRefused) {
  Random random(1);
  int bound = 0;
  for (const std::string& op : all_ops())
    for (int i = 0; i < 400; ++i) bound += bind_random_node(op, random) ? 1 : 0;
  EXPECT_GT(bound, 1000);
}

}  // namespace
}  // namespace lockstep::onnx
