// lockstep sample RUN --out FILE.png
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "launcher/command_line/config_source.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/first_rank.h"
#include "launcher/run/checkpoint_config.h"
#include "launcher/run/checkpoint_io.h"
#include "models/huggingface/lora_layers.h"
#include "models/registry.h"
#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/threads.h"
#include "runtime/base/time.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/data/images/png.h"
#include "runtime/generate/image_denoiser.h"
#include "runtime/generate/image_sampler.h"
#include "runtime/graph/ops/diffusion_noise.h"
#include "runtime/run/threads.h"

namespace lockstep::launcher {
namespace {

struct SampleOptions {
  CommonOptions common;
  std::string checkpoint;
  std::string out;
  int64_t count = 0;
  std::vector<int32_t> classes;
  generate::ImageSampling sampling;
  int64_t columns = 0;
  bool average = false;
};

// Rows of the network's batch: enough for products to be fast, few enough for little memory.
constexpr int64_t kRowsAtOnce = 32;
constexpr int64_t kMaxColumns = 16;  // unless --columns is larger

// A checkpoint and its model.
struct SampledModel {
  std::filesystem::path folder;
  checkpoint::CheckpointState state;
  RunConfig config;
  std::shared_ptr<const models::OpenedModel> model;  // resolved
  models::ModelIo io;
  DType compute = DType::kF32;

  const config::ModelTraits& traits() const { return model->traits(); }
};

SampledModel open_checkpoint(const SampleOptions& options, const exec::OpSet& ops) {
  SampledModel sampled;
  sampled.folder = weights_at(options.checkpoint);
  sampled.state = checkpoint::read_state(sampled.folder);
  const run::OpenedConfig opened =
      config_of_checkpoint(sampled.folder, sampled.state, options.common.set);
  sampled.config = opened.config;
  sampled.compute = choose_generation_type(opened, ops, &sampled.state, sampled.folder.string());
  const auto samples = [](const config::ModelTraits& traits) {
    return traits.diffusion.has_value();
  };
  if (!samples(opened.model->traits()))
    throw ConfigError(
        "{}: the model is {}, which makes no images; allowed: {}, and onnx with diffusion",
        sampled.folder.string(),
        config::name_of(opened.config.model),
        models::sections_where(samples));
  sampled.io = io_of_weights(*opened.model, sampled.state);
  sampled.model = models::reopen_model(opened.model, opened.model->resolved(sampled.io));
  return sampled;
}

void check_options(const SampleOptions& options, const SampledModel& model) {
  const config::DiffusionTraits& diffusion = *model.traits().diffusion;
  if (diffusion.schedule != DiffusionSchedule::kFlowMatching &&
      options.sampling.steps > graph::kDiffusionTimes)
    throw ConfigError("--steps: value is {}; allowed: 1 to {}, the times of {} {}",
                      options.sampling.steps,
                      graph::kDiffusionTimes,
                      model.traits().field(diffusion.fields + "schedule"),
                      lockstep::name_of(diffusion.schedule));
  if (!diffusion.with_classes && !options.classes.empty())
    throw ConfigError("--classes: the network has no classes; leave the flag out");
  if (diffusion.with_classes && options.sampling.uses_none() && !diffusion.without_classes)
    throw ConfigError(
        "--guidance: value is {}; allowed: 1, because the network was trained only with classes "
        "({} is 0)",
        options.sampling.guidance,
        model.traits().field(diffusion.fields + "label_dropout"));
  for (const int32_t number : options.classes) {
    if (number < 0 || number >= model.traits().outputs)
      throw ConfigError(
          "--classes: value is {}; allowed: 0 to {}", number, model.traits().outputs - 1);
  }
  if (model.io.channels != 1 && model.io.channels != 3)
    throw ConfigError("--out: the images have {} channels; allowed: 1 or 3, as a PNG file has them",
                      model.io.channels);
}

constexpr size_t kUsualCount = 16;  // for a network without classes

// The class of each image: those of --classes or, by default, all, in turn.
std::vector<int32_t> classes_of(const SampleOptions& options, const SampledModel& model) {
  if (!model.traits().diffusion->with_classes)
    return std::vector<int32_t>(
        options.count > 0 ? static_cast<size_t>(options.count) : kUsualCount, 0);
  std::vector<int32_t> among = options.classes;
  for (int32_t i = 0; options.classes.empty() && i < model.traits().outputs; ++i)
    among.push_back(i);
  const size_t count = options.count > 0 ? static_cast<size_t>(options.count) : among.size();
  std::vector<int32_t> classes;
  for (size_t i = 0; i < count; ++i) classes.push_back(among[i % among.size()]);
  return classes;
}

// Columns of the grid; by default as many as there are classes, so that each class has a column.
int64_t columns_of(const SampleOptions& options, const SampledModel& model, int64_t count) {
  if (options.columns > 0) return std::min(options.columns, count);
  const int64_t classes = options.classes.empty() ? model.traits().outputs
                                                  : static_cast<int64_t>(options.classes.size());
  if (classes > 1 && classes <= std::min(kMaxColumns, count)) return classes;
  return std::min(kMaxColumns,
                  static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count)))));
}

