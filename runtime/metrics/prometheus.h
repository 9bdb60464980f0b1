#pragma once
// The current metrics of a run in the text format of Prometheus (version 0.0.4).

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/metrics/step_record.h"

namespace lockstep::metrics {

// The page that Prometheus reads. It has the newest value of each metric: what only some steps
// have, such as evaluations, energy and the state of GPUs, stays until there is a newer one. The
// names of metrics are interfaces. Thread-safe; a writer never waits for more than the copy of a
// record.
class PrometheusPage {
 public:
  struct Run {
    std::string name, run_dir;  // labels of lockstep_info
    int ranks = 1;
    int64_t start = 0;  // the number of the start under `launch`; 0: not under it
  };
  explicit PrometheusPage(Run run);

  // Training is about to begin, or goes back: after step `begin_step`, up to step `last_step`.
  // `planned_bytes`: memory of a rank.
  void begin(int64_t begin_step, int64_t last_step, int64_t planned_bytes);
  void update(const StepRecord& record);
  // The step of the newest complete checkpoint, as far as this process knows. Cheap to repeat.
  void set_checkpoint(int64_t step);

  std::string text() const;

 private:
  struct Checkpoint {
    int64_t step = 0;
    double time = 0;  // when it was first seen, in seconds since 1970
  };
  struct State {
    int64_t begin_step = 0, last_step = 0, planned_bytes = 0;
    std::optional<StepRecord> last = {};  // with what older records had and this one has not
    int64_t eval_step = 0;
    std::optional<Checkpoint> checkpoint = {};
  };

  const Run run_;
  const double start_time_;  // seconds since 1970
  mutable std::mutex mutex_;
  State state_;
};

}  // namespace lockstep::metrics
