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

// Where a parameter lies in the flat buffers, in elements.
struct ParameterSlot {
  std::string name;
  Shape shape;
  int64_t offset = 0;
  int64_t elements = 0;
  bool decay = false;
  Initializer initializer = {};
  float running_momentum = 0;           // above 0: a running statistic (see Tensor)
  Shape channels_last = {};             // see Tensor
  int64_t gradient_offset = 0;          // of a lane's gradient in a gradient buffer
  std::vector<int64_t> row_parts = {};  // see Tensor
  float lr_scale = 1;                   // see Tensor, and these
  float weight_decay = -1;
  bool frozen = false;
};

// Slots by parameter number (order of creation in the graph). Offsets follow the order in which the
// backward pass finishes the gradients, so that a bucket is complete as early as possible. Running
// statistics come next, in buckets of their own, and frozen parameters last: of gradients, moments
// and master weights there is nothing at their offsets. No parameter lies across the borders of a
// block, which is one bucket or, for a parameter that is larger, several.
struct ParameterLayout {
  std::vector<ParameterSlot> slots;
  std::vector<Range> blocks;
  int64_t parameters = 0;  // elements in use
  int64_t elements = 0;    // with padding
  // Where the running statistics begin; `trained()` without any.
  int64_t statistics_begin = 0;
  int64_t frozen_elements = 0;    // at the end, with padding
  int64_t frozen_parameters = 0;  // of `parameters`
  int lanes = 1;                  // that it is padded for

  // Where the frozen parameters begin: what a step moves, with padding.
  int64_t trained() const { return elements - frozen_elements; }

  // Where slots begin, increasing.
  std::vector<int64_t> begins() const;
  // The slot of an element, or the one before the padding that it is.
  size_t slot_at(int64_t flat) const;
};

// Bytes [offset, offset + bytes) of the arena, in use from before op `first_op` until after op
// `last_op`.
struct Placement {
  TensorId tensor = kNoTensor;  // kNoTensor: the workspace of first_op
  size_t offset = 0;
  size_t bytes = 0;
  int first_op = 0;
  int last_op = 0;
};

// A parameter by number, and where it lies among the gathered ones, in bytes.
struct PlacedParameter {
  size_t parameter = 0;
  size_t offset = 0;
};

// A state or a constant of the graph, and where it lies among the states or the constants, in bytes.
struct PlacedTensor {
  TensorId tensor = kNoTensor;
  size_t offset = 0;
};

// One graph laid out in the arena.
struct ProgramPlan {
  std::vector<Placement> placements;
  std::vector<size_t> tensor_offsets;  // by TensorId; kNotInArena where the tensor lies elsewhere
  std::vector<size_t> workspace_offsets;  // by op
  size_t arena_bytes = 0;
  // Tensors that stay from run to run, in the order of the graph: equal ones of two graphs lie at
  // the same offsets of the memory for states, which programs may share.
  std::vector<PlacedTensor> states;
  size_t state_bytes = 0;
  // Of a plan with several programs each has its constants behind those of the ones before it.
  std::vector<PlacedTensor> constants;
  size_t constant_bytes = 0;  // of this program
  int64_t flops = 0;          // of one lane
  std::vector<std::vector<int>>
      buckets_after_op;  // gradient buckets that are complete after each op; training only
  // The all-gathers of parameters, in the order of need, and how many of them
  // each op needs. In training; where they are sharded in every program, each time that it runs.
  std::vector<GatherItem> gathers;
  std::vector<size_t> gathered_before_op;
  bool gathers_each_run = false;
  std::vector<std::vector<PlacedParameter>> placed_before_op;  // of the blocks that come then
  size_t gathered_bytes = 0;  // memory for them, where they are not gathered in place
  // Gradient buckets that each op is the first to write, where buckets share memory; training only.
  std::vector<std::vector<int>> buckets_begun_by_op;
};
inline constexpr size_t kNotInArena = ~size_t{0};

// One allocation of a rank.
struct MemoryRow {
  std::string name;
  size_t bytes = 0;
  std::string note;
  bool on_host = false;  // where the device has memory of its own
  int sharers = 1;       // ranks of a node that have it together
};

// Bytes: where rows of a device with memory of its own begin.
inline constexpr size_t kDeviceAlignment = 256;

// Names of the memory rows; the run makes exactly these allocations.
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

