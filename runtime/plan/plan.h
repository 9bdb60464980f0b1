#pragma once
// The plan of a run: where every parameter, gradient and activation lies, and how many bytes each
// rank will allocate. Plain, printable data, computed before anything is allocated.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/power_sgd/power_sgd_layout.h"
#include "collectives/sharding.h"
#include "collectives/topology.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/muon_layout.h"

namespace lockstep {

// A parameter's offset in the flat buffers, in elements, and its attributes.
struct ParameterSlot {
  std::string name;
  Shape shape;
  int64_t offset = 0;
  int64_t elements = 0;
  bool decay = false;
  Initializer initializer = {};
  float running_momentum = 0;           // above 0: a running statistic (see Tensor)
  Shape channels_last = {};             // see Tensor
  int64_t gradient_offset = 0;          // of one lane's gradient in a gradient buffer
  std::vector<int64_t> row_parts = {};  // see Tensor
  float lr_scale = 1;                   // see Tensor, also for the fields below
  float weight_decay = -1;
  bool frozen = false;
};

// Slots are indexed by parameter number (order of creation in the graph). Offsets follow the order
// in which the backward pass finishes the gradients, so that a bucket is complete as early as
// possible. Running statistics come next, in buckets of their own, and frozen parameters last:
// there are no gradients, moments or master weights at their offsets. No parameter crosses the
// boundary of a block, which is one bucket or, for a parameter larger than a bucket, several.
struct ParameterLayout {
  std::vector<ParameterSlot> slots;
  std::vector<Range> blocks;
  int64_t parameters = 0;  // elements in use
  int64_t elements = 0;    // including padding
  // Offset of the running statistics; trained() if there are none.
  int64_t statistics_begin = 0;
  int64_t frozen_elements = 0;    // at the end, including padding
  int64_t frozen_parameters = 0;  // of `parameters`
  int lanes = 1;                  // the layout is padded for this number

  // Offset of the frozen parameters: the elements that a step updates, including padding.
  int64_t trained() const { return elements - frozen_elements; }

