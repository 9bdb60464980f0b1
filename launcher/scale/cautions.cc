#include "launcher/scale/cautions.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/text.h"

namespace lockstep::scale {
namespace {

constexpr double kGood_s = 3;       // recommended time of the steps that count
constexpr double kMaxSkipped = 10;  // first steps of a run, which do not count

// Rounds up to two digits.
int64_t rounded_up(double number) {
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(number)) - 1));
  return static_cast<int64_t>(std::ceil(number / unit) * unit);
}

}  // namespace

std::string caution_of_load(const RunSetup& setup,
                            const std::vector<MeasuredRun>& runs,
                            double load_before) {
  constexpr double kIdle = 0.1, kIdleLoad = 0.2;  // of the CPUs; a load decreases slowly
  double taken = 0;
  for (const MeasuredRun& run : runs) taken += run.other_cpus / static_cast<double>(runs.size());
  const bool measured = setup.launcher.starts_here();
  const int cpus = setup.here.cpus;
  if (measured ? taken <= kIdle * cpus : load_before <= kIdleLoad * cpus) return "";
  const std::string what =
      measured
          ? fmt::format("during the runs other work took {:.1f} of this host's {} CPUs on average",
                        taken,
                        cpus)
          : fmt::format(
                "before the runs this host had a load of {:.1f} on {} CPUs", load_before, cpus);
  return "Caution: " + what +
         ". What it takes shows as slower compute, stragglers and exposed communication.";
}

std::string caution_of_length(const std::vector<MeasuredRun>& runs, int64_t config_steps) {
  const MeasuredRun* shortest = &runs.front();
  double min_step_ms = runs.front().ranks[0].step_ms;
  for (const MeasuredRun& run : runs) {
    if (counted_s(run.ranks[0]) < counted_s(shortest->ranks[0])) shortest = &run;
    min_step_ms = std::min(min_step_ms, run.ranks[0].step_ms);
  }
  const double min_s = counted_s(shortest->ranks[0]);
  if (min_s >= kEnough_s) return "";
  const int64_t steps = rounded_up(kGood_s * 1000 / min_step_ms + kMaxSkipped);
  std::string text = fmt::format(
      "Caution: the steps that count took only {:.3g} s in a {} run of {} rank{}. In less than "
      "{:.0f} s chance and warm-up weigh as much as what is measured: --steps {} would give about "
      "{:.0f} s",
      min_s,
      name_of(shortest->world.mode),
      shortest->world.ranks,
      plural(shortest->world.ranks),
      kEnough_s,
      steps,
      kGood_s);
  if (config_steps < steps)
    text += fmt::format(
        ", with a longer train.steps or train.epochs, as the config's training ends at step {}",
        config_steps);
  return text + ".";
}

std::string what_is_missing(const std::vector<MeasuredRun>& runs,
                            const std::vector<World>& worlds,
                            int repeats,
                            const std::string& reason) {
  std::string text = fmt::format("runs made, of {} of each size: ", repeats);
  for (const World& world : worlds) {
    const auto made = std::count_if(runs.begin(), runs.end(), [&](const MeasuredRun& run) {
      return run.world.mode == world.mode && run.world.ranks == world.ranks;
    });
    text += fmt::format("{}{} on {} rank{}: {}",
                        &world == &worlds.front() ? "" : ", ",
                        name_of(world.mode),
                        world.ranks,
                        plural(world.ranks),
                        made);
  }
  return text + ". What ended the measurement: " + reason;
}

}  // namespace lockstep::scale
