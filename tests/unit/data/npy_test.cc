// Catches wrong images, features or labels of NumPy's arrays, and .npy files that are believed
// though they lie.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/images/npy_array.h"
#include "runtime/data/placeholder.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

// A file as numpy.save() writes it, but that the header's length is no multiple of 64.
std::string npy_with(const std::string& header, const std::string& values, char major = 1) {
  std::string file = std::string("\x93NUMPY") + major + '\0';
  const size_t length = header.size() + 1;
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) file += static_cast<char>(length >> (8 * i));
  return file + header + '\n' + values;
}

std::string header_of(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }   ";
}

template <typename Value>
std::string npy(const std::string& descr,
                const std::string& shape,
                const std::vector<Value>& values,
                char major = 1) {
  std::string bytes(values.size() * sizeof(Value), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return npy_with(header_of(descr, shape), bytes, major);
}

std::vector<uint8_t> counting(size_t count) {
  std::vector<uint8_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint8_t>(i);
  return values;
}

class Npy : public ::testing::Test {
 protected:
  Npy() {
    config_.dir = folder_.path();
    npy_.train_inputs = folder_.write("x.npy", npy("|u1", "(3, 2, 2)", counting(12)));
    npy_.train_labels = folder_.write("y.npy", npy<int64_t>("<i8", "(3,)", {0, 4, 1}));
  }
  DataConfig& config() {
    config_.source = npy_;
    return config_;
  }
  OpenedData images(bool need_train = true) { return test::open_images(config(), 1, need_train); }
  OpenedData features(int64_t outputs = 0) {
    return open_data(config(), test::mlp(Loss::kSoftmaxCrossEntropy, outputs), 1, true);
  }
  OpenedData values(Loss loss) { return open_data(config(), test::mlp(loss, 0), 1, true); }
  void use_features() {
    npy_.train_inputs =
        folder_.write("f.npy", npy<float>("<f4", "(3, 2)", {0.5f, -1, 2, 3.25f, -1e10f, 1e-30f}));
  }

  test::TemporaryFolder folder_;
  DataConfig config_;
  NpyConfig npy_;
};

TEST_F(Npy, ReadsGreyImages) {
  const OpenedData opened = images();
  EXPECT_EQ(opened.train->samples(), 3);
  EXPECT_EQ(opened.train->input().shape, (Shape{2, 2, 1}));
  EXPECT_EQ(opened.summary.classes, 5);
  EXPECT_EQ(opened.eval, nullptr);
  const auto sample = test::read<uint8_t, int32_t>(*opened.train, {.index = 1});
  EXPECT_EQ(sample.input, (std::vector<uint8_t>{4, 5, 6, 7}));
  EXPECT_EQ(sample.target[0], 4);
}

TEST_F(Npy, ReadsColourImagesOfEveryVersionAndCompressed) {
  for (const char major : {1, 2, 3}) {
    const std::string file = npy("|u1", "(3, 1, 2, 3)", counting(18), major);
    for (const std::string& bytes : {file, test::gzip(file)}) {
      npy_.train_inputs = folder_.write("c.npy", bytes);
      const OpenedData opened = images();
      EXPECT_EQ(opened.train->input().shape, (Shape{1, 2, 3}));
      const auto sample = test::read<uint8_t, int32_t>(*opened.train, {.index = 2});
      EXPECT_EQ(sample.input, (std::vector<uint8_t>{12, 13, 14, 15, 16, 17}));
    }
  }
}

TEST_F(Npy, GivesImagesAsFeaturesToo) {
  const OpenedData opened = features();
  EXPECT_EQ(opened.train->input().shape, Shape{4});
  const auto sample = test::read<float, int32_t>(*opened.train, {.index = 2});
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(sample.input[i], (static_cast<float>(8 + i) / 255.0f - 0.5f) / 0.5f);
}

TEST_F(Npy, ReadsFeaturesAsTheyAre) {
  use_features();
  const OpenedData opened = features();
  EXPECT_EQ(opened.train->input().shape, Shape{2});
  EXPECT_EQ(opened.summary.features, 2);
  EXPECT_EQ(opened.summary.classes, 5);
  EXPECT_EQ(opened.summary.height, 0);
  const auto sample = test::read<float, int32_t>(*opened.train, {.index = 2});
  EXPECT_EQ(sample.input, (std::vector<float>{-1e10f, 1e-30f}));
  EXPECT_EQ(sample.target[0], 1);
  EXPECT_EQ(features(7).summary.classes, 7);
}

TEST_F(Npy, TakesDistributionsWhoseSumIsOne) {
  npy_.train_inputs = folder_.write("f.npy", npy<float>("<f4", "(2, 1)", {1, 2}));
  const auto shares = [&](std::vector<float> numbers) {
    npy_.train_labels = folder_.write("v.npy", npy<float>("<f4", "(2, 2)", numbers));
    return values(Loss::kSoftCrossEntropy);
  };
  EXPECT_EQ(shares({0.25f, 0.75f, 1, 0}).summary.target_columns, 2);
  EXPECT_EQ(shares({0.25f, 0.7505f, 1, 0}).summary.classes, 0);
  expect_parts(error_of([&] {
                 shares({0.25f, 0.75f, 0.5f, 0.75f});
               }),
               {"v.npy", "the 2 targets of sample 1 have the sum 1.25"});
  expect_parts(error_of([&] {
                 shares({0.25f, 0.75f, -0.5f, 1});
               }),
               {"v.npy", "target 0 of sample 1 is -0.5", "0 to 1"});
}

TEST_F(Npy, ReadsRowsOfSeveralExtentsAndValuesToPredict) {
  npy_.train_inputs = folder_.write("f.npy", npy<float>("<f4", "(2, 1, 3)", {1, 2, 3, 4, 5, 6}));
  npy_.train_labels = folder_.write("v.npy", npy<float>("<f4", "(2, 2, 1)", {0, 0.25f, 0.5f, 1}));
  for (const Loss loss : {Loss::kMeanSquaredError, Loss::kBinaryCrossEntropy}) {
    const OpenedData opened = values(loss);
    EXPECT_EQ(opened.summary.features, 3);
    EXPECT_EQ(opened.summary.target_columns, 2);
    EXPECT_EQ(opened.summary.classes, 0);
    const auto sample = test::read<float, float>(*opened.train, {.index = 1});
    EXPECT_EQ(sample.input, (std::vector<float>{4, 5, 6}));
    EXPECT_EQ(sample.target, (std::vector<float>{0.5f, 1}));
  }
  npy_.train_labels = folder_.write("v.npy", npy<float>("<f4", "(2,)", {0.5f, 1.5f}));
  EXPECT_EQ(values(Loss::kMeanSquaredError).summary.target_columns, 1);
  expect_parts(error_of([&] { values(Loss::kBinaryCrossEntropy); }),
               {"v.npy", "target 0 of sample 1 is 1.5", "0 to 1"});
  npy_.train_labels = folder_.write("v.npy", npy<uint8_t>("|u1", "(2,)", {0, 1}));
  expect_parts(error_of([&] { values(Loss::kMeanSquaredError); }), {"v.npy", "uint8 targets"});
  npy_.train_labels = folder_.write("v.npy", npy<float>("<f4", "(2,)", {0, INFINITY}));
  expect_parts(error_of([&] { values(Loss::kMeanSquaredError); }), {"v.npy", "sample 1 is inf"});
}

TEST_F(Npy, ReadsLabelsOfEveryTypeAndAsAColumn) {
  npy_.train_labels = folder_.write("y.npy", npy<uint8_t>("|b1", "(3,)", {1, 0, 1}));
  EXPECT_EQ(images().summary.classes, 2);
  for (const std::string& bytes : {npy<uint8_t>("|u1", "(3,)", {2, 0, 3}),
                                   npy<int32_t>("<i4", "(3,)", {2, 0, 3}),
                                   npy<int64_t>("<i8", "(3, 1)", {2, 0, 3})}) {
    npy_.train_labels = folder_.write("y.npy", bytes);
    const OpenedData opened = images();
    EXPECT_EQ(opened.summary.classes, 4);
    EXPECT_EQ((test::read<uint8_t, int32_t>(*opened.train, {.index = 2}).target[0]), 3);
  }
}

TEST_F(Npy, EvaluatesOnArraysOfItsOwn) {
  npy_.eval_inputs = folder_.write("xe.npy", npy("|u1", "(1, 2, 2)", counting(4)));
  npy_.eval_labels = folder_.write("ye.npy", npy<uint8_t>("|u1", "(1,)", {3}));
  const OpenedData opened = images(false);
  EXPECT_EQ(opened.train, nullptr);
  EXPECT_EQ(opened.eval->samples(), 1);
  EXPECT_EQ(opened.summary.classes, 5);  // those of the training labels
  npy_.eval_labels = folder_.write("ye.npy", npy<uint8_t>("|u1", "(1,)", {5}));
  expect_parts(error_of([&] { images(); }), {"ye.npy", "label 5 of sample 0", "allowed: 0..4"});
  npy_.eval_labels = folder_.write("ye.npy", npy<uint8_t>("|u1", "(1,)", {4}));
  npy_.eval_inputs = folder_.write("xe.npy", npy<float>("<f4", "(1, 2)", {1, 2}));
  expect_parts(error_of([&] { images(); }),
               {"xe.npy: holds float32 features", "needs uint8 images"});
  use_features();
  npy_.eval_inputs = folder_.write("xe.npy", npy<float>("<f4", "(1, 3)", {1, 2, 3}));
  expect_parts(error_of([&] { features(); }), {"xe.npy: has 3 features", "f.npy has 2"});
}

TEST_F(Npy, RefusesWhatDoesNotFitTogether) {
  npy_.train_labels = folder_.write("y.npy", npy<uint8_t>("|u1", "(2,)", {0, 1}));
  expect_parts(error_of([&] { images(); }), {"x.npy has 3 samples", "y.npy has 2 labels"});
  struct Case {
    std::string labels, part;
  };
  const std::vector<Case> cases = {
      {npy<int64_t>("<i8", "(3,)", {0, -1, 1}), "label -1 of sample 1; allowed: 0..9999999"},
      {npy<int64_t>("<i8", "(3,)", {0, 1, int64_t{1} << 32}), "label 4294967296 of sample 2"},
      {npy<int64_t>("<i8", "(3,)", {1, -1, 1}), "make 0 and 1 of -1 and 1 with (y + 1) // 2"},
      {npy<int64_t>("<i8", "(3,)", {1, -3, 0}), "the smallest label is -3"},
      {npy<float>("<f4", "(3,)", {0, 1, 2}), "float32 labels, all of them whole numbers"},
      {npy<float>("<f4", "(3,)", {0, 3.7f, 2}), "label 3.7 of sample 1 is no class"},
      {npy<uint8_t>("|u1", "(3, 2)", {0, 1, 2, 3, 4, 5}), "labels of 2 dimensions"},
      {npy<uint8_t>("|u1", "(3, 2)", {0, 1, 1, 0, 0, 1}), "one-hot labels, rows of 2"},
      {npy<float>("<f4", "(3, 2)", {0, 1, 1, 0, 0, 1}), "numpy.argmax(y, axis=1)"},
      {npy<float>("<f4", "(3, 2)", {0, 1, 1, 1, 0, 1}), "labels of 2 dimensions"},
  };
  for (const Case& bad : cases) {
    npy_.train_labels = folder_.write("y.npy", bad.labels);
    expect_parts(error_of([&] { images(); }), {"y.npy", bad.part});
  }
}

// Also as images, and beside an evaluation set.
TEST_F(Npy, WarnsOfLabelsThatBeginAt1) {
  npy_.train_labels = folder_.write("y.npy", npy<uint8_t>("|u1", "(3,)", {1, 2, 1}));
  for (const bool as_features : {false, true}) {
    if (as_features)
      npy_.train_inputs = folder_.write("f.npy", npy<float>("<f4", "(3, 1)", {0.5f, -1, 2}));
    const OpenedData opened = as_features ? features() : images();
    ASSERT_EQ(opened.summary.warnings.size(), 1u);
    expect_parts(opened.summary.warnings[0], {"y.npy: the labels are 1 to 2", "subtract 1"});
    expect_parts(error_of([&] { features(2); }),
                 {"3 classes; model.mlp.outputs is 2", "labels are 1 to 2", "subtract 1"});
  }
  EXPECT_EQ(features(4).summary.warnings.size(), 1u);
  npy_.eval_inputs = npy_.train_inputs;
  npy_.eval_labels = folder_.write("ye.npy", npy<uint8_t>("|u1", "(3,)", {0, 1, 1}));
  const OpenedData shifted = features();
  ASSERT_EQ(shifted.summary.warnings.size(), 1u);
  expect_parts(shifted.summary.warnings[0], {"evaluation labels are 0 to 1", "shifted by 1"});
  npy_.eval_labels = folder_.write("ye.npy", npy<uint8_t>("|u1", "(3,)", {1, 2, 3}));
  expect_parts(error_of([&] { features(); }), {"ye.npy: label 3", "the labels are 1 to 3"});
  config_.strict = true;
  npy_.eval_inputs = npy_.eval_labels = "";
  expect_parts(error_of([&] { features(); }), {"labels are 1 to 2", "data.strict"});
}

TEST_F(Npy, WarnsOfValuesThatAreAllTheSame) {
  npy_.train_inputs = folder_.write("f.npy", npy<float>("<f4", "(3, 1)", {1, 2, 3}));
  npy_.train_labels = folder_.write("v.npy", npy<float>("<f4", "(3,)", {0.5f, 0.5f, 0.5f}));
  for (const Loss loss : {Loss::kMeanSquaredError, Loss::kBinaryCrossEntropy}) {
    ASSERT_EQ(values(loss).summary.warnings.size(), 1u);
    expect_parts(values(loss).summary.warnings[0],
                 {"v.npy: the target has the same value in all 3 training samples (0.5)"});
  }
  npy_.train_labels = folder_.write("v.npy", npy<float>("<f4", "(3, 2)", {0, 1, 1, 1, 0, 1}));
  ASSERT_EQ(values(Loss::kMeanSquaredError).summary.warnings.size(), 1u);
  expect_parts(values(Loss::kMeanSquaredError).summary.warnings[0],
               {"1 of 2 targets (the first is column 1) have the same value"});
  npy_.train_labels = folder_.write("v.npy", npy<float>("<f4", "(3,)", {0.5f, 0.5f, 1}));
  EXPECT_TRUE(values(Loss::kMeanSquaredError).summary.warnings.empty());
}

TEST_F(Npy, RefusesInputsThatTheModelCannotTake) {
  const std::string good = npy_.train_inputs;
  struct Case {
    std::string inputs, part;
  };
  const std::vector<Case> cases = {
      {npy<int64_t>("<i8", "(3,)", {1, 2, 3}), "int64 inputs; allowed: uint8 images or float32"},
      {npy("|u1", "(3, 2)", counting(6)), "the uint8 array has 2 dimensions"},
      {npy("|u1", "(3, 1, 1, 17)", counting(51)), "17 channels; allowed: up to"},
      {npy<float>("<f4", "(3,)", {1, 2, 3}), "the float32 array has 1 dimension"},
      {npy<float>("<f4", "(3, 2)", {1, 2, 3, 4, NAN, 6}), "feature 0 of sample 2 is nan"},
  };
  for (const Case& bad : cases) {
    npy_.train_inputs = folder_.write("bad.npy", bad.inputs);
    expect_parts(error_of([&] { features(); }), {"bad.npy", bad.part});
  }
  expect_parts(error_of([&] { features(3); }), {"bad.npy"});
  npy_.train_inputs = good;
  expect_parts(error_of([&] { features(3); }), {"5 classes", "model.mlp.outputs is 3"});
  use_features();
  expect_parts(error_of([&] { features(3); }), {"5 classes", "model.mlp.outputs is 3"});
  expect_parts(error_of([&] { images(); }), {"f.npy: holds float32 features", "uint8 images"});
  config_.image.size = 2;
  expect_parts(error_of([&] { features(); }, ExitCode::kUsage), {"data.image: given", "f.npy"});
}

TEST_F(Npy, RefusesCorruptFiles) {
  const std::string values(12, 'v'), good = npy_with(header_of("|u1", "(3, 2, 2)"), values);
  const auto with = [&](const std::string& header) { return npy_with(header, values); };
  std::string long_header = good;
  long_header[8] = '\xff';
  std::string no_line_break = good;
  no_line_break[good.size() - values.size() - 1] = ' ';
  struct Case {
    std::string bytes;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"", {"the file is empty"}},
      {good.substr(0, 11), {"11 bytes are too few"}},
      {"\x94" + good.substr(1), {"is not a NumPy array (.npy)"}},
      {"PK\x03\x04" + std::string(22, '\0') + std::string("\x05\0\0\0x.npy", 9),
       {"is a NumPy archive (.npz)", "numpy.load"}},
      {"a,b\n1,2\n", {"is text that begins with 'a,b', not a NumPy array"}},
      {npy_with(header_of("|u1", "(3, 2, 2)"), values, 4), {"version 4.0", "allowed: 1.0"}},
      {long_header, {"truncated in the NPY header", "of 265 bytes"}},
      {no_line_break, {"no line break"}},
      {good.substr(0, good.size() - 1), {"truncated", "promises 12 bytes", "has 11"}},
      {good + "x", {"too long", "promises 12 bytes", "has 13"}},
      {with(header_of(">f4", "(3,)")), {"values of type '>f4'", "'<f4'"}},
      {with(header_of("<f8", "(3,)")), {"values of type '<f8'"}},
      {with(header_of("|O", "(3,)")), {"values of type '|O'"}},
      {with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }"),
       {"not that of a plain array", "no '\\''"}},
      {with("{'descr': '|u1', 'fortran_order': True, 'shape': (3, 2, 2), }"), {"Fortran order"}},
      {with("{'descr': '|u1', 'fortran_order': 1, 'shape': (3, 2, 2), }"), {"no 'False'"}},
      {with("{'descr': '|u1', 'fortran_order': False, }"), {"no descr, fortran_order or shape"}},
      {with("{'descr': '|u1', 'descr': '|u1', 'shape': (12,), }"), {"an unknown or repeated key"}},
      {with("{'descr': '|u1', 'order': False, 'shape': (12,), }"), {"an unknown or repeated key"}},
      {with("{'descr': '|u1', 'fortran_order': False, 'shape': (12,)"), {"no '}'"}},
      {with("{'descr': '|u1"), {"an unterminated string"}},
      {with("['descr']"), {"no '{'"}},
      {with(header_of("|u1", "(12)")), {"instead of a tuple"}},
      {with(header_of("|u1", "(12 2)")), {"no ')'"}},
      {with(header_of("|u1", "(-3, 2, 2)")), {"no non-negative integer"}},
      {with(header_of("|u1", "()")), {"a single number instead of an array"}},
      {with(header_of("|u1", "(3, 0, 2)")), {"dimension 1", "is 0"}},
      {with(header_of("|u1", "(99999999999999999999, 2)")), {"truncated", "over 2^63", "has 12"}},
      {with(header_of("<i8", "(9223372036854775807, 2)")), {"truncated", "over 2^63"}},
      {with(header_of("|u1", "(4294967296, 28, 28)")), {"truncated", "promises 3367254360064"}},
  };
  for (const Case& bad : cases) {
    npy_.train_inputs = folder_.write("bad.npy", bad.bytes);
    const std::string message = error_of([&] { images(); });
    expect_parts(message, {"bad.npy"});
    expect_parts(message, bad.parts);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  npy_.train_inputs = "absent";
  expect_parts(error_of([&] { images(); }), {"data.npy.train_inputs", "absent", "No such file"});
}

TEST_F(Npy, IsAssumedWhereTheConfigSaysTheSize) {
  npy_.train_inputs = "absent.npy";
  const config::ModelTraits resnet = {.section = "resnet",
                                      .input = config::ModelInput::kImages,
                                      .outputs = 9,
                                      .outputs_field = "classes"};
  expect_parts(error_of([&] { open_data_or_placeholder(config(), resnet, 1); }),
               {"absent.npy' does not exist", "set data.image.size"});
  expect_parts(error_of([&] { open_data_or_placeholder(config(), test::mlp(), 1); }),
               {"the number of features"});
  config_.image.size = 28;
  const OpenedData opened = open_data_or_placeholder(config(), resnet, 1);
  EXPECT_EQ(opened.train->input().shape, (Shape{28, 28, 3}));
  EXPECT_EQ(opened.summary.classes, 9);
  config_.image.mean = {0.5f, 0.5f};
  EXPECT_EQ(open_data_or_placeholder(config(), resnet, 1).summary.channels, 2);
}

}  // namespace
}  // namespace lockstep::data
