#include "launcher/run/predicted_masks.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "collectives/agree/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/images/png.h"
#include "runtime/metrics/task_metrics.h"
#include "runtime/train/evaluation/pixel_predictor.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxClassesOfPng = 256;

// Writes masks into a folder.
class MaskFolder {
 public:
  MaskFolder(fs::path folder, const data::Dataset& dataset, int height, int width)
      : folder_(std::move(folder)), names_(dataset.files()) {
    view_.size = {height, width};
    view_.stride = width;
    view_.channels = 1;
    pixels_.resize(static_cast<size_t>(height) * static_cast<size_t>(width));
    view_.origin = pixels_.data();
  }

  void write(const train::PixelPredictor::Sample& sample) {
    std::ranges::transform(
        sample.predicted, pixels_.begin(), [](int32_t c) { return static_cast<uint8_t>(c); });
    const fs::path path = folder_ / name_of(sample.index);
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) throw IoError("create", path.parent_path().string(), error.value());
    write_file_atomically(path, data::encode_png(view_));
  }

 private:
  fs::path name_of(int64_t index) const {
    if (names_.empty()) return fmt::format("{:06}.png", index);
    return fs::path(names_[static_cast<size_t>(index)]).replace_extension(".png");
  }

  fs::path folder_;
  std::vector<std::string> names_;
  std::vector<uint8_t> pixels_;  // (height, width)
  data::PixelView view_;
};

}  // namespace

void require_mask_folder(const std::string& path) {
  require_result_folder("--out", path);
  std::error_code error;
  const bool there = is_there(path);
  if (there && !(is_folder(path) && fs::is_empty(path, error)))
    throw ConfigError(
        "--out: '{}' is not an empty folder; allowed with a model of classes of pixels: a new or "
        "empty folder, for a mask of each image",
        path);
  if (!there && !is_folder(fs::absolute(path).lexically_normal().parent_path()))
    throw ConfigError("--out: cannot make '{}'; allowed: a new folder in an existing one", path);
}

Json write_masks(const EvaluationRun& run, const std::string& folder) {
  const train::RunContext& context = run.context();
  train::PixelPredictor predictor(context, run.memory());
  if (predictor.classes() > kMaxClassesOfPng)
    throw ConfigError(
        "--out: the model has {} classes of pixels; allowed: up to {}, the numbers "
        "of a mask of 8 bits",
        predictor.classes(),
        kMaxClassesOfPng);
  std::vector<metrics::ClassCounts::Counts> memory(static_cast<size_t>(predictor.classes()));
  metrics::ClassCounts counts(memory);
  MaskFolder masks(folder,
                   *context.data.eval,
                   static_cast<int>(predictor.height()),
                   static_cast<int>(predictor.width()));
  int64_t written = 0, right = 0;
  std::optional<IoError> failed;
  predictor.run([&](const train::PixelPredictor::Sample& sample) {
    if (sample.predicted[0] < 0 || failed) return;
    for (size_t i = 0; i < sample.predicted.size(); ++i) {
      const int32_t target = sample.targets[i];
      if (target < 0) continue;
      counts.add(sample.predicted[i], target);
      right += sample.predicted[i] == target ? 1 : 0;
    }
    try {
      masks.write(sample);
      ++written;
    } catch (const IoError& error) {
      failed = error;  // thrown when no rank waits for this one
    }
  });
  collectives::run_on_root(context.communicator, [&] {
    if (failed) throw IoError(*failed);
  });
  Json json;
  json["samples"] = predictor.samples();
  json["masks"] = written;
  json["height"] = predictor.height();
  json["width"] = predictor.width();
  if (counts.total() == 0) return json;
  json["labelled_pixels"] = counts.total();
  json["eval_accuracy"] = static_cast<double>(right) / static_cast<double>(counts.total());
  json["eval_mean_iou"] = counts.mean_iou();
  return json;
}

std::string text_of_masks(const Json& masks, const std::string& folder) {
  std::string text;
  if (masks.contains("labelled_pixels"))
    text = fmt::format("pixel accuracy {:.4f}, mean IoU {:.4f} on {} labelled pixels; ",
                       masks["eval_accuracy"].get<double>(),
                       masks["eval_mean_iou"].get<double>(),
                       masks["labelled_pixels"].get<int64_t>());
  return text + fmt::format("masks of {} samples, {} x {} pixels, are in {}",
                            masks["masks"].get<int64_t>(),
                            masks["width"].get<int64_t>(),
                            masks["height"].get<int64_t>(),
                            folder);
}

}  // namespace lockstep::launcher
