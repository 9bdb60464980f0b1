#pragma once
// The memory of one rank, as rows: the run makes exactly these allocations.

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::plan {

// What a row is for, and the name that tables, JSON and errors print. The run allocates nothing for
// kGraphs: it is an estimate of what the driver takes.
// clang-format off
#define LOCKSTEP_MEMORY_ROWS(ROW)                     \
  ROW(kParameters, "parameters")                      \
  ROW(kGathered, "gathered parameters")               \
  ROW(kMasters, "master weights")                     \
  ROW(kGradients, "gradients")                        \
  ROW(kGradientSums, "summed gradients")              \
  ROW(kMoments, "optimizer moments")                  \
  ROW(kArena, "activations and workspace")            \
  ROW(kStaging, "exchange staging")                   \
  ROW(kGradientRows, "rows of gradients")             \
  ROW(kConstants, "constants")                        \
  ROW(kMuon, "matrices of Muon")                      \
  ROW(kFactoredSums, "sums of rows and columns")      \
  ROW(kFactoredAverages, "averages of Adafactor")     \
  ROW(kResiduals, "residuals of gradients")           \
  ROW(kFactors, "factors of gradients")               \
  ROW(kDeviceBatches, "batches on the device")        \
  ROW(kSums, "sums of a step")                        \
  ROW(kLibraries, "libraries' workspace")             \
  ROW(kWeightsSnapshot, "snapshot of weights")        \
  ROW(kMomentsSnapshot, "snapshot of moments")        \
  ROW(kTrainBatches, "training batches")              \
  ROW(kEvalBatches, "evaluation batches")             \
  ROW(kEvalScores, "evaluation predictions")          \
  ROW(kDataset, "data set")                           \
  ROW(kGraphs, "CUDA graphs")
// clang-format on
#define LOCKSTEP_ROW_KIND(kind, name) kind,
enum class RowKind { LOCKSTEP_MEMORY_ROWS(LOCKSTEP_ROW_KIND) };
#undef LOCKSTEP_ROW_KIND
const char* name_of(RowKind kind);

// One allocation of a rank.
struct MemoryRow {
  RowKind kind = RowKind::kParameters;
  size_t bytes = 0;
  std::string note;
  bool on_host = false;  // on a device with memory of its own
  int sharers = 1;       // ranks of a node that share this allocation
};

// Alignment of rows, in bytes, on a device with memory of its own.
inline constexpr size_t kDeviceAlignment = 256;

struct MemoryPlan {
  std::vector<MemoryRow> rows;
  // Host memory that a rank takes for a while, in addition to its rows, when weights are
  // initialized, saved or loaded: a full copy in fp32, unless they lie there as fp32 anyway or fit
  // into memory that only steps use, and for a device one in the 16-bit compute type.
  size_t weights_copy_bytes = 0;

  size_t row_bytes(RowKind kind) const;  // 0 if there is no such row
  size_t total_bytes() const;
  size_t device_bytes() const;  // of the rows that are not on the host
  // The max host memory that `ranks` ranks of one host take, without the data set.
  size_t host_bytes(int ranks) const;
  // Whether checkpoints are written from a copy of weights and moments while training continues.
  bool has_snapshot() const { return row_bytes(RowKind::kWeightsSnapshot) > 0; }
};

// Human-readable memory table with a total.
std::string memory_table(const MemoryPlan& memory);

}  // namespace lockstep::plan
