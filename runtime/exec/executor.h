#pragma once
// Runs a planned graph on a backend, lane by lane, or several lanes of a rank together: all of them
// if they depend on each other (Graph::crosses_lanes()), or those of a pass. In a pass, an op that
// computes samples independently (OpSchema::joins_lanes) runs once for all lanes, as the same op of
// a graph whose lanes are as large as the pass. All other ops run for one lane after the other.

#include <span>
#include <vector>

#include "collectives/gather/bucket_all_gather.h"
#include "collectives/reduce/gradient_exchange.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/op_observer.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/plan/plan.h"

namespace lockstep::exec {

// The memory that an executor works in; borrowed.
struct ExecutorMemory {
  std::byte* arena = nullptr;  // ProgramPlan::arena_bytes
  // In the graph's compute type: the flat buffer of ParameterLayout::elements, or the memory that
  // the program gathers into.
  std::byte* parameters = nullptr;
  collectives::BucketAllGather* gather =
      nullptr;                     // fills `parameters`; null: they are there already
  std::byte* states = nullptr;     // ProgramPlan::state_bytes, if the graph has states
  std::byte* constants = nullptr;  // of all programs of a plan; executors fill it
};

class Executor {
 public:
  // Keeps references to all but `layout`. The graph's parameters are the layout's, in the same
  // order. `joint`: the graph for the lanes of a pass as if they were one; null if no op runs for
  // several lanes.
  Executor(const graph::Graph& graph,
           const plan::ProgramPlan& plan,
           const plan::ParameterLayout& layout,
           Backend& backend,
           ExecutorMemory memory,
           const graph::Graph* joint = nullptr);

  // Runs forward and, in a training graph, backward for one lane. Gradients are written (not added)
  // to the buffer `gradients`, each parameter's at its gradient_offset. `exchange`, if given, gets
  // each bucket as soon as its gradients are complete.
  // The graph's result, statistics (4) f64 or an inference output, is copied to `result`, and the
  // graph's prediction to `prediction` unless it is null. `lane` and `result` lie in a
  // host_array(), input and target in memory of the backend. Each op waits for the gathers of the
  // parameters that it reads; they start here if the program gathers each time. Allocates nothing.
  void run(const graph::LaneContext& lane,
           const std::byte* input,
           const std::byte* target,
           float* gradients,
           collectives::GradientExchange* exchange,
           std::byte* result,
           std::byte* prediction = nullptr);

  // The parts of run(), for work that is queued repeatedly: begin_lane() of the backend with the
  // lane, then the ops, and then the copies of the results. Only the ops depend on nothing but the
  // addresses given to them and the exchange's current lane.
  void run_ops(const graph::LaneContext& lane,
               const std::byte* input,
               const std::byte* target,
               float* gradients,
               collectives::GradientExchange* exchange);
  void copy_results(collectives::GradientExchange* exchange,
                    std::byte* result,
                    std::byte* prediction = nullptr);

  // A turn in which this rank has no lane but others have: starts and completes what they exchange,
  // and runs no op. `exchange` may be null.
  void run_without_lane(collectives::GradientExchange* exchange);

  // The same as run() for several lanes of a rank, of which the first has the number `first` there.
  // Every lane runs up to an op that gathers from the lanes before any lane continues. At most as
  // many `lanes` as the plan has at the same time.
  struct LaneRun {
    const graph::LaneContext* lane;
    const std::byte* input;
    const std::byte* target;
    std::byte* result;
  };
  void run_together(std::span<const LaneRun> lanes,
                    collectives::GradientExchange& exchange,
                    int first = 0);

  // Reports each op to the borrowed observer from now on; null: to none.
  void observe(OpObserver* observer) { observer_ = observer; }

 private:
  using Tensors = std::vector<std::byte*>;  // by TensorId
  void bind(Tensors& tensors, const std::byte* input, const std::byte* target, float* gradients);
  void run_range(size_t begin,
                 size_t end,
                 size_t lane_index,
                 const graph::LaneContext& lane,
                 collectives::GradientExchange* exchange);
  template <typename F>
  void observed(size_t op, F run) const;
  void fill_constants(std::byte* memory);
  void begin_run();
  void await_parameters(size_t op, Tensors& tensors);
  const graph::Op* joint_op(size_t op, int lanes) const;
  bool runs_jointly(size_t op, size_t lanes) const;
  int64_t lane_distance(TensorId id, size_t lane) const;
  void run_joint(size_t op,
                 std::span<const LaneRun> lanes,
                 collectives::GradientExchange& exchange,
                 int first);
  void keep_rows(const Tensors& tensors, collectives::GradientExchange* exchange);
  void gather_lanes(const graph::Op& op, collectives::GradientExchange& exchange, size_t lanes);

  const graph::Graph& graph_;
  const plan::ProgramPlan& plan_;
  Backend& backend_;
  collectives::BucketAllGather* gather_;
  std::byte* parameters_;
  std::byte* arena_;
  OpObserver* observer_ = nullptr;
  std::vector<const Implementation*> implementations_;  // by op
  std::vector<Tensors> tensors_;  // one for each lane that runs at the same time
  std::vector<graph::RowGradient> rows_;
  bool gathers_from_lanes_ = false;
  const graph::Graph* joint_;
  std::vector<const graph::Op*> joint_ops_;  // by op, of `joint_`; null if it runs lane by lane
  std::vector<std::pair<TensorId, int64_t>>
      gradients_;  // parameter gradients and their offsets in a gradient buffer
};

}  // namespace lockstep::exec
