#pragma once
// The pictures of a run's report, or of two runs' in the same axes.

#include <string>
#include <vector>

#include "launcher/plots/picture.h"
#include "launcher/report/timeline_summary.h"
#include "launcher/run/run_history.h"

namespace lockstep::report {

// A run and its name in the page. Borrows the run.
struct NamedRun {
  const launcher::RunHistory* run = nullptr;
  std::string name;
};
using Runs = std::vector<NamedRun>;

// Loss with evaluations and the best checkpoint, and a picture for each metric of evaluations.
std::vector<plots::Picture> learning_pictures(const Runs& runs);
// The learning rate and the norm of gradients.
std::vector<plots::Picture> optimizer_pictures(const Runs& runs);
// Samples or tokens a second, and the step's time beside its forecast if there is one.
std::vector<plots::Picture> speed_pictures(const Runs& runs);
// The time of a step by phase, over the run.
plots::Picture phase_picture(const NamedRun& run);
// Energy, clocks, temperature, memory of GPUs: as far as they are known.
std::vector<plots::Picture> device_pictures(const Runs& runs);
// How each rank spends its steps.
plots::Picture timeline_picture(const TimelineSummary& summary);

// A field's values as points, thinned for a plot.
std::vector<plots::Point> points_of(const launcher::MetricSeries& series);

// The mean of each of at most `count` equal parts of the series, at the middle of its steps; values
// that are not finite do not count. Empty if the series is too short to be smoothed. `rates`: the
// values are rates over equal work, whose mean is the harmonic one.
std::vector<plots::Point> means_of(const launcher::MetricSeries& series,
                                   size_t count,
                                   bool rates = false);

}  // namespace lockstep::report