struct Plan {
  Topology topology;
  // What is sharded, so that a rank has but its part of it; each comes with those before it, and
  // they are stages 1 to 3 of ZeRO.
  //
  // Moments and master weights: a rank updates its part of the parameters, which all then gather.
  // Else the summed gradients are gathered, and every rank updates all parameters.
  bool shards_optimizer = true;
  // Gradients: every lane's are summed across the ranks by themselves, bucket by bucket in memory
  // that the next ones use again, and a rank keeps its part of the sum.
  bool shards_gradients = false;
  // Parameters: each program gathers a block of them ahead of the ops that read it, in memory that
  // other blocks use before and after.
  bool shards_parameters = false;
  int lanes = 1;
  bool lanes_together = false;  // those of a rank, in training; see Graph::crosses_lanes()
  ParameterLayout layout;
  DType compute = DType::kF32;              // of the parameters as the ops read them
  DType wire = DType::kF32;                 // of gradients on their way to other ranks
  size_t constant_bytes = 0;                // of all programs
  int residual_groups = 0;                  // of lanes, whose sums leave residuals; 0: none do
  std::optional<PowerSgdLayout> power_sgd;  // of gradients that travel as factors; then the reducer
                                            // exchanges nothing itself
  std::optional<MuonLayout> muon;           // where that is the optimizer
  std::vector<Range> buckets;               // of what a step moves
  std::vector<Range> frozen_buckets;        // those that follow, of frozen parameters
  // Buckets of so many elements together may be on their way to be summed.
  int64_t exchanged_elements = 0;
  int64_t gradient_elements = 0;  // of a gradient buffer
  // Where buckets share its memory: where each begins in it, and what of it no gradient is written
  // to. None: they lie as in the flat buffer.
  std::vector<int64_t> bucket_offsets;
  std::vector<std::vector<Range>> bucket_gaps;
  // Of the sums, where the optimizer is not sharded and unless sums_everywhere(), and of those that
  // travel as `wire`, through the staging.
  std::vector<GatherItem> gradient_gathers, rounded_gathers;
  ProgramPlan training;
  ProgramPlan evaluation;
  std::vector<ProgramPlan> shorter_training, shorter_evaluation;  // as in ShorterGraphs
  std::vector<MemoryRow> memory;                                  // per rank
  int64_t wire_bytes = 0;     // sent by one rank in a step; shared memory sends nothing
  int64_t network_bytes = 0;  // of these, to other nodes

  // The ranks of a node have one copy of the parameters together.
  bool shares_parameters() const { return topology.shares_memory && shards_optimizer; }
  // Ranks that share memory write their sums into each other's gradients.
  bool sums_everywhere() const { return topology.shares_memory && !shards_optimizer; }
  LocalLanes lanes_of(int rank) const {
    return local_lanes(lanes, topology.ranks(), rank, shards_gradients && !lanes_together);
  }
  // Where element `flat` of a bucket lies among those that a rank updates, one range after the
  // other.
  int64_t place_of(int rank, size_t bucket, int64_t flat) const;
  size_t gradient_buckets() const;         // those before the ones of running statistics
  std::vector<Range> all_buckets() const;  // those of frozen parameters too
  size_t memory_bytes() const;
  size_t device_bytes() const;  // of rows that are not on the host
  // Whether checkpoints are written from a copy of weights and moments while training goes on.
  bool has_snapshot() const { return row_bytes(kWeightsSnapshotRow) > 0; }
  // What a rank takes of its host's memory for a while on top of its rows, while weights are begun,
  // saved or read: a whole copy of them in fp32, and one in the type of 16 bits that it computes
  // in, where they do not lie there as a whole.
  size_t weights_copy_bytes() const;
  // What `ranks` ranks of one host take of its memory at most, without the data set.
  size_t host_bytes(int ranks) const;
  size_t row_bytes(const std::string& name) const;  // 0 where there is no such row
};

// Scratch bytes that a backend's implementation of an op asks for.
using WorkspaceBytes = std::function<size_t(const Graph&, const Op&)>;

struct PlanOptions {
  Topology topology;
  int zero_stage = 1;  // 0 to 3, as DeepSpeed numbers them; with one rank all are the same
  int lanes = 1;
  double bucket_mib = 25;
  DType wire = DType::kF32;
  int residual_groups = 0;
  int power_sgd = 0;                 // of gradients that travel as factors; 0: none do
  int moments = 0;                   // floats that the optimizer keeps per parameter
  int half_moments = 0;              // and numbers of 16 bits
  const MuonConfig* muon = nullptr;  // borrowed; null: another optimizer
  NewtonSchulzBytes newton_schulz_bytes = {};
  bool snapshot = false;         // of what a checkpoint has, so that it is written meanwhile
  size_t train_batch_bytes = 0;  // rings of the loaders
  size_t eval_batch_bytes = 0;
  size_t eval_score_bytes = 0;  // for the task's metrics
  size_t dataset_bytes = 0;
  bool evaluation_only = false;   // no gradients, moments or exchange
  bool separate_memory = false;   // the device has memory of its own
  size_t device_batch_bytes = 0;  // there: of the lanes' batches
  size_t library_bytes = 0;       // OpSet::workspace_bytes
};

// The size of buckets, in MiB of floats, that exposes least of an exchange: of G bytes that travel
// in buckets of b, the last one's b / bandwidth and the G / b times that one costs more than its
// bytes. That is least at b = sqrt(G * cost * bandwidth), where cost * bandwidth is about 128 KiB
// on networks and in shared memory alike: a faster one also answers sooner. To a tenth.
double usual_bucket_mib(const Graph& training, DType wire);

// Graphs for shorter samples, in increasing order of their lengths: see shorter_programs.h.
struct ShorterGraphs {
  std::span<const Graph> training = {}, evaluation = {};
};

// `training` must be differentiated; `evaluation` may be null.
Plan make_plan(const Graph& training,
               const Graph* evaluation,
               const PlanOptions& options,
               const WorkspaceBytes& workspace_bytes,
               const ShorterGraphs& shorter = {});

// Lays out one graph whose parameters are those of `layout` (in the same order of creation).
ProgramPlan plan_program(const Graph& graph, const WorkspaceBytes& workspace_bytes);

// Human-readable memory table with a total.
std::string memory_table(const Plan& plan);

}  // namespace lockstep
