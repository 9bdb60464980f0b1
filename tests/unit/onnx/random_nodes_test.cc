// Nodes with random inputs and attributes: each is bound or refused, and never reads or writes
// outside, overflows or divides by zero (which the sanitizers' builds of this test say).

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "models/onnx/network.h"
#include "models/onnx/nodes/node_type.h"
#include "runtime/base/error.h"
#include "tests/unit/onnx/file_builder.h"

namespace lockstep::onnx {
namespace {

std::vector<std::string> all_ops() {
  std::vector<std::string> names = {"SplitToSequence", "SequenceConstruct", "ConcatFromSequence"};
  for (const std::span<const NodeType> family : all_families())
    for (const NodeType& op : family) names.push_back(op.name);
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

// Inputs with extents, or integers that are known.
struct SeedInput {
  Extents extents;
  std::vector<int64_t> values = {};
};

// A node that binds; others are made of it by changing one or two things.
struct Seed {
  std::string op;
  std::vector<SeedInput> inputs;
  std::map<std::string, Attribute> attributes = {};
};

using PerAxis = std::vector<int64_t>;

const std::vector<Seed> kSeeds = {
    {"Conv",
     {{{2, 4, 8, 8}}, {{6, 2, 3, 3}}, {{6}}},
     {{"group", int64_t{2}},
      {"pads", PerAxis{1, 1, 1, 1}},
      {"strides", PerAxis{2, 2}},
      {"dilations", PerAxis{1, 2}}}},
    {"ConvTranspose",
     {{{2, 4, 8, 8}}, {{4, 3, 3, 3}}},
     {{"strides", PerAxis{2, 2}}, {"output_padding", PerAxis{1, 1}}}},
    {"MaxPool",
     {{{2, 4, 8, 8}}},
     {{"kernel_shape", PerAxis{3, 3}}, {"strides", PerAxis{2, 2}}, {"ceil_mode", int64_t{1}}}},
    {"BatchNormalization", {{{2, 4, 8}}, {{4}}, {{4}}, {{4}}, {{4}}}},
    {"GroupNormalization", {{{2, 4, 8}}, {{4}}, {{4}}}, {{"num_groups", int64_t{2}}}},
    {"LayerNormalization", {{{2, 4, 8}}, {{8}}, {{8}}}, {{"axis", int64_t{-1}}}},
    {"Attention",
     {{{2, 6, 8}}, {{2, 5, 8}}, {{2, 5, 12}}},
     {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{4}}}},
    {"RotaryEmbedding", {{{2, 4, 6, 8}}, {{2, 6, 4}}, {{2, 6, 4}}}},
    {"LSTM", {{{5, 2, 3}}, {{1, 16, 3}}, {{1, 16, 4}}, {{1, 32}}}, {{"hidden_size", int64_t{4}}}},
    {"Reshape", {{{2, 3, 4}}, {{2}, {0, -1}}}},
    {"Expand", {{{2, 1, 4}}, {{3}, {2, 3, 1}}}},
    {"Tile", {{{2, 3}}, {{2}, {2, 1}}}},
    {"Slice", {{{6, 5}}, {{2}, {-1, 0}}, {{2}, {-7, 9}}, {{2}, {0, 1}}, {{2}, {-2, 2}}}},
    {"Pad", {{{3, 4}}, {{4}, {1, 0, 1, 2}}}, {{"mode", std::string("reflect")}}},
    {"Split", {{{6, 4}}, {{1}, {6}}}},
    {"Transpose", {{{2, 3, 4}}}, {{"perm", PerAxis{2, 0, 1}}}},
    {"Unsqueeze", {{{2, 3}}, {{2}, {0, -1}}}},
    {"Squeeze", {{{2, 1, 3}}, {{1}, {1}}}},
    {"Concat", {{{2, 3}}, {{2, 4}}}, {{"axis", int64_t{1}}}},
    {"DepthToSpace", {{{2, 8, 3, 3}}}, {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}},
    {"SpaceToDepth", {{{2, 2, 4, 4}}}, {{"blocksize", int64_t{2}}}},
    {"Gather", {{{4, 3}}, {{2}, {1, -1}}}, {{"axis", int64_t{0}}}},
    {"GatherElements", {{{4, 3}}, {{1, 3}, {0, 1, -2}}}, {{"axis", int64_t{0}}}},
    {"GatherND", {{{2, 3, 4}}, {{2, 1, 1}, {1, 2}}}, {{"batch_dims", int64_t{1}}}},
    {"OneHot", {{{3}, {0, 2, 1}}, {{1}, {4}}, {{2}, {0, 1}}}, {{"axis", int64_t{-1}}}},
    {"Range", {{{}, {1}}, {{}, {9}}, {{}, {2}}}},
    {"ConstantOfShape", {{{3}, {2, 0, 3}}}},
    {"CumSum", {{{2, 5}}, {{}, {1}}}, {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}},
    {"TopK", {{{2, 5}}, {{1}, {3}}}},
    {"ArgMax", {{{2, 5}}}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}},
    {"ReduceSum", {{{2, 3, 4}}, {{2}, {0, -1}}}, {{"keepdims", int64_t{0}}}},
    {"Softmax", {{{2, 3, 4}}}, {{"axis", int64_t{1}}}},
    {"MatMul", {{{2, 1, 3, 4}}, {{5, 4, 2}}}},
    {"Gemm", {{{4, 3}}, {{2, 4}}, {{2}}}, {{"transA", int64_t{1}}, {"transB", int64_t{1}}}},
    {"Einsum", {{{2, 3, 4}}, {{2, 4, 5}}}, {{"equation", std::string("...ij,...jk->...ik")}}},
    {"Resize", {{{2, 3, 4, 4}}, {{0}}, {{0}}, {{4}, {2, 3, 8, 6}}}},
    {"Trilu", {{{2, 4, 5}}, {{}, {-1}}}, {{"upper", int64_t{0}}}},
    {"Div", {{{3}, {7, -8, 9}}, {{3}, {2, 3, -4}}}},
    {"Where", {{{2, 1}}, {{1, 3}}, {{2, 3}}}},
    {"SplitToSequence", {{{6, 4}}, {{}, {2}}}, {{"axis", int64_t{0}}}},
};

void change_list(Random& random, std::vector<int64_t>& values) {
  const int64_t kind = random.below(6);
  if (values.empty() || kind == 0)
    values.push_back(random.integer());
  else if (kind == 1)
    values.pop_back();
  else
    values[static_cast<size_t>(random.below(static_cast<int64_t>(values.size())))] =
        random.integer();
}

void change(Random& random, Seed& seed) {
  const int64_t kind = random.below(4);
  if (kind == 0) {
    seed.attributes[random.of(kAttributes)] = random_attribute(random);
  } else if (kind == 1 && !seed.attributes.empty()) {
    auto attribute = seed.attributes.begin();
    std::advance(attribute, random.below(static_cast<int64_t>(seed.attributes.size())));
    if (auto* list = std::get_if<PerAxis>(&attribute->second))
      change_list(random, *list);
    else if (std::holds_alternative<int64_t>(attribute->second))
      attribute->second = random.integer();
  } else {
    SeedInput& input =
        seed.inputs[static_cast<size_t>(random.below(static_cast<int64_t>(seed.inputs.size())))];
    if (!input.values.empty() && random.below(4) > 0) {
      change_list(random, input.values);
      input.extents = {static_cast<int64_t>(input.values.size())};
    } else if (!input.extents.empty()) {
      input.extents[static_cast<size_t>(random.below(static_cast<int64_t>(input.extents.size())))] =
          random.below(4) == 0 ? int64_t{1} << random.below(41) : random.below(7);
    }
  }
}

int add_input(Random& random,
              const SeedInput& input,
              const std::string& op,
              FileBuilder& builder,
              BindOptions& options,
              bool known) {
  const std::string name = "input" + std::to_string(options.inputs.size()) + "_" +
                           std::to_string(builder.file().values.size());
  const bool fits = std::all_of(
      input.extents.begin(), input.extents.end(), [](int64_t extent) { return extent < 16; });
  if (!input.values.empty()) {
    std::vector<int64_t> values = input.values;
    values.resize(fits ? static_cast<size_t>(elements(input.extents)) : 0, 1);
    return builder.initializer(name, array_of_int64(fits ? input.extents : Extents{0}, values));
  }
  const ElementType type = random.below(30) == 0                            ? random.of(kTypes)
                           : op == "Where" && builder.file().values.empty() ? ElementType::kBool
                                                                            : ElementType::kFloat;
  if (known && fits) {
    std::vector<double> values(static_cast<size_t>(elements(input.extents)), 1);
    return builder.initializer(name, array_of(type, input.extents, values));
  }
  options.inputs[name] = input.extents;
  return builder.input(name, std::vector<OpenExtent>(input.extents.size()), type);
}

bool bind_seed(const Seed& seed, Random& random) {
  FileBuilder builder;
  if (random.below(4) == 0) builder.opset(9 + random.below(15));
  BindOptions options;
  options.all_constant = true;
  const bool known = random.below(2) == 0;
  std::vector<int> inputs;
  for (const SeedInput& input : seed.inputs)
    inputs.push_back(add_input(random, input, seed.op, builder, options, known));
  const int output = builder.node(seed.op, inputs, seed.attributes);
  builder.output(
      seed.op == "SplitToSequence"
          ? builder.node("SequenceAt", {output, builder.integers("place", {random.below(3)})})
          : output);
  try {
    bind(builder.file(), {}, options);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

TEST(OnnxRandomNodes, ChangedOnesAreBoundOrRefused) {
  Random random(2);
  for (const Seed& seed : kSeeds) {
    int bound = 0;
    for (int i = 0; i < 600; ++i) {
      Seed changed = seed;
      for (int64_t changes = random.below(3); changes > 0; --changes) change(random, changed);
      bound += bind_seed(changed, random) ? 1 : 0;
    }
    // A third is as it was, but for its opset and types.
    EXPECT_GT(bound, 100) << seed.op;
  }
}

}  // namespace
}  // namespace lockstep::onnx
