#include "launcher/bench/bucket_record.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/run/settings.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::launcher {

std::vector<double> bucket_candidates(double configured) {
  std::vector<double> sizes(run::kBucketMib.begin(), run::kBucketMib.end());
  if (std::ranges::find(sizes, configured) == sizes.end()) sizes.push_back(configured);
  std::ranges::sort(sizes);
  return sizes;
}

std::string to_text(const std::vector<BucketTrial>& trials) {
  std::string text;
  for (const BucketTrial& trial : trials)
    append_item(text,
                fmt::format("{:g} MiB {:.4g} ({} bucket{})",
                            trial.bucket_mib,
                            trial.step_ms,
                            trial.buckets,
                            plural(trial.buckets)));
  return text;
}

std::filesystem::path bucket_record_path(const std::filesystem::path& run_dir) {
  return run_dir / "buckets.json";
}

void write_bucket_record(const std::filesystem::path& run_dir, const BucketRecord& record) {
  Json json = Json::object({{"bucket_mib", record.bucket_mib}, {"ranks", record.ranks}});
  json["trials"] = Json::array();
  for (const BucketTrial& trial : record.trials)
    json["trials"].push_back(Json::object({{"bucket_mib", trial.bucket_mib},
                                           {"buckets", trial.buckets},
                                           {"step_ms", trial.step_ms}}));
  train::check_generation(run_dir);
  write_file_atomically(bucket_record_path(run_dir), json.dump({.indent = 2}) + "\n");
}

void remove_bucket_record(const std::filesystem::path& run_dir) {
  train::check_generation(run_dir);
  std::error_code code;
  std::filesystem::remove(bucket_record_path(run_dir), code);
  if (code) throw IoError("remove", bucket_record_path(run_dir).string(), code.value());
}

std::optional<BucketRecord> read_bucket_record(const std::filesystem::path& run_dir) {
  constexpr size_t kMaxBytes = 1 << 20;
  constexpr double kMaxMib = 1024;  // the same limit as for comm.bucket_mib
  const std::filesystem::path path = bucket_record_path(run_dir);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  BucketRecord record;
  try {
    const Json json = Json::parse(read_file(path, kMaxBytes));
    record.bucket_mib = json.at("bucket_mib").get<double>();
    record.ranks = json.at("ranks").get<int>();
    for (const Json& trial : json.at("trials"))
      record.trials.push_back({trial.at("bucket_mib").get<double>(),
                               trial.at("buckets").get<uint64_t>(),
                               trial.at("step_ms").get<double>()});
  } catch (const JsonError&) {
    record.bucket_mib = 0;
  }
  if (!(record.bucket_mib > 0 && record.bucket_mib <= kMaxMib))
    throw CheckpointError(
        "{}: is not a record of comm.tune_buckets; remove it to use comm.bucket_mib",
        path.string());
  return record;
}

}  // namespace lockstep::launcher
