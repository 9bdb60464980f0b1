#pragma once
// The bucket sizes that a run with comm.tune_buckets tries, and the record of the one that it has
// chosen, in its folder.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launcher {

// A bucket size that was tried.
struct BucketTrial {
  double bucket_mib = 0;
  size_t buckets = 0;  // number of buckets of the gradients
  double step_ms = 0;  // median, on rank 0
};

struct BucketRecord {
  double bucket_mib = 0;  // the chosen size
  int ranks = 1;          // ranks that tried
  std::vector<BucketTrial> trials;
};

// The sizes to try, in MiB and in order: `configured`, and some below and above it.
std::vector<double> bucket_candidates(double configured);

// "1 MiB 12.3 (98 buckets), 4 MiB 11.9 (25 buckets)".
std::string to_text(const std::vector<BucketTrial>& trials);

// RUN_DIR/buckets.json.
std::filesystem::path bucket_record_path(const std::filesystem::path& run_dir);

// Throws IoError.
void write_bucket_record(const std::filesystem::path& run_dir, const BucketRecord& record);

// Removes the record, if there is one. Throws IoError.
void remove_bucket_record(const std::filesystem::path& run_dir);

// Returns nullopt if there is no such file. Throws CheckpointError if it is not valid, and IoError.
std::optional<BucketRecord> read_bucket_record(const std::filesystem::path& run_dir);

}  // namespace lockstep::launcher
