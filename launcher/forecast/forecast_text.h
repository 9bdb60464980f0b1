#pragma once
// A forecast for people and as JSON. Everything that it prints is marked as predicted.

#include <string>

#include "launcher/forecast/run_forecast.h"
#include "runtime/base/json.h"

namespace lockstep::forecast {

struct Forecast {
  Place place;
  StepForecast step;
  RunForecast run;
  // Whether the run fits: "fits (26.1 of 77.6 GiB, ZeRO 1)".
  std::string fit;
  bool replayed = false;  // from the measured times of a run elsewhere (replay.h)
};

// One screen: what the run takes.
void print_forecast(const run::PreparedRun& prepared, const Forecast& forecast);
// What it is made of, where the figures come from, and why the range is as wide as it is.
void explain_forecast(const run::PreparedRun& prepared, const Forecast& forecast);
// Adds members whose names begin with "predicted_". Ranges are lists of two numbers.
void add_forecast(const run::PreparedRun& prepared, const Forecast& forecast, Json& json);

// "2.9 to 3.4".
std::string text_of(const Range& range);
// "2.9 to 3.4 s", in the unit that suits it.
std::string seconds_text(const Range& seconds);

}  // namespace lockstep::forecast