constexpr int64_t kMargin = 2;             // pixels
constexpr int64_t kMaxPixels = 1'000'000;  // of a side: libpng's limit

data::ImageSize size_of_grid(int64_t count, const models::ModelIo& io, int64_t columns) {
  const int64_t height = (count + columns - 1) / columns * (io.height + kMargin) + kMargin;
  const int64_t width = columns * (io.width + kMargin) + kMargin;
  if (std::max(height, width) > kMaxPixels)
    throw ConfigError(
        "--count: {} images in {} columns make a file of {} x {} pixels; allowed: at most {} a "
        "side",
        count,
        columns,
        height,
        width,
        kMaxPixels);
  return {static_cast<int>(height), static_cast<int>(width)};
}

// Images side by side, row by row, with black borders: (height, width, channels).
std::vector<uint8_t> pixels_of_grid(const std::vector<float>& images,
                                    const models::ModelIo& io,
                                    int64_t columns,
                                    const data::ImageSize& size) {
  const int64_t elements = io.height * io.width * io.channels;
  const int64_t height = size.height, width = size.width;
  std::vector<uint8_t> pixels(static_cast<size_t>(height * width * io.channels));
  for (int64_t i = 0; i < static_cast<int64_t>(images.size()); ++i) {
    const int64_t image = i / elements, row = i % elements / (io.width * io.channels);
    const int64_t top = image / columns * (io.height + kMargin) + kMargin;
    const int64_t left = image % columns * (io.width + kMargin) + kMargin;
    const float pixel = std::clamp((images[static_cast<size_t>(i)] + 1) * 127.5f, 0.0f, 255.0f);
    pixels[static_cast<size_t>(((top + row) * width + left) * io.channels +
                               i % (io.width * io.channels))] =
        static_cast<uint8_t>(std::lround(pixel));
  }
  return pixels;
}

