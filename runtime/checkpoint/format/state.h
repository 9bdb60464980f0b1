#pragma once
// The contents of a checkpoint: its files with their checksums, and the state of the run, which is
// stored in state.textproto.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/base/error.h"
#include "runtime/base/shape.h"
#include "runtime/checkpoint/format/safetensors.h"

namespace lockstep::checkpoint {

// One parameter and its position in the flat fp32 buffer.
struct NamedSlice {
  std::string name;
  Shape shape;
  int64_t offset = 0;  // elements
  // The extents in memory, such as (O, H, W, C), if files store the parameter with channels first.
  // They are the parameter's own extents or, for a matrix, those that its columns stand for. No
  // extents: files store it unchanged.
  Shape channels_last = {};
  bool operator==(const NamedSlice& other) const = default;
};

// One safetensors file of a checkpoint.
struct FileRecord {
  std::string name;              // relative to the checkpoint folder
  uint64_t size = 0;             // bytes
  uint64_t header_checksum = 0;  // XXH3-64 of everything before the first tensor
  std::vector<TensorRecord> tensors;
  bool operator==(const FileRecord& other) const = default;
};

// Conversion to and from bytes, with which each rank sends its record to rank 0. parse_file_record
// throws CheckpointError.
std::string serialize(const FileRecord& record);
FileRecord parse_file_record(const std::string& bytes);

constexpr int64_t kCheckpointFormat = 1;
constexpr int64_t kMaxCheckpointRanks = 99'999;  // five digits in file names
constexpr char kStateFile[] = "state.textproto";
constexpr size_t kMaxStateBytes = size_t{1} << 30;  // the max size of that file
constexpr char kModelFile[] = "model.safetensors";
// The average of the weights, which is stored with the moments.
constexpr char kAverageArray[] = "ema";
// The prefix of the arrays that gradient compression keeps. They too are stored with the moments.
constexpr char kResidualPrefix[] = "residual_";
// Adafactor's averages, which are stored with the moments too.
constexpr char kRowAverages[] = "row_var", kColumnAverages[] = "col_var";
// Whether an array that is stored with the moments is a moment.
inline bool is_moment(const std::string& array) {
  return array != kAverageArray && !array.starts_with(kResidualPrefix);
}

// Keys of CheckpointState::extra. They hold the run's config as text; the checksum of its training
// data; with FP16, the loss scale (its factor, good steps, skipped steps); and with the schedule
// PLATEAU, the evaluations since the best one and the reductions of the rate.
inline constexpr const char* kConfigKey = "config";
// For imported weights: the config that describes them. A run that starts from them may have
// another one.
inline constexpr const char* kImportedConfigKey = "imported_config";
inline constexpr const char* kContentKey = "checksum of the training data";
inline constexpr const char* kBitsKey = "bits";  // Device::bits(); left out if it is empty
inline constexpr const char* kLossScaleKey = "loss scale";
inline constexpr const char* kPlateauKey = "plateau";

struct CheckpointState {
  int64_t format = kCheckpointFormat;
  int64_t step = 0;     // completed steps
  int64_t samples = 0;  // samples consumed since the beginning of the run
  uint64_t seed = 0;
  int64_t lanes = 0;
  int64_t ranks = 0;         // of the writer; any number of ranks may load it
  int64_t global_batch = 0;  // samples per step
  std::string lockstep_version;
  uint64_t weights_hash = 0;  // of all parameters after `step` steps
  uint64_t config_hash = 0;   // hash_text() of the resolved config
  std::string optimizer;      // "sgd", "adamw", ...
  // "exp_avg", "exp_avg_sq", "momentum_buffer"; empty for plain SGD
  std::vector<std::string> moments;
  // Names of the parameters that have only the first moment: Muon's matrices. Checkpoints of older
  // versions do not have this list; they have zeros as second moments.
  std::vector<std::string> one_moment;
  // Arrays that lack elements of trained parameters, and the ranges of the flat buffer that they
  // have, in increasing order. For Adafactor: its averages of a matrix's rows, like those of its
  // columns, are stored from the offset of the matrix on, and "variance" lacks the matrices.
  std::map<std::string, std::vector<collectives::Range>> partial;
  int64_t flat_elements = 0;          // size of the flat buffer, including padding
  int64_t frozen_elements = 0;        // at the end of the flat buffer; without moments
  std::vector<NamedSlice> layout;     // every parameter's position in the writer's flat buffer
  std::optional<double> best_metric;  // of the evaluations so far
  int64_t best_step = 0;              // step of best_metric
  int64_t evals_since_best = 0;       // for early stopping
  // Anything else that the trainer needs, such as the loss scale.
  std::map<std::string, std::string> extra;
  std::vector<FileRecord> files;

  // The size of the part of the flat buffer that has moments.
  int64_t trained_elements() const { return flat_elements - frozen_elements; }
};

// Whether an array of that name is stored with the moments.
bool has_array(const CheckpointState& state, const std::string& name);

// The text of state.textproto. Its last line is a checksum of all text before it.
std::string to_text(const CheckpointState& state);
// Throws CheckpointError, which names `origin`, if any bit differs from what to_text() returned, or
// if the format is newer than this program's.
CheckpointState parse_state(const std::string& text, const std::string& origin);

}  // namespace lockstep::checkpoint
