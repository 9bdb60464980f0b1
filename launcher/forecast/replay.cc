#include "launcher/forecast/replay.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "launcher/forecast/timed_run.h"
#include "runtime/base/error.h"

namespace lockstep::forecast {
namespace {

// Half of a range, as a share of its middle.
double width_of(const Range& range) { return (range.high - range.low) / (range.high + range.low); }

// A measured time, of which `from` is the forecast, moved to the hardware for which `on` is.
Range moved(double measured_s, const OpTime& from, const OpTime& on, bool same_hardware) {
  constexpr double kRepeats = 0.03, kMost = 0.9;  // as in op_times.cc
  const double a = width_of(from.seconds), b = width_of(on.seconds);
  double square = a * a + b * b;
  if (same_hardware && from.seconds == on.seconds)
    square = 0;
  else if (!from.measured && !on.measured)
    square -= a * b;  // assumed: half of what the shares of the peak are off by is common to both
  const double width = std::min(kMost, std::sqrt(kRepeats * kRepeats + square));
  const double seconds = measured_s * on.seconds.middle() / from.seconds.middle();
  return {seconds * (1 - width), seconds * (1 + width)};
}

// Work of a step that is no op of the graph.
struct Rest {
  const char* part;  // of the step, for the reader
  std::string name;
  std::vector<int64_t> extents;
  double bytes, times_a_step;
};

// A run, and what is predicted for its ops in its place.
struct Predicted {
  Predicted(const run::PreparedRun& of_run, const Place& place)
      : run(of_run),
        graph(run.graphs->training),
        work(work_of_run(run, graph)),
        arithmetic(arithmetic_of(run)),
        times(
            *place.hardware, arithmetic, {.ranks = place.ranks_per_node, .threads = place.threads}),
        lanes(run.plan.sharding.shares().most()) {}

  KnownTime known(const OpWork& of, const Range& seconds = {}) const {
    return {
        of.measured_name(), arithmetic.name(of.type), of.extents, of.flops(), of.bytes(), seconds};
  }
  KnownTime known(const Rest& of, const Range& seconds = {}) const {
    return {of.name, arithmetic.name(arithmetic.compute), of.extents, 0, of.bytes, seconds};
  }
  OpTime time(const Rest& of) const { return times.time(of.name, of.bytes, of.extents); }

  std::vector<Rest> rests() const {
    constexpr const char* kSums = "sums of gradients, and the rest";
    const double gradients = gradient_bytes(run);
    return {{kSums, kLaneSum, lane_extents(run), gradients, lanes},
            {kSums, kStepRest, {memory_sharers(run)}, gradients, 1},
            {"update", update_name(run), {}, update_bytes(run), 1}};
  }

  const run::PreparedRun& run;
  const graph::Graph& graph;
  const GraphWork work;
  const Arithmetic arithmetic;
  const OpTimes times;
  const double lanes;  // of a rank
};

// The names of a graph's ops with their kinds, each only once.
std::vector<std::string> names_of(const graph::Graph& graph) {
  std::unordered_map<std::string, int> seen;
  std::vector<std::string> names;
  for (const graph::Op& op : graph.ops) {
    std::string name = std::string(graph::name_of(op.kind)) + " " + op.name;
    const int before = seen[name]++;
    names.push_back(before == 0 ? name : name + " " + std::to_string(before + 1));
  }
  return names;
}

class Move {
 public:
  Move(const TimedRun& timed, const run::PreparedRun& there, const Place& place)
      : timed_(timed),
        place_(place),
        here_(*timed.prepared, timed.place),
        there_(there, place),
        same_hardware_(timed.place.hardware->name == place.hardware->name),
        same_device_(here_.run.ops->separate_memory == there.ops->separate_memory) {
    replay_.from = timed.place.hardware->name;
    replay_.step_s = timed.step_s;
  }