void sample(const SampleOptions& options, exec::Device& device) {
  if (options.out == options.common.json)
    throw ConfigError("--json: value is '{}'; allowed: a file other than --out's", options.out);
  require_result_path("--out", options.out, {".png"});
  require_result_path("--json", options.common.json);
  const SampledModel model = open_checkpoint(options, device.ops());
  check_options(options, model);
  set_compute_threads(run::choose_threads(model.config, share_of(find_cpu_limits(), 1)));
  const std::vector<int32_t> classes = classes_of(options, model);
  const auto count = static_cast<int64_t>(classes.size());
  const int64_t columns = columns_of(options, model, count);
  const data::ImageSize size = size_of_grid(count, model.io, columns);
  generate::ImageSampling sampling = options.sampling;
  if (!model.traits().diffusion->with_classes) sampling.guidance = 0;  // the network as it is
  const int64_t rows = sampling.rows_per_image();
  generate::ImageDenoiser denoiser(
      device.make_backend({}),
      *model.model,
      model.io,
      model.compute,
      std::min(kRowsAtOnce, count * rows),
      [&](const std::vector<checkpoint::NamedSlice>& slices, float* flat) {
        huggingface::read_merged(
            model.folder, model.state, model.config, slices, flat, options.average);
      });
  const double start_ms = now_ms();
  const std::vector<float> images = generate::sample_images(
      denoiser, model.traits(), classes, sampling, [](int64_t done, int64_t all) {
        log_debug("step {} of {}", done, all);
      });
  const double seconds = (now_ms() - start_ms) / 1000;
  const std::vector<uint8_t> pixels = pixels_of_grid(images, model.io, columns, size);
  const auto channels = static_cast<int>(model.io.channels);
  write_file_atomically(
      options.out,
      data::encode_png({pixels.data(), size.width * model.io.channels, channels, size}));
  const std::string hash = to_hex(checksum_of(pixels.data(), pixels.size()));
  fmt::print("step {}: {} image{} of {} x {} pixels in {:.1f} s, pixels {}; in {}\n",
             model.state.step,
             count,
             plural(count),
             model.io.height,
             model.io.width,
             seconds,
             hash,
             options.out);
  Json json;
  json["step"] = model.state.step;
  if (model.traits().diffusion->with_classes) json["classes"] = classes;
  json["steps"] = options.sampling.steps;
  json["guidance"] = sampling.guidance;
  json["seed"] = options.sampling.seed;
  json["seconds"] = seconds;
  json["pixels_hash"] = hash;
  json["weights_hash"] = to_hex(model.state.weights_hash);
  write_json(options.common.json, json);
}

}  // namespace

CommandSpec sample_command() {
  auto options = std::make_shared<SampleOptions>();
  CommandSpec command{.name = "sample",
                      .help = "Make images with a diffusion model, as a PNG file"};
  command.add(
      "CHECKPOINT",
      &options->checkpoint,
      "A checkpoint, checkpoints/best, a checkpoints folder (the newest), or a run folder (its "
      "best checkpoint, or its newest if it has none)",
      {.required = true});
  add_set_option(command, options->common);
  add_device_options(command, options->common);
  add_output_options(command, options->common);
  command.add("--out",
              &options->out,
              "The PNG file to write: the images side by side, row by row",
              {.required = true, .also = "output o out_file output_file outfile save output_dir"});
  command.add("--count",
              &options->count,
              "Images to make; 0: one of each class, or 16 if the network has no classes",
              {.show_default = true,
               .allowed = WholeNumbers{0, 100'000},
               .also = "n num_samples num_images samples number"});
  command.add("--classes",
              &options->classes,
              "Classes of the images, taken in turn; by default all",
              {.with_commas = true});
  command.add("--steps",
              &options->sampling.steps,
              "Steps from noise to image, by DDIM or, with FLOW_MATCHING, by Euler's method",
              {.show_default = true,
               .allowed = WholeNumbers{1, 100'000},
               .also = "num_steps sampling_steps num_inference_steps timesteps"});
  command.add(
      "--guidance",
      &options->sampling.guidance,
      "Scale of classifier-free guidance; 1: the network's output with the class, 0: "
      "without it",
      {.show_default = true, .allowed = Between{0, 1000}, .also = "guidance_scale cfg cfg_scale"});
  command.add(
      "--seed", &options->sampling.seed, "Another seed makes other images", {.show_default = true});
  command.add(
      "--columns",
      &options->columns,
      "Images in a row of the file; 0: a column for each class, if there are 2 to 16, otherwise "
      "about as many as rows",
      {.show_default = true, .allowed = WholeNumbers{0, 100'000}, .also = "nrow cols"});
  command.add("--average", &options->average, "Use the average of the weights (train.ema_decay)");
  command.run = [options](Session& session) {
    return on_first_device(
        session, options->common, [&](exec::Device& device) { sample(*options, device); });
  };
  return command;
}

}  // namespace lockstep::launcher
