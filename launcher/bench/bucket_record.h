#pragma once
// The size of buckets that a run has chosen for itself, in its folder.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// A size of buckets that was tried.
struct BucketTrial {
  double bucket_mib = 0;
  size_t buckets = 0;  // that the gradients make
  double step_ms = 0;  // median, on rank 0
};

struct BucketRecord {
  double bucket_mib = 0;  // chosen
  int ranks = 1;          // that tried
  std::vector<BucketTrial> trials;
};

// "1 MiB 12.3 (98 buckets), 4 MiB 11.9 (25 buckets)".
std::string to_text(const std::vector<BucketTrial>& trials);

// RUN_DIR/buckets.json.
std::filesystem::path bucket_record_path(const std::filesystem::path& run_dir);

// Throws IoError.
void write_bucket_record(const std::filesystem::path& run_dir, const BucketRecord& record);

// Leaves none. Throws IoError.
void remove_bucket_record(const std::filesystem::path& run_dir);

// Nothing where there is no such file. Throws CheckpointError where it is not one of these,
// IoError.
std::optional<BucketRecord> read_bucket_record(const std::filesystem::path& run_dir);

}  // namespace lockstep