  Replay replay() {
    require_same_batch();
    replay_.whole = std::ranges::all_of(timed_.ops, [&](const MeasuredOp& op) {
      return std::ranges::any_of(here_.rests(),
                                 [&](const Rest& rest) { return rest.name == op.op; });
    });
    if (replay_.whole)
      move_together();
    else
      move_ops();
    for (auto& [name, part] : parts_) replay_.parts.push_back(std::move(part));
    std::ranges::stable_sort(
        replay_.parts, std::greater(), [](const ReplayedPart& part) { return part.there_s.high; });
    return std::move(replay_);
  }

 private:
  void require_same_batch() const {
    const auto samples = [](const run::PreparedRun& run) {
      return run.config.train.global_batch / run.plan.sharding.lanes;
    };
    if (samples(here_.run) == samples(there_.run)) return;
    throw ConfigError(
        "--replay: the run has {} samples a lane, and what is planned has {}; allowed: the same "
        "train.global_batch and train.lanes",
        samples(here_.run),
        samples(there_.run));
  }

  std::optional<double> measured_s(const KnownTime& sought) const {
    for (const MeasuredOp& op : timed_.ops)
      if (sought.is(op.op, op.type, op.extents, op.flops, op.bytes)) return op.us * 1e-6;
    return std::nullopt;
  }

  // Adds a time of a step to its part. Nothing without predictions in both places.
  std::optional<Range> move(const std::string& part,
                            double measured_s,
                            double times_here,
                            double times_there,
                            const OpTime& from,
                            const OpTime& on) {
    if (measured_s <= 0 || from.seconds.low <= 0 || on.seconds.low <= 0) return std::nullopt;
    const Range there = moved(measured_s, from, on, same_hardware_);
    ReplayedPart& total = parts_.try_emplace(part, ReplayedPart{part, 0, {}}).first->second;
    total.here_s += measured_s * times_here;
    total.there_s += there * times_there;
    return there;
  }

  // Each op by that of the same kind and name in the graph of the run.
  void move_ops() {
    std::vector<double> here_s;  // by work
    for (const OpWork& work : here_.work.works)
      here_s.push_back(measured_s(here_.known(work)).value_or(0));
    std::unordered_map<std::string, size_t> work_here;  // by name of the op
    double all_s = 0, matched_s = 0;
    const std::vector<std::string> names_here = names_of(here_.graph);
    for (size_t op = 0; op < names_here.size(); ++op) {
      const size_t work = here_.work.of_op[op];
      work_here.emplace(names_here[op], work);
      if (here_s[work] > 0) ++replay_.ops;
      all_s += here_s[work];
    }
    const std::vector<std::string> names = names_of(there_.graph);
    std::vector<bool> moved(there_.work.works.size());
    for (size_t op = 0; op < names.size(); ++op) {
      const auto found = work_here.find(names[op]);
      if (found == work_here.end()) continue;
      const OpWork& here = here_.work.works[found->second];
      const size_t index = there_.work.of_op[op];
      const OpWork& there = there_.work.works[index];
      // Another device may compute other rows of it, or skip one of its gradients.
      if (same_device_ && (here.extents != there.extents || here.flops() != there.flops()))
        throw ConfigError(
            "--replay: the op '{}' has another size in the run; allowed: the network that was "
            "measured, with the same batch",
            names[op]);
      const std::optional<Range> seconds = move(graph::name_of(there.kind),
                                                here_s[found->second],
                                                here_.lanes,
                                                there_.lanes,
                                                here_.times.time(here),
                                                there_.times.time(there));
      if (!seconds) continue;
      ++replay_.matched;
      matched_s += here_s[found->second];
      if (!moved[index]) replay_.times.push_back(there_.known(there, *seconds));
      moved[index] = true;
    }
    replay_.share = matched_s / all_s;
    require_same_network();
    move_rests();
    double measured = all_s * here_.lanes;
    for (const Rest& rest : here_.rests())
      measured += measured_s(here_.known(rest)).value_or(0) * rest.times_a_step;
    scale(timed_.busy_s / measured);
  }

