#include "models/huggingface/preprocessor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "models/huggingface/open_config.h"
#include "runtime/base/file.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

constexpr double kWhite = 255;

bool has_file(const fs::path& folder) {
  std::error_code ignored;
  return !folder.empty() && fs::is_regular_file(folder / kPreprocessorFile, ignored);
}

// A number for each channel. The default is that of ViT's processors; for other processors the
// field is required.
std::vector<double> read_channels(ConfigFields& fields, const std::string& name) {
  std::vector<double> numbers = fields.numbers(name);
  if (!numbers.empty()) return numbers;
  const std::string processor =
      fields.text("image_processor_type", fields.text("feature_extractor_type", "ViT"));
  if (fields.has(name) || !processor.starts_with("ViT"))
    fields.refuse(name, "a number for each channel");
  return {0.5};
}

// Converts means or stds: (byte * factor - mean) / std equals (byte / 255 - mean / scale) /
// (std / scale) with scale = 255 * factor. If all channels have the same number, returns one.
std::vector<float> scaled(const std::vector<double>& numbers, double scale) {
  std::vector<float> all;
  for (const double number : numbers) all.push_back(static_cast<float>(number / scale));
  if (std::ranges::adjacent_find(all, std::not_equal_to<>()) == all.end()) all.resize(1);
  return all;
}

double read_scale(ConfigFields& fields) {
  constexpr double kRounding = 1e-6;  // tolerance: files have 1 / 255 in single precision
  if (!fields.boolean("do_rescale", true)) return kWhite;
  const double scale = kWhite * fields.number("rescale_factor", 1 / kWhite);
  if (!(scale > 0) || !std::isfinite(scale)) fields.refuse("rescale_factor", "a number above 0");
  if (fields.boolean("rescale_offset", false)) fields.refuse("rescale_offset", "false");
  return std::abs(scale - 1) < kRounding ? 1 : scale;
}

Json channels(const std::vector<float>& numbers) {
  Json list = Json::array();
  for (const float number : numbers) list.push_back(shortest(number));
  return list;
}

std::string describe(const config::ImageNormalisation& images) {
  return fmt::format("mean {}, std {}", fmt::join(images.mean, " "), fmt::join(images.std, " "));
}

}  // namespace

config::ImageNormalisation read_normalisation(const fs::path& folder) {
  if (!has_file(folder)) return {};
  const fs::path path = folder / kPreprocessorFile;
  const Json json = read_json(path);
  ConfigFields fields(json, path.string());
  const double scale = read_scale(fields);
  if (!fields.boolean("do_normalize", true)) return {scaled({0}, scale), scaled({1}, scale)};
  const std::vector<double> mean = read_channels(fields, "image_mean");
  const std::vector<double> std = read_channels(fields, "image_std");
  const auto is_number = [](double number) { return std::isfinite(number); };
  if (!std::ranges::all_of(mean, is_number)) fields.refuse("image_mean", "finite numbers");
  if (!std::ranges::all_of(std, [](double x) { return x > 0 && std::isfinite(x); }))
    fields.refuse("image_std", "numbers above 0");
  return {scaled(mean, scale), scaled(std, scale)};
}

std::string note_of_normalisation(const fs::path& folder, const config::ImageNormalisation& run) {
  config::ImageNormalisation theirs = read_normalisation(folder);
  if (theirs.mean.empty()) return "";
  for (std::vector<float>* numbers : {&theirs.mean, &theirs.std}) {
    if (numbers->size() == 1) numbers->resize(run.mean.size(), numbers->front());
  }
  return fmt::format("{}: normalises images with {}; the run with {}",
                     (folder / kPreprocessorFile).string(),
                     describe(theirs),
                     theirs == run ? "the same" : describe(run));
}

void write_preprocessor(const fs::path& folder,
                        const fs::path& like,
                        int64_t size,
                        const config::ImageNormalisation& run,
                        const std::optional<config::ImageInputs>& images) {
  constexpr int kBilinear = 2;
  const Json sides = Json::object({{"height", size}, {"width", size}});
  Json json = Json::object();
  if (images && images->resize > 0) {
    json = config::preprocessor_fields({.images = images});
    write_file_atomically(folder / kPreprocessorFile, json.dump({.indent = 2}) + "\n");
    return;
  }
  if (has_file(like)) {
    json = read_json(like / kPreprocessorFile);
    ConfigFields(json, (like / kPreprocessorFile).string());  // throws if it is not an object
  } else {
    json["image_processor_type"] = "ViTImageProcessor";
    json["do_resize"] = true;
    json["resample"] = kBilinear;
  }
  json["size"] = sides;
  if (json.contains("crop_size")) json["crop_size"] = sides;
  json["do_rescale"] = true;
  json["rescale_factor"] = 1 / kWhite;
  json["do_normalize"] = true;
  json["image_mean"] = channels(run.mean);
  json["image_std"] = channels(run.std);
  write_file_atomically(folder / kPreprocessorFile, json.dump({.indent = 2}) + "\n");
}

}  // namespace lockstep::huggingface
