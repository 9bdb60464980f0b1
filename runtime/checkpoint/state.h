#pragma once
// What a checkpoint is: its files with their checksums, and the state of the run in
// state.textproto.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/shape.h"

namespace lockstep {

// One parameter: where it lies in the flat fp32 buffer.
struct NamedSlice {
  std::string name;
  Shape shape;
  int64_t offset = 0;  // elements
  // (O, H, W, C) where files hold it as (O, C, H, W): its own extents, or what its columns stand
  // for. No extents: files hold it as it is.
  Shape channels_last = {};
  bool operator==(const NamedSlice& other) const = default;
};

struct TensorRecord {
  std::string name;
  int64_t elements = 0;
  uint64_t checksum = 0;  // XXH3-64 of the tensor's bytes in the file
  bool operator==(const TensorRecord& other) const = default;
};

// One safetensors file of a checkpoint.
struct FileRecord {
  std::string name;              // within the checkpoint folder
  uint64_t size = 0;             // bytes
  uint64_t header_checksum = 0;  // XXH3-64 of everything before the first tensor
  std::vector<TensorRecord> tensors;
  bool operator==(const FileRecord& other) const = default;
};

// To and from bytes, so that each rank's record can be sent to rank 0. parse_file_record throws
// CheckpointError.
std::string serialize(const FileRecord& record);
FileRecord parse_file_record(const std::string& bytes);

constexpr int64_t kCheckpointFormat = 1;
constexpr int64_t kMaxCheckpointRanks = 99'999;  // five digits in file names
constexpr char kStateFile[] = "state.textproto";
constexpr size_t kMostStateBytes = size_t{1} << 30;  // of that file
constexpr char kModelFile[] = "model.safetensors";
// The average of the weights, which lies among the moments.
constexpr char kAverageArray[] = "ema";
// So begin the names of the arrays that compression of the gradients keeps, which lie there too.
constexpr char kResidualPrefix[] = "residual_";
// Whether an array among the moments is one.
inline bool is_moment(const std::string& array) {
  return array != kAverageArray && !array.starts_with(kResidualPrefix);
}

struct CheckpointState {
  int64_t format = kCheckpointFormat;
  int64_t step = 0;     // completed steps
  int64_t samples = 0;  // samples consumed since the beginning of the run
  uint64_t seed = 0;
  int64_t lanes = 0;
  int64_t ranks = 0;         // that wrote it; any other number may load it
  int64_t global_batch = 0;  // samples a step
  std::string lockstep_version;
  uint64_t weights_hash = 0;  // of all parameters after `step` steps
  uint64_t config_hash = 0;   // hash_text() of the resolved config
  std::string optimizer;      // "sgd", "adam", "adamw", "lars", "lamb"
  std::vector<std::string>
      moments;  // "exp_avg", "exp_avg_sq", "momentum_buffer"; empty for plain SGD
  // Parameters that have the first of the moments alone, by name: Muon's matrices. Those that older
  // revisions wrote have zeros for the second.
  std::vector<std::string> one_moment;
  int64_t flat_elements = 0;          // of the flat buffer, padding included
  int64_t frozen_elements = 0;        // at its end, of which there are no moments
  std::vector<NamedSlice> layout;     // every parameter, as it lay in the flat buffer of the writer
  std::optional<double> best_metric;  // of the evaluations so far
  int64_t best_step = 0;              // step of best_metric
  int64_t evals_since_best = 0;       // for early stopping
  std::map<std::string, std::string>
      extra;  // anything else the trainer needs back, such as the loss scale
  std::vector<FileRecord> files;

  // Of the flat buffer, what there are moments of.
  int64_t trained_elements() const { return flat_elements - frozen_elements; }
};

// Whether there is an array of that name among the moments.
bool has_array(const CheckpointState& state, const std::string& name);

// state.textproto; its last line is a checksum of all that stands before it.
std::string to_text(const CheckpointState& state);
// Throws CheckpointError naming `origin` if a single bit differs from what to_text made, or the
// format is newer than ours.
CheckpointState parse_state(const std::string& text, const std::string& origin);

}  // namespace lockstep