  void move_rests() {
    const std::vector<Rest> rests_here = here_.rests(), rests_there = there_.rests();
    for (size_t i = 0; i < rests_here.size(); ++i) {
      const Rest &here = rests_here[i], &there = rests_there[i];
      if (here.name != there.name) continue;  // another optimizer
      const std::optional<Range> seconds = move(here.part,
                                                measured_s(here_.known(here)).value_or(0),
                                                here.times_a_step,
                                                there.times_a_step,
                                                here_.time(here),
                                                there_.time(there));
      if (seconds) replay_.times.push_back(there_.known(there, *seconds));
    }
  }

  void scale(double factor) {
    for (KnownTime& time : replay_.times) time.seconds = time.seconds * factor;
    for (auto& [name, part] : parts_) {
      part.here_s *= factor;
      part.there_s = part.there_s * factor;
    }
  }

  // Networks for another device or in another type may differ in some ops.
  void require_same_network() const {
    const bool alike = same_device_ && here_.arithmetic.compute == there_.arithmetic.compute;
    if (alike ? replay_.matched == replay_.ops : replay_.share > 0.5) return;
    throw ConfigError(
        "--replay: {} of the {} ops of the run are in the network that is planned; allowed: the "
        "network that was measured",
        replay_.matched,
        replay_.ops);
  }

  // What a step takes without its waits, by one ratio.
  void move_together() {
    const auto busy = [](const StepForecast& step) {
      return step.compute + step.sums + step.update;
    };
    const Range on = busy(forecast_step(there_.run, place_));
    const std::optional<Range> there = move("a step without its waits",
                                            timed_.busy_s,
                                            1,
                                            1,
                                            {busy(forecast_step(here_.run, timed_.place)), false},
                                            {on, false});
    if (!there) return;
    const auto share_of = [&](const OpTime& time) {
      return *there * (time.seconds.middle() / on.middle());
    };
    for (const OpWork& work : there_.work.works)
      replay_.times.push_back(there_.known(work, share_of(there_.times.time(work))));
    for (const Rest& rest : there_.rests())
      replay_.times.push_back(there_.known(rest, share_of(there_.time(rest))));
  }

  const TimedRun& timed_;
  const Place& place_;
  const Predicted here_, there_;
  const bool same_hardware_, same_device_;
  std::map<std::string, ReplayedPart> parts_;
  Replay replay_;
};

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

struct Step {
  double start_us, us, waits_us = 0;
};

// The steps of each rank, in order, with what they wait for other ranks or for data.
std::map<int64_t, std::vector<Step>> steps_of(const Json& timeline) {
  std::map<int64_t, std::vector<Step>> ranks, waits;
  for (const Json& event : timeline) {
    if (event.at("ph").get<std::string>() != "X") continue;
    const auto name = event.at("name").get<std::string>();
    const Step span = {event.at("ts").get<double>(), event.at("dur").get<double>()};
    const auto rank = event.at("pid").get<int64_t>();
    if (name.starts_with("step "))
      ranks[rank].push_back(span);
    else if (name == "wait for data" || event.at("cat").get<std::string>() == "wait")
      waits[rank].push_back(span);
  }
  for (auto& [rank, steps] : ranks) {
    std::ranges::sort(steps, {}, &Step::start_us);
    for (const Step& wait : waits[rank]) {
      const auto after = std::ranges::upper_bound(steps, wait.start_us, {}, &Step::start_us);
      if (after != steps.begin()) std::prev(after)->waits_us += wait.us;
    }
  }
  return ranks;
}

}  // namespace

void add_step_times(const Json& timeline, TimedRun& run) {
  std::vector<double> steps, busy;
  for (const auto& [rank, of_rank] : steps_of(timeline))
    for (size_t i = 1; i < of_rank.size(); ++i) {  // the first touches memory for the first time
      steps.push_back(of_rank[i].us * 1e-6);
      busy.push_back((of_rank[i].us - of_rank[i].waits_us) * 1e-6);
    }
  run.step_s = median(steps);
  run.busy_s = median(busy);
}

Replay replay_of(const TimedRun& timed, const run::PreparedRun& there, const Place& place) {
  return Move(timed, there, place).replay();
}

}  // namespace lockstep::forecast
