// Catches: pixels or columns that the nodes in an exported file make into other numbers than a run
// makes of them, old inputs that stay, metadata that double or get lost, and a file that does not
// take what it was trained with.
#include "models/onnx/preprocessing_nodes.h"

#include <cmath>
#include <limits>

#include "models/onnx/write/write_file.h"
#include "runtime/base/file.h"
#include "tests/reference/temporary_folder.h"
#include "tests/unit/onnx/onnx_file.h"

namespace lockstep::onnx {
namespace {

using namespace testing;
using namespace testing::onnx_bytes;

std::string identity(const std::vector<std::string>& extents) {
  return model(Graph{{node("Identity", {"x"}, {"y"})},
                     {},
                     {value_info("x", onnx_bytes::kFloat, extents)},
                     {value_info("y", onnx_bytes::kFloat, extents)}});
}

// Two rows of three pixels with two channels.
config::ImageInputs images() { return {2, 3, 0, {0.25f, 0.5f}, {0.5f, 2}}; }

std::vector<double> pixels() { return {0, 255, 51, 102, 153, 204, 1, 2, 3, 4, 5, 6}; }

float normalised(size_t pixel) {
  const size_t channel = pixel % 2;
  return (static_cast<float>(pixels()[pixel]) / 255.0f - images().mean[channel]) /
         images().std[channel];
}

class Preprocessing : public ::testing::Test {
 protected:
  File written(const std::string& model,
               const config::Preprocessing& preprocessing,
               bool channels_first = false,
               Additions additions = {}) {
    folder_.write("m.onnx", model);
    add_preprocessing_nodes(parsed(model), {{0, channels_first}}, 0, preprocessing, additions);
    write_file(path("m.onnx"), path("new.onnx"), {}, additions);
    return read_file(path("new.onnx"));
  }
  // The output for known inputs.
  static std::vector<float> output(const File& file, const std::map<std::string, Array>& known) {
    BindOptions options;
    options.batch = known.begin()->second.extents[0];
    options.known = known;
    options.all_constant = true;
    const Network network = bind(file, classify(file), options);
    return network.values[static_cast<size_t>(network.outputs.at(0))].array.as_float();
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  TemporaryFolder folder_;
};

TEST_F(Preprocessing, OfImagesForChannelsFirst) {
  const File file = written(identity({"batch", "2", "2", "3"}), {.images = images()}, true);
  ASSERT_EQ(file.inputs.size(), 1u);
  const FileValue& input = file.values[static_cast<size_t>(file.inputs[0])];
  EXPECT_EQ(input.name, "pixels");
  EXPECT_EQ(input.type, ElementType::kUint8);
  EXPECT_EQ(input.extents[0].name, "batch");
  const std::vector<float> y =
      output(file, {{"pixels", array_of(ElementType::kUint8, {1, 2, 3, 2}, pixels())}});
  ASSERT_EQ(y.size(), 12u);
  for (size_t channel = 0; channel < 2; ++channel)
    for (size_t i = 0; i < 6; ++i)
      EXPECT_FLOAT_EQ(y[channel * 6 + i], normalised(2 * i + channel)) << channel << " " << i;
}

TEST_F(Preprocessing, OfImagesForFeatures) {
  const File file = written(identity({"", "12"}), {.images = images()});
  const std::vector<float> y =
      output(file, {{"pixels", array_of(ElementType::kUint8, {1, 2, 3, 2}, pixels())}});
  ASSERT_EQ(y.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_FLOAT_EQ(y[i], normalised(i)) << i;
}

TEST_F(Preprocessing, OfATableAndItsTarget) {
  config::TableInputs table;
  table.columns = {{.name = "x", .mean = 3, .std = 2},
                   {.name = "b", .mean = 1, .missing_indicator = true}};
  table.target = "y";
  table.target_mean = 10;
  table.target_std = 4;
  const File file = written(identity({"batch", "3"}), {.table = table});
  // The names x and y are the network's.
  ASSERT_EQ(file.inputs.size(), 2u);
  EXPECT_EQ(file.values[static_cast<size_t>(file.inputs[0])].name, "x_");
  ASSERT_EQ(file.outputs.size(), 1u);
  EXPECT_EQ(file.values[static_cast<size_t>(file.outputs[0])].name, "y_");
  const double missing = std::numeric_limits<double>::quiet_NaN();
  const std::vector<float> y =
      output(file,
             {{"x_", array_of(ElementType::kDouble, {2, 1}, {5, missing})},
              {"b", array_of(ElementType::kDouble, {2, 1}, {3, missing})}});
  EXPECT_EQ(y, (std::vector<float>{14, 18, 10, 10, 10, 14}));
}

TEST_F(Preprocessing, ThatDoesNotFitIsRefused) {
  const auto refused = [&](const std::string& model,
                           const config::Preprocessing& preprocessing,
                           bool channels_first,
                           const std::string& part) {
    try {
      (void)written(model, preprocessing, channels_first);
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(identity({"", "13"}),
          {.images = images()},
          false,
          "take 13 numbers; the preprocessing gives 12");
  refused(
      identity({"", "3", "2", "3"}), {.images = images()}, true, "does not take images of 2 x 3");
  refused(identity({"", "2", ""}), {.images = images()}, false, "open axis");
  refused(identity({"", "12"}), {}, false, "as they are");
}

TEST_F(Preprocessing, MetadataReplaceThoseOfTheSameKey) {
  const auto entry = [](const std::string& key, const std::string& value) {
    return bytes(14, bytes(1, key) + bytes(2, value));
  };
  folder_.write("m.onnx", identity({"", "2"}) + entry("image_mean", "old") + entry("kept", "1"));
  write_file(path("m.onnx"), path("new.onnx"), {}, {.metadata = {{"image_mean", "[0.5]"}}});
  EXPECT_EQ(lockstep::read_file(path("new.onnx"), size_t{1} << 20),
            identity({"", "2"}) + entry("kept", "1") + entry("image_mean", "[0.5]"));
}

}  // namespace
}  // namespace lockstep::onnx
