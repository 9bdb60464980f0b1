#include "launcher/scale/facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "launcher/ranks/devices.h"
#include "runtime/base/text.h"
#include "runtime/metrics/environment.h"

namespace lockstep::scale {
namespace {

// The overrides as a list. In the text each is in backquotes, since values may have commas.
Fact fact_of_overrides(const std::vector<std::string>& overrides) {
  Fact fact{"set", "--set", Json::array()};
  for (const std::string& text : overrides) {
    fact.value.push_back(text);
    append_item(fact.text, "`" + text + "`", " ");
  }
  if (overrides.empty()) fact.text = "none";
  return fact;
}

std::vector<Fact> facts_of_exchange(const CommConfig& comm) {
  const bool automatic = comm.zero_stage == ZeroStage::kAuto;
  const Json stage = automatic ? Json("AUTO") : Json(static_cast<int>(comm.zero_stage));
  std::vector<Fact> facts{{"order", "order of sums over ranks", lockstep::name_of(comm.order)},
                          {"zero_stage", "ZeRO stage", stage},
                          {"wire_dtype", "gradients sent as", lockstep::name_of(comm.wire_dtype)}};
  if (comm.error_feedback) facts.push_back({"error_feedback", "error feedback", true});
  if (comm.power_sgd_rank > 0)
    facts.push_back({"power_sgd_rank", "PowerSGD rank", comm.power_sgd_rank});
  if (comm.bucket_mib > 0)
    facts.push_back({"bucket_mib", "comm.bucket_mib, as configured", comm.bucket_mib});
  if (comm.tune_buckets) facts.push_back({"tune_buckets", "comm.tune_buckets", true});
  return facts;
}

constexpr double kGood_s = 3;       // recommended time of the steps that count
constexpr double kMaxSkipped = 10;  // first steps of a run, which do not count

// Rounds up to two digits.
int64_t rounded_up(double number) {
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(number)) - 1));
  return static_cast<int64_t>(std::ceil(number / unit) * unit);
}

}  // namespace

std::vector<Fact> facts_of_config(const launcher::CommonOptions& options,
                                  const RunConfig& config,
                                  const run::PreparedRun& prepared) {
  run::MemoryLimits limits;
  limits.device = prepared.ops->separate_memory ? "cuda" : "cpu";
  if (prepared.ops->separate_memory) launcher::gpu_here(limits);  // its name
  std::vector<Fact> facts{
      {"config", "config", options.config},
      {"parameters", "parameters", prepared.plan.layout.parameters},
      {"data", "data", prepared.data->summary.description},
      {"precision", "precision", lockstep::name_of(config.execution.precision)}};
  for (Fact& fact : facts_of_exchange(config.comm)) facts.push_back(std::move(fact));
  facts.push_back(fact_of_overrides(options.set));
  facts.push_back({"device", "device", limits.device});
  return facts;
}

std::vector<Fact> facts_of_runs(const RunSetup& setup,
                                int repeats,
                                const std::vector<MeasuredRun>& runs) {
  // The last run with the most ranks.
  const MeasuredRun& largest =
      *std::max_element(runs.rbegin(), runs.rend(), [](const MeasuredRun& a, const MeasuredRun& b) {
        return a.world.ranks < b.world.ranks;
      });
  const Json& environment = largest.environment;
  std::vector<std::string> hosts;
  for (const train::RankTimes& rank : largest.ranks)
    if (std::ranges::find(hosts, rank.host) == hosts.end()) hosts.push_back(rank.host);
  const ExchangeSizes& exchange = largest.exchange;
  const double largest_mib = static_cast<double>(exchange.largest_bucket_bytes) / (1 << 20);
  std::vector<Fact> facts{
      {"gradient_buckets",
       "buckets of gradients",
       fmt::format("{} of up to {:.3g} MiB", exchange.buckets, largest_mib)},
      {"threads", "threads a rank", setup.threads},
      {"steps", "steps of a run that count", largest.ranks[0].steps},
      {"repeats", "runs of each world size", repeats},
      {"launcher", "launcher", setup.launcher.version},
      {"lockstep_version", "Lockstep", metrics::lockstep_version()},
      {"hosts", "hosts", hosts},
      {"cpus", "CPUs of this host", setup.here.cpus},
      {"cores", "cores of this host", setup.here.cores},
      {"date", "date", runs.front().environment.value("start_time", std::string())}};
  for (const auto& [key, title] : {std::pair("cpu_model", "CPU"),
                                   std::pair("git_revision", "revision"),
                                   std::pair("libraries", "messages by")})
    if (environment.contains(key)) facts.push_back({key, title, environment[key]});
  if (!largest.transport.empty())
    facts.push_back({"transport", "between ranks", largest.transport});
  for (const auto& [key, title, text] :
       {std::tuple("energy_sources", "energy of", largest.energy_sources),
        std::tuple(
            "energy_not_readable", "energy that is not readable", largest.energy_not_readable)})
    if (!text.empty()) facts.push_back({key, title, text});
  return facts;
}

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
    const auto made = std::ranges::count_if(runs, [&](const MeasuredRun& run) {
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
