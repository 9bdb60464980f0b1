// lockstep data inspect CONFIG|PATH
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <variant>

#include "launcher/command_line/common_options.h"
#include "launcher/command_line/config_source.h"
#include "launcher/command_line/results.h"
#include "launcher/commands/commands.h"
#include "launcher/data/images_at.h"
#include "launcher/data/threads.h"
#include "launcher/ranks/first_rank.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/data/format.h"
#include "runtime/data/images/image_pipeline.h"

namespace lockstep::launcher {
namespace {

constexpr int64_t kPeeked = 1000;  // images whose headers are read without --check
constexpr size_t kMaxNamed = 20;   // classes that get a line each
constexpr size_t kMaxBadNamed = 100;

struct InspectOptions {
  CommonOptions common;
  bool check = false;
  int threads = 0;
};

// Statistics of a set of images.
struct Findings {
  std::vector<int64_t> per_class;    // images or, with masks, pixels of the images looked at
  std::vector<int> heights, widths;  // of the images looked at, each sorted
  std::vector<std::string> bad;      // in the order of the set
  int64_t looked_at = 0;
};

Findings look_at(const data::ImageStore& store, int64_t classes, bool check, int threads) {
  Findings findings;
  findings.per_class.resize(static_cast<size_t>(classes));
  for (int64_t i = 0; !store.has_masks() && i < store.count(); ++i)
    ++findings.per_class[static_cast<size_t>(store.label(i))];
  findings.looked_at = check ? store.count() : std::min(store.count(), kPeeked);
  std::mutex mutex;
  std::vector<std::pair<int64_t, std::string>> bad;
  for_each_in_threads(0, findings.looked_at, threads, [&](int64_t number) {
    const int64_t index = number * store.count() / findings.looked_at;  // evenly spaced
    data::ImagePipeline& pipeline = data::ImagePipeline::of_this_thread();
    data::Mask& mask = pipeline.mask();
    data::ImageSize size;
    std::string error;
    mask.classes.clear();
    try {
      const data::StoredImage stored = store.load(index, pipeline.buffer());
      size = pipeline.size_of(stored);
      if (check) pipeline.decode_whole(stored, 0);
      if (store.has_masks()) {
        store.load_mask(index, &mask);
        data::require_size_of_image(mask, size);
      }
    } catch (const Error& problem) {
      error = fmt::format("{}: {}", store.name(index), problem.what());
    }
    std::lock_guard lock(mutex);
    if (error.empty()) {
      findings.heights.push_back(size.height);
      findings.widths.push_back(size.width);
      for (const int32_t number : mask.classes)
        if (number >= 0) ++findings.per_class[static_cast<size_t>(number)];
    } else {
      bad.emplace_back(index, error);
    }
  });
  std::ranges::sort(bad);
  for (auto& [index, text] : bad) findings.bad.push_back(std::move(text));
  std::ranges::sort(findings.heights);
  std::ranges::sort(findings.widths);
  return findings;
}

void print_findings(const char* name,
                    const data::ImageStore& store,
                    const data::ImageStores& stores,
                    const Findings& findings,
                    bool check) {
  const auto [least, most] = std::ranges::minmax_element(findings.per_class);
  fmt::print("{}: {} images of {} classes, {} to {} {}of each\n",
             name,
             store.count(),
             stores.classes,
             *least,
             *most,
             store.has_masks() ? "pixels " : "");
  if (findings.per_class.size() <= kMaxNamed)
    for (size_t c = 0; c < findings.per_class.size(); ++c)
      fmt::print("  {:>4}  {:<30}{:>10}\n",
                 c,
                 c < stores.class_names.size() ? escape_controls(stores.class_names[c]) : "",
                 findings.per_class[c]);
  if (!findings.heights.empty())
    fmt::print("  sizes (width x height) of {}: {} x {} to {} x {}, median {} x {}\n",
               findings.heights.size(),
               findings.widths.front(),
               findings.heights.front(),
               findings.widths.back(),
               findings.heights.back(),
               findings.widths[findings.widths.size() / 2],
               findings.heights[findings.heights.size() / 2]);
  for (size_t i = 0; i < std::min(findings.bad.size(), kMaxBadNamed); ++i)
    fmt::print("  BAD {}\n", escape_controls(findings.bad[i]));
  if (check)
    fmt::print("  {} of {} decode\n",
               findings.looked_at - static_cast<int64_t>(findings.bad.size()),
               findings.looked_at);
}

// Looks at one set, if there is one; returns how many bad images it has.
size_t inspect_set(const char* name,
                   const std::shared_ptr<const data::ImageStore>& store,
                   const data::ImageStores& stores,
                   const InspectOptions& options,
                   Json* json) {
  if (store == nullptr) return 0;
  const Findings findings =
      look_at(*store, stores.classes, options.check, choose_data_threads(options.threads));
  print_findings(name, *store, stores, findings, options.check);
  Json& set = (*json)[name];
  set["samples"] = store->count();
  set[store->has_masks() ? "pixels_per_class" : "per_class"] = findings.per_class;
  set["looked_at"] = findings.looked_at;
  set["bad"] = findings.bad;
  return findings.bad.size();
}

// Continues after bad records, whatever data.bad_records is.
void inspect_images(const data::ImageStores& stores, const InspectOptions& options) {
  Json json;
  json["kind"] = stores.kind;
  json["classes"] = stores.classes;
  json["class_names"] = stores.class_names;
  for (const std::string& warning : stores.warnings) log_warn("{}", warning);
  fmt::print("{}\n", stores.kind);
  if (!stores.held_out.empty()) fmt::print("{}\n", stores.held_out);
  size_t bad = inspect_set("training", stores.train, stores, options, &json);
  bad += inspect_set("evaluation", stores.eval, stores, options, &json);
  bad += static_cast<size_t>(stores.bad_records);
  if (stores.bad_records > 0) fmt::print("{} bad records left out\n", stores.bad_records);
  json["bad_records"] = stores.bad_records;
  json["doubts"] = stores.warnings;
  write_json(options.common.json, json);
  if (bad > 0) throw DataError("{} bad image{} or record{} found", bad, plural(bad), plural(bad));
}

// Reports about a set of samples: how many there are of each class, if they have one, and how long
// they are, if they are padded.
void inspect_samples(const char* name, const data::Dataset* dataset, int64_t classes, Json* json) {
  if (dataset == nullptr) return;
  Json& set = (*json)[name];
  set["samples"] = dataset->samples();
  const data::SampleSpec& target = dataset->target();
  if (classes > 0 && target.dtype == DType::kI32 && target.shape.rank() == 0) {
    std::vector<int64_t> per_class(static_cast<size_t>(classes));
    for (int64_t i = 0; i < dataset->samples(); ++i) {
      const auto label = static_cast<size_t>(dataset->label(i));
      if (label >= per_class.size()) per_class.resize(label + 1);
      ++per_class[label];
    }
    const auto [least, most] = std::ranges::minmax_element(per_class);
    fmt::print("{}: {} samples, {} to {} of each class\n", name, dataset->samples(), *least, *most);
    if (per_class.size() <= kMaxNamed)
      for (size_t c = 0; c < per_class.size(); ++c)
        fmt::print("  class {:>4}{:>10}\n", c, per_class[c]);
    set["per_class"] = per_class;
  }
  std::vector<int64_t> lengths;
  int64_t tokens = 0;
  for (int64_t i = 0; i < dataset->samples(); ++i) {
    lengths.push_back(dataset->length(i));
    tokens += dataset->tokens(i);
  }
  std::ranges::sort(lengths);
  if (lengths.back() == 0) return;
  fmt::print("{}: {} to {} tokens a sample, median {}, {} in all\n",
             name,
             lengths.front(),
             lengths.back(),
             lengths[lengths.size() / 2],
             tokens);
  set["lengths"]["least"] = lengths.front();
  set["lengths"]["median"] = lengths[lengths.size() / 2];
  set["lengths"]["most"] = lengths.back();
  set["tokens"] = tokens;
}

// The report has listed the warnings.
void apply_strict(const DataConfig& config, const std::vector<std::string>& warnings) {
  const std::string field = data::strict_field(config);
  if (field.empty() || warnings.empty()) return;
  throw DataError("the data have {} warning{} (an error because of {})",
                  warnings.size(),
                  plural(warnings.size()),
                  field);
}

// Whether the path is a run folder or a checkpoint, whose config is meant.
bool is_run(const std::string& path) {
  try {
    return find_config(path).file != path;
  } catch (const ConfigError&) {  // another folder
    return false;
  }
}

void inspect(const InspectOptions& options) {
  require_result_path("--json", options.common.json);
  const std::string& path = options.common.config;
  if (!is_run(path))
    if (const auto stores = open_images_at(path, /*skip_bad=*/true))
      return inspect_images(*stores, options);
  const run::OpenedConfig opened_config = read_config(options.common);
  RunConfig config = opened_config.config;
  const config::ModelTraits& model = opened_config.model->traits();
  const std::unique_ptr<const data::DataFormat> format = data::format_of(config.data);
  if (format->has_images(model.input)) {
    config.data.bad_records = BadRecords::kSkip;
    config.data.max_bad_fraction = 1;
  }
  const data::OpenedSource opened =
      data::open_source(config.data, model, config.seed, /*need_train=*/true);
  if (const auto* stores = std::get_if<data::ImageStores>(&opened)) {
    inspect_images(*stores, options);
    return apply_strict(config.data, stores->warnings);
  }
  const data::OpenedData& data = std::get<data::OpenedData>(opened);
  const data::DataSummary& summary = data.summary;
  for (const std::string& warning : summary.warnings) log_warn("{}", warning);
  fmt::print("{}\n", summary.description);
  Json json;
  json["description"] = summary.description;
  json["training"]["samples"] = summary.train_samples;
  json["evaluation"]["samples"] = summary.eval_samples;
  inspect_samples("training", data.train.get(), summary.classes, &json);
  inspect_samples("evaluation", data.eval.get(), summary.classes, &json);
  std::fflush(stdout);
  json["classes"] = summary.classes;
  json["bad_records"] = summary.bad_records;
  json["doubts"] = summary.warnings;
  if (!options.common.json.empty()) write_json(options.common.json, json);
  apply_strict(config.data, summary.warnings);
}

}  // namespace

CommandSpec data_inspect_command() {
  auto options = std::make_shared<InspectOptions>();
  CommandSpec command{.name = "inspect", .help = "Show what is in a data set, and check it"};
  command.add("CONFIG",
              &options->common.config,
              "A config file or a run folder; or a folder of images, tar files or a record file",
              {.required = true});
  add_config_options(command, options->common);
  command.add("--check", &options->check, "Decode every image, and list the bad ones");
  add_threads_option(command, options->threads, "Threads that decode; 0: all CPUs");
  add_output_options(command, options->common);
  command.footer =
      "Bad records of images are counted and left out, whatever data.bad_records is; if there are "
      "any, the exit code is 3. Without --check only the headers of some images are read.";
  command.run = [options](Session& session) {
    return on_first_rank(session, options->common.log_level, [&] { inspect(*options); });
  };
  return command;
}

}  // namespace lockstep::launcher
