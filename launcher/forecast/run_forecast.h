#pragma once
// Predicts a whole run on described hardware: its time with evaluations and checkpoints, its cost
// and its energy, limited by a queue's walltime or interrupted at a given rate.
//
// Interruptions. If a checkpoint costs C seconds and the time between interruptions is M on
// average, a checkpoint every sqrt(2 C M) seconds costs least (Young 1974, Daly 2006): C of each
// interval for saving, and on average half an interval and the restart for every interruption.

#include <optional>
#include <string>

#include "launcher/forecast/step_forecast.h"

namespace lockstep::forecast {

// What the user adds to the hardware file.
struct RunTerms {
  double usd_per_hour = 0;     // of a node; 0: from the program's prices
  double watts = 0;            // of a node; 0: from the hardware file
  double walltime_s = 0;       // of a job; 0: no limit
  double interruptions_h = 0;  // of a node, an hour; 0: none
  double spread = 0;           // of ranks, as Place::spread; 0: assumed
};

struct Interruptions {
  double count = 0;            // expected
  double every_s = 0;          // best interval between checkpoints
  double every_steps = 0;      // the same in steps
  Range factor;                // by which the run takes longer
  double lost_steps_each = 0;  // on average
};

struct RunForecast {
  int nodes = 1;
  Range total_s;          // with interruptions, if there are any
  Range uninterrupted_s;  // without them
  Range training_s, evaluation_s;
  Range epoch_s;  // one pass over the training data
  double epochs = 0;
  int64_t evaluations = 0;
  double checkpoint_bytes = 0;          // of one
  int64_t checkpoints = 0;              // written
  int64_t kept = 0;                     // at the end
  std::optional<Range> save_s, load_s;  // of one; empty: the disk's rate is unknown
  Range waits_s;                        // that training waits for checkpoints
  int64_t restarts = 0;                 // because of the walltime
  std::optional<Interruptions> interrupted;
  std::optional<Range> usd;  // on demand nothing interrupts the run; at the user's price it may
  double usd_per_hour = 0;   // of a node
  std::string price_from;    // "AWS p5.48xlarge in us-east-1, on demand, 2026-08"
  std::optional<Range> spot_usd;
  double spot_usd_per_hour = 0;  // of a node
  std::optional<Range> kwh;
  double node_watts = 0;
};

RunForecast forecast_run(const run::PreparedRun& prepared,
                         const Place& place,
                         const StepForecast& step,
                         const RunTerms& terms);

}  // namespace lockstep::forecast
