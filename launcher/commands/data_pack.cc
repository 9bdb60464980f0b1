// lockstep data pack SOURCE --out FILE
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "launcher/command_line/common_options.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/data/images_at.h"
#include "launcher/data/threads.h"
#include "launcher/ranks/first_rank.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/log.h"
#include "runtime/base/names.h"
#include "runtime/base/time.h"
#include "runtime/data/images/image_pipeline.h"
#include "runtime/data/images/record_file.h"

namespace lockstep::launcher {
namespace {

// Images in memory at the same time, for each thread.
constexpr int64_t kImagesPerThread = 32;

struct PackOptions {
  CommonOptions common;  // --json and --log-level
  std::string source, out;
  bool decode = false, keep_jpeg = false, skip_bad = false;
  int64_t size = 0;
  int threads = 0;
};

// The record of one image.
struct Packed {
  std::vector<std::byte> bytes;
  data::ImageSize size;  // of pixels; 0: an image file
  std::string error;     // if not empty, the image is skipped
};

// Decodes every image, if only to find bad ones now and not in the middle of a training run.
void pack_one(const data::ImageStore& store,
              int64_t index,
              const PackOptions& options,
              Packed* packed) {
  *packed = {};
  data::ImagePipeline& pipeline = data::ImagePipeline::of_this_thread();
  try {
    const data::StoredImage stored = store.load(index, pipeline.buffer());
    const data::PixelView view = pipeline.decode_whole(stored, options.decode ? options.size : 0);
    if (!options.decode) {
      packed->bytes.assign(stored.bytes.begin(), stored.bytes.end());
      if (stored.pixels) packed->size = stored.size;
      return;
    }
    packed->size = view.size;
    const size_t row = static_cast<size_t>(view.size.width) * static_cast<size_t>(view.channels);
    packed->bytes.resize(row * static_cast<size_t>(view.size.height));
    for (int y = 0; y < view.size.height; ++y)
      std::memcpy(
          packed->bytes.data() + row * static_cast<size_t>(y), view.origin + y * view.stride, row);
  } catch (const DataError& error) {
    packed->error = fmt::format("{}: {}", store.name(index), error.what());
    if (!options.skip_bad) throw DataError("{} (--skip-bad leaves such images out)", packed->error);
  }
}

// The contents of a record file.
struct Totals {
  int64_t records = 0, bad = 0;
  uint64_t bytes = 0;
};

void print_summary(const Totals& totals,
                   const data::ImageStores& stores,
                   const PackOptions& options,
                   double seconds) {
  fmt::print("{}: {} images of {} classes, {:.1f} MB, in {:.1f} s ({:.0f} images/s), from {}{}\n",
             options.out,
             totals.records,
             stores.classes,
             static_cast<double>(totals.bytes) / 1e6,
             seconds,
             static_cast<double>(totals.records) / seconds,
             stores.kind,
             totals.bad > 0 ? fmt::format("; {} bad left out", totals.bad) : "");
  Json json;
  json["file"] = options.out;
  json["records"] = totals.records;
  json["classes"] = stores.classes;
  json["bytes"] = totals.bytes;
  json["bad"] = totals.bad;
  json["seconds"] = seconds;
  write_json(options.common.json, json);
}

Totals write_records(const PackOptions& options,
                     const data::ImageStores& stores,
                     const std::filesystem::path& path) {
  const data::ImageStore& store = *stores.train;
  const int threads = choose_data_threads(options.threads);
  const int64_t at_a_time = kImagesPerThread * threads;
  data::RecordWriter writer(path);
  std::vector<Packed> packed(static_cast<size_t>(at_a_time));
  int64_t bad = stores.bad_records;
  for (int64_t begin = 0; begin < store.count(); begin += at_a_time) {
    const int64_t end = std::min(begin + at_a_time, store.count());
    for_each_in_threads(begin, end, threads, [&](int64_t i) {
      pack_one(store, i, options, &packed[static_cast<size_t>(i - begin)]);
    });
    for (int64_t i = begin; i < end; ++i) {
      const Packed& image = packed[static_cast<size_t>(i - begin)];
      if (image.error.empty()) {
        writer.add(image.bytes, store.label(i), image.size);
        continue;
      }
      ++bad;
      log_warn("{}: left out", image.error);
    }
  }
  if (writer.records() == 0) throw DataError("{}: it has no valid image", options.source);
  writer.finish(stores.classes, stores.class_names);
  return {writer.records(), bad, writer.bytes()};
}

[[noreturn]] void refuse_source(const std::string& path) {
  constexpr const char* kWanted = "a folder of images, tar files or packed records";
  if (!lockstep::is_there(path))
    throw DataError("{}: does not exist; give {}{}", path, kWanted, look_alike_hint(path));
  const MappedFile file(path, ExitCode::kData);
  throw DataError("{}: {}", path, is_not(file.bytes(), kWanted));
}

void pack_all(const PackOptions& options) {
  if (options.decode && options.keep_jpeg)
    throw ConfigError("--keep-jpeg: given together with --decode; allowed: one of the two");
  if (options.decode && options.size == 0)
    throw ConfigError("--size is required with --decode: the shorter side in pixels, 1..8192");
  if (!options.decode && options.size > 0)
    throw ConfigError("--size: value is {}; allowed: only with --decode", options.size);
  require_result_path("--out", options.out, {".rec", ".records", ""});
  require_result_path("--json", options.common.json);
  const double start_ms = now_ms();
  const auto stores = open_images_at(options.source, options.skip_bad);
  if (!stores) refuse_source(options.source);
  for (const std::string& warning : stores->warnings) log_warn("{}", warning);
  Totals totals;
  replace_file(options.out, [&](const std::filesystem::path& unfinished) {
    totals = write_records(options, *stores, unfinished);
  });
  print_summary(totals, *stores, options, (now_ms() - start_ms) / 1e3);
}

}  // namespace

CommandSpec data_pack_command() {
  auto options = std::make_shared<PackOptions>();
  CommandSpec command{.name = "pack",
                      .help = "Pack images into one record file with an index, for data.records"};
  command.add("SOURCE",
              &options->source,
              "A folder with one folder per class, or tar files with .jpg and .cls members "
              "('name-{000..012}.tar')",
              {.required = true});
  command.add("--out",
              &options->out,
              "The record file to write",
              {.required = true, .also = "output o out_file output_file outfile"});
  command.add(
      "--keep-jpeg", &options->keep_jpeg, "Keep JPEG and PNG files as they are (the default)");
  command.add("--decode",
              &options->decode,
              "Store pixels: many times the space, no decoding during training");
  command.add("--size",
              &options->size,
              "With --decode: the shorter side, in pixels",
              {.allowed = WholeNumbers{1, 8192}});
  add_threads_option(command, options->threads, "Threads that decode; 0: all CPUs");
  command.add(
      "--skip-bad", &options->skip_bad, "Skip bad images, and log them, instead of failing");
  add_output_options(command, options->common);
  command.footer =
      "Every image is decoded once, so that a bad one is found now. The file gets its name only "
      "once it is complete.";
  command.run = [options](Session& session) {
    return on_first_rank(session, options->common.log_level, [&] { pack_all(*options); });
  };
  return command;
}

}  // namespace lockstep::launcher
