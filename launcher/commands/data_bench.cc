// lockstep data bench CONFIG
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "launcher/command_line/common_options.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/first_rank.h"
#include "runtime/base/text.h"
#include "runtime/base/threads.h"
#include "runtime/base/time.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/loader.h"
#include "runtime/run/lanes.h"
#include "runtime/run/threads.h"

namespace lockstep::launcher {
namespace {

constexpr double kGpuSamplesPerSecond = 3000;  // of ResNet-50 on a data-centre GPU

struct DataBenchOptions {
  CommonOptions common;
  int threads = 0;
  double seconds = 5;
};

double cpu_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The loader's throughput.
struct Throughput {
  int64_t samples = 0;
  double seconds = 0;      // wall time
  double cpu_seconds = 0;  // of all threads together
  double per_second() const { return static_cast<double>(samples) / seconds; }
  double per_core() const { return static_cast<double>(samples) / cpu_seconds; }
};

// Times the loader with all lanes of the global batch on one rank, as fast as its threads can.
Throughput run_loader(const data::Dataset& dataset,
                      const RunConfig& config,
                      int threads,
                      double seconds) {
  data::LoaderOptions options;
  const int lanes = static_cast<int>(config.train.lanes);
  options.geometry = {config.train.global_batch / lanes, lanes, 0, lanes};
  options.seed = config.seed;
  options.shuffle = config.data.shuffle;
  options.threads = threads;
  const size_t batch_bytes = data::loader_bytes(dataset, options.geometry, 1);
  options.ring_batches = data::default_ring_batches(batch_bytes);
  const size_t bytes = batch_bytes * static_cast<size_t>(options.ring_batches);
  struct Line {
    alignas(64) std::byte bytes[64];
  };
  std::vector<Line> memory((bytes + 63) / 64);
  data::Loader loader(dataset, options, std::as_writable_bytes(std::span(memory)));
  loader.next();  // the first batch waits for threads to start and decoders to get their memory
  Throughput result;
  const double start_ms = now_ms(), start_cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  while (now_ms() - start_ms < 1e3 * seconds) {
    loader.next();
    result.samples += options.geometry.global_batch();
  }
  result.seconds = (now_ms() - start_ms) / 1e3;
  result.cpu_seconds = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
  return result;
}

// How one thread spends its time, and how fast the same images are decoded in full without any
// transform. Bad images do not count.
struct Breakdown {
  int64_t images = 0;
  data::PipelineTimes times;
  double whole_decode_per_second = 0;
};

Breakdown break_down(const data::ImageDataset& dataset, double seconds) {
  Breakdown result;
  std::vector<std::byte> pixels(dataset.input().bytes()), target(dataset.target().bytes());
  const data::ImageStore& store = dataset.store();
  const int64_t step = std::max<int64_t>(1, store.count() / 1000);
  const auto index_of = [&](int64_t number) { return number * step % store.count(); };
  const double start_ms = now_ms();
  for (int64_t i = 0; now_ms() - start_ms < 1e3 * seconds; ++i)
    result.images += dataset.read_stored(
        {index_of(i), i / store.count(), true}, pixels.data(), target.data(), &result.times);
  if (!store.encoded()) return result;
  data::ImagePipeline& pipeline = data::ImagePipeline::of_this_thread();
  const double start_cpu = cpu_seconds(CLOCK_THREAD_CPUTIME_ID), decode_ms = now_ms();
  int64_t decoded = 0;
  for (int64_t i = 0; now_ms() - decode_ms < 1e3 * seconds; ++i) {
    try {
      pipeline.decode_whole(store.load(index_of(i), pipeline.buffer()), 0);
      ++decoded;
    } catch (const DataError&) {  // already counted above
    }
  }
  result.whole_decode_per_second =
      static_cast<double>(decoded) / (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start_cpu);
  return result;
}

void print_breakdown(const Breakdown& breakdown, const Throughput& loader) {
  const data::PipelineTimes& times = breakdown.times;
  const double all = static_cast<double>(times.load + times.decode + times.transform);
  const auto line = [&](const char* name, int64_t ns) {
    fmt::print("  {:<24}{:>9.1f} us an image{:>7.1f}%\n",
               name,
               static_cast<double>(ns) / 1e3 / static_cast<double>(breakdown.images),
               100 * static_cast<double>(ns) / all);
  };
  line("load", times.load);
  line("decode", times.decode);
  line("crop, resize, augment", times.transform);
  if (breakdown.whole_decode_per_second > 0)
    fmt::print(
        "decoding whole images alone: {:.1f} a second of one core; the loader reaches {:.2f} times "
        "that\n",
        breakdown.whole_decode_per_second,
        loader.per_core() / breakdown.whole_decode_per_second);
}

Json to_json(const data::DataSummary& summary,
             const Throughput& loader,
             int threads,
             int64_t bad,
             const std::optional<Breakdown>& breakdown) {
  Json json;
  json["data"] = summary.description;
  json["threads"] = threads;
  json["samples"] = loader.samples;
  json["samples_per_s"] = loader.per_second();
  json["samples_per_core_s"] = loader.per_core();
  json["cores_for_3000_per_s"] = kGpuSamplesPerSecond / loader.per_core();
  json["bad_records"] = bad;
  if (!breakdown) return json;
  const auto us = [&](int64_t ns) {
    return static_cast<double>(ns) / 1e3 / static_cast<double>(breakdown->images);
  };
  json["load_us"] = us(breakdown->times.load);
  json["decode_us"] = us(breakdown->times.decode);
  json["transform_us"] = us(breakdown->times.transform);
  json["whole_decode_per_core_s"] = breakdown->whole_decode_per_second;
  return json;
}

void bench(const DataBenchOptions& options) {
  require_result_path("--json", options.common.json);
  const run::OpenedConfig opened_config = run::choose_lanes(read_config(options.common)).opened;
  const RunConfig& config = opened_config.config;
  const config::ModelTraits& model = opened_config.model->traits();
  set_compute_threads(run::choose_threads(config, share_of(find_cpu_limits(), 1)));
  const data::OpenedData opened =
      data::open_unflattened_data(config.data, model, config.seed, /*need_train=*/true);
  const int wanted =
      options.threads > 0 ? options.threads : static_cast<int>(config.data.decode_threads);
  const int threads = data::choose_loader_threads(*opened.train, wanted, compute_threads());
  fmt::print("{}\n", opened.summary.description);
  std::fflush(stdout);
  const Throughput loader = run_loader(*opened.train, config, threads, options.seconds);
  fmt::print(
      "{} thread{}: {:.1f} samples/s, {:.1f} a second of one core; {:.1f} cores for {:.0f} a "
      "second\n",
      threads,
      plural(threads),
      loader.per_second(),
      loader.per_core(),
      kGpuSamplesPerSecond / loader.per_core(),
      kGpuSamplesPerSecond);
  std::optional<Breakdown> breakdown;
  if (const auto* images = dynamic_cast<const data::ImageDataset*>(opened.train.get())) {
    breakdown = break_down(*images, std::min(options.seconds / 2, 2.0));
    if (breakdown->images == 0) breakdown.reset();  // all images that were tried are bad
  }
  if (breakdown) print_breakdown(*breakdown, loader);
  const int64_t bad = opened.train->bad_records();
  if (bad > 0) fmt::print("{} bad image{} replaced\n", bad, bad == 1 ? " was" : "s were");
  write_json(options.common.json, to_json(opened.summary, loader, threads, bad, breakdown));
}

}  // namespace

CommandSpec data_bench_command() {
  auto options = std::make_shared<DataBenchOptions>();
  CommandSpec command{.name = "bench",
                      .help = "Time how fast a config's training samples are made"};
  add_config_argument(command, options->common);
  add_config_options(command, options->common);
  add_threads_option(command, options->threads, "Threads that read; 0: as in training");
  command.add("--seconds",
              &options->seconds,
              "How long to measure",
              {.show_default = true, .allowed = Between{0.1, 3600}});
  add_output_options(command, options->common);
  command.footer =
      "Reads, decodes and augments the training set over and over and trains nothing. A second of "
      "one core is a second of processor time, so other programs do not count.";
  command.run = [options](Session& session) {
    return on_first_rank(session, options->common.log_level, [&] { bench(*options); });
  };
  return command;
}

}  // namespace lockstep::launcher