  // The slots' offsets in increasing order.
  std::vector<int64_t> begins() const;
  // The slot that holds an element. For padding, the slot before it.
  size_t slot_at(int64_t flat) const;
};

// Bytes [offset, offset + bytes) of the arena, in use from op `first_op` through op `last_op`.
struct Placement {
  TensorId tensor = kNoTensor;  // kNoTensor: the workspace of first_op
  size_t offset = 0;
  size_t bytes = 0;
  int first_op = 0;
  int last_op = 0;
};

// A parameter by number, and its byte offset in the memory for gathered parameters.
struct PlacedParameter {
  size_t parameter = 0;
  size_t offset = 0;
};

// A state or a constant of the graph, and its byte offset in the memory for states or for
// constants.
struct PlacedTensor {
  TensorId tensor = kNoTensor;
  size_t offset = 0;
};

// One graph laid out in the arena.
struct ProgramPlan {
  std::vector<Placement> placements;
  std::vector<size_t> tensor_offsets;     // by TensorId; kNotInArena for tensors elsewhere
  std::vector<size_t> workspace_offsets;  // by op
  size_t arena_bytes = 0;
  // Tensors that persist from run to run, in the order of the graph. Equal states of two graphs
  // have the same offsets, so that programs may share the memory for states.
  std::vector<PlacedTensor> states;
  size_t state_bytes = 0;
  // If a plan has several programs, each one's constants follow those of the programs before it.
  std::vector<PlacedTensor> constants;
  size_t constant_bytes = 0;  // of this program
  int64_t flops = 0;          // of one lane
  std::vector<std::vector<int>>
      buckets_after_op;  // gradient buckets that are complete after each op; training only
  // The all-gathers of parameters in the order in which ops need them, and how many of them must be
  // done before each op. Only training has them, once a step; if parameters are sharded, every
  // program has them, each time that it runs.
  std::vector<GatherItem> gathers;
  std::vector<size_t> gathered_before_op;
  bool gathers_each_run = false;
  // Before each op: the offsets of the parameters of the blocks that arrive for it.
  std::vector<std::vector<PlacedParameter>> placed_before_op;
  size_t gathered_bytes = 0;  // memory for gathered blocks; 0 if they are gathered in place
  // The gradient buckets that each op is the first to write, if buckets share memory; training
  // only.
  std::vector<std::vector<int>> buckets_begun_by_op;
};
inline constexpr size_t kNotInArena = ~size_t{0};

// One allocation of a rank.
struct MemoryRow {
  std::string name;
  size_t bytes = 0;
  std::string note;
  bool on_host = false;  // on a device with memory of its own
  int sharers = 1;       // ranks of a node that share this allocation
};

// Alignment of rows, in bytes, on a device with memory of its own.
inline constexpr size_t kDeviceAlignment = 256;

// Names of the memory rows; the run makes exactly these allocations, but for kGraphsRow.
inline constexpr const char* kParametersRow = "parameters";
inline constexpr const char* kGatheredRow = "gathered parameters";
inline constexpr const char* kMastersRow = "master weights";
inline constexpr const char* kGradientsRow = "gradients";
inline constexpr const char* kGradientSumsRow = "summed gradients";
inline constexpr const char* kMomentsRow = "optimizer moments";
inline constexpr const char* kConstantsRow = "constants";
inline constexpr const char* kArenaRow = "activations and workspace";
inline constexpr const char* kStagingRow = "exchange staging";
inline constexpr const char* kResidualsRow = "residuals of gradients";
inline constexpr const char* kFactorsRow = "factors of gradients";
inline constexpr const char* kMuonRow = "matrices of Muon";
inline constexpr const char* kWeightsSnapshotRow = "snapshot of weights";
inline constexpr const char* kMomentsSnapshotRow = "snapshot of moments";
inline constexpr const char* kTrainBatchesRow = "training batches";
inline constexpr const char* kEvalBatchesRow = "evaluation batches";
inline constexpr const char* kEvalScoresRow = "evaluation predictions";
inline constexpr const char* kDeviceBatchesRow = "batches on the device";
inline constexpr const char* kLibrariesRow = "libraries' workspace";
inline constexpr const char* kDatasetRow = "data set";
// An estimate of what the driver takes, for which the run allocates nothing.
inline constexpr const char* kGraphsRow = "CUDA graphs";

struct Plan {
  Topology topology;
  // What is sharded, so that a rank holds only its part. Each stage of ZeRO (1 to 3) includes those
  // before it.
  //
  // Moments and master weights: a rank updates its part of the parameters, then all ranks gather
  // the parameters. Otherwise the summed gradients are gathered, and every rank updates all
  // parameters.
  bool shards_optimizer = true;
  // Gradients: each lane's gradients are summed across the ranks separately, bucket by bucket, in
  // memory that later buckets reuse. A rank keeps its part of the sum.
  bool shards_gradients = false;
  // Parameters: each program gathers a block of them ahead of the ops that read it, in memory that
  // other blocks use before and after.
  bool shards_parameters = false;
  int lanes = 1;
  // a rank's lanes run together in training; see Graph::crosses_lanes()
  bool interleaved_lanes = false;
  ParameterLayout layout;
  DType compute = DType::kF32;  // of the parameters as the ops read them
  DType wire = DType::kF32;     // of gradients on their way to other ranks
  size_t constant_bytes = 0;    // of all programs
  int residual_groups = 0;      // groups of lanes whose sums leave residuals; 0: none
  // for gradients sent as low-rank factors; then the reducer exchanges nothing itself
  std::optional<PowerSgdLayout> power_sgd;
  std::optional<MuonLayout> muon;     // if Muon is the optimizer
  std::vector<Range> buckets;         // of everything that a step updates
  std::vector<Range> frozen_buckets;  // numbered after `buckets`: those of frozen parameters
  // Elements of the buckets whose exchange may be in flight at a time.
  int64_t exchanged_elements = 0;
  int64_t gradient_elements = 0;  // of a gradient buffer
  // If buckets share the memory of a gradient buffer: each bucket's offset in it, and the ranges of
  // the bucket that hold no gradient. Empty if buckets lie as in the flat buffer.
  std::vector<int64_t> bucket_offsets;
  std::vector<std::vector<Range>> bucket_gaps;
  // The all-gathers of the summed gradients if the optimizer is not sharded, except with
  // replicated_sums(). `rounded_gathers` are those of sums sent as `wire`, through the staging
  // buffer.
  std::vector<GatherItem> gradient_gathers, rounded_gathers;
  ProgramPlan training;
  ProgramPlan evaluation;
  std::vector<ProgramPlan> length_bucket_training,
      length_bucket_evaluation;   // as in LengthBucketGraphs
  std::vector<MemoryRow> memory;  // per rank
  int64_t wire_bytes = 0;         // sent by one rank in a step; shared memory sends nothing
  int64_t network_bytes = 0;      // the part that goes to other nodes

