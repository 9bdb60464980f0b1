#include "runtime/train/step/step_batches.h"

#include "runtime/base/flight_recorder.h"
#include "runtime/base/threads.h"

namespace lockstep::train {

StepBatches::StepBatches(const RunContext& context, const RunMemory& memory, StepClock& clock)
    : context_(context),
      clock_(clock),
      memory_(memory.train_batches),
      stage_(context.graphs.training,
             context.backend,
             memory.device_batches,
             static_cast<size_t>(context.local_lanes())) {}

void StepBatches::start(int64_t done) {
  data::LoaderOptions options;
  options.geometry = context_.geometry();
  options.seed = context_.config.seed;
  options.shuffle = context_.config.data.shuffle;
  options.first_step = done;
  options.ring_batches = context_.train_ring_batches;
  options.threads = data::choose_loader_threads(
      *context_.data.train, context_.config.data.decode_threads, compute_threads());
  loader_.reset();  // the previous one writes to the same memory
  stage_.drop_loaded();
  loader_ = std::make_unique<data::Loader>(*context_.data.train, options, memory_);
}

void StepBatches::take() {
  if (!stage_.loaded()) load();
  taken_ = stage_.take();
}

void StepBatches::load() {
  const FlightScope loading(FlightPhase::kLoading);
  const auto timed = clock_.time(&StepClock::Phases::data, "wait for data");
  stage_.load(*loader_);
}

}  // namespace lockstep::train
