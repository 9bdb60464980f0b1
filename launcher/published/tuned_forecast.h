#pragma once
// What a well-tuned trainer would reach for a planned run: its network, lanes, precision, ranks and
// ZeRO stage, but with the software of published figures. This is no forecast of this program, and
// is never mixed with it.

#include <string>

#include "launcher/forecast/step_forecast.h"
#include "launcher/published/tuned_trainer.h"
#include "runtime/base/json.h"

namespace lockstep::published {

struct TunedForecast {
  std::string unknown;  // why nothing is predicted; empty: the rest is
  TrainerCase trainer;
  TrainerStep step;
  double samples_per_s = 0;
};

TunedForecast tuned_forecast(const run::PreparedRun& prepared, const forecast::Place& place);

// A line for the screen of `plan --on`; nothing if nothing is predicted.
void print_tuned(const TunedForecast& tuned);
// What it is made of, or why there is none.
void explain_tuned(const TunedForecast& tuned);
// Adds members whose names begin with "predicted_tuned_".
void add_tuned(const TunedForecast& tuned, Json& json);

}  // namespace lockstep::published