  // Whether the ranks of a node share one copy of the parameters.
  bool shares_parameters() const { return topology.shares_memory && shards_optimizer; }
  // Whether ranks that share memory write their sums into each other's gradients.
  bool replicated_sums() const { return topology.shares_memory && !shards_optimizer; }
  LocalLanes lanes_of(int rank) const {
    return local_lanes(lanes, topology.ranks(), rank, shards_gradients && !interleaved_lanes);
  }
  // The index of element `flat` of a bucket among the elements that `rank` updates, which are
  // packed one range after the other.
  int64_t owned_index_of(int rank, size_t bucket, int64_t flat) const;
  size_t gradient_buckets() const;         // without the buckets of running statistics
  std::vector<Range> all_buckets() const;  // with the buckets of frozen parameters
  // "layers.3.norm.weight to layers.3.mlp.up.weight" for each of them.
  std::vector<std::string> bucket_names() const;
  size_t memory_bytes() const;
  size_t device_bytes() const;  // of the rows that are not on the host
  // Whether checkpoints are written from a copy of weights and moments while training continues.
  bool has_snapshot() const { return row_bytes(kWeightsSnapshotRow) > 0; }
  // Host memory that a rank takes for a while, in addition to its rows, when weights are
  // initialized, saved or loaded: a full copy in fp32, and one in the 16-bit compute type, unless
  // they lie there in full anyway.
  size_t weights_copy_bytes() const;
  // The max host memory that `ranks` ranks of one host take, without the data set.
  size_t host_bytes(int ranks) const;
  size_t row_bytes(const std::string& name) const;  // 0 if there is no such row
};

// Workspace bytes that a backend needs for an op.
using WorkspaceBytes = std::function<size_t(const Graph&, const Op&)>;

struct PlanOptions {
  Topology topology;
  int zero_stage = 1;  // 0 to 3, as in DeepSpeed; with one rank all are the same
  int lanes = 1;
  double bucket_mib = 25;
  DType wire = DType::kF32;
  int residual_groups = 0;
  int power_sgd = 0;                 // the rank of low-rank gradient factors; 0: off
  int moments = 0;                   // fp32 moments that the optimizer keeps per parameter
  int half_moments = 0;              // 16-bit moments that it keeps per parameter
  const MuonConfig* muon = nullptr;  // borrowed; null: another optimizer
  NewtonSchulzBytes newton_schulz_bytes = {};
  // copies the state of a checkpoint, so that it is written while training continues
  bool snapshot = false;
  size_t train_batch_bytes = 0;  // rings of the loaders
  size_t eval_batch_bytes = 0;
  size_t eval_score_bytes = 0;  // for the task's metrics
  size_t dataset_bytes = 0;
  bool evaluation_only = false;   // no gradients, moments or exchange
  bool separate_memory = false;   // whether the device has memory of its own
  size_t device_batch_bytes = 0;  // on the device: the lanes' batches
  size_t library_bytes = 0;       // OpSet::workspace_bytes
  size_t recordings = 0;          // of a step, as CUDA graphs
};

// The bucket size, in MiB of floats, that exposes the least of an exchange. If G bytes are sent in
// buckets of b bytes, two times are exposed: that of the last bucket, b / bandwidth, and G / b
// times the fixed cost of one bucket. Their sum is least at b = sqrt(G * cost * bandwidth). On
// networks and in shared memory alike, cost * bandwidth is about 128 KiB, because a faster link
// also has a lower latency. Rounded to a tenth.
double usual_bucket_mib(const Graph& training, DType wire);

// Graphs for shorter samples, in increasing order of length: see length_bucket_programs.h.
struct LengthBucketGraphs {
  std::span<const Graph> training = {}, evaluation = {};
};

// `training` must be differentiated; `evaluation` may be null.
Plan make_plan(const Graph& training,
               const Graph* evaluation,
               const PlanOptions& options,
               const WorkspaceBytes& workspace_bytes,
               const LengthBucketGraphs& length_buckets = {});

// Lays out one graph in the arena.
ProgramPlan plan_program(const Graph& graph, const WorkspaceBytes& workspace_bytes);

// Human-readable memory table with a total.
std::string memory_table(const Plan& plan);

}  // namespace lockstep
