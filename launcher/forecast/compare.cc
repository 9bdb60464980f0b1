#include "launcher/forecast/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::forecast {
namespace {

using launcher::PlannedRun;
using launcher::PlanPlace;
using launcher::PlanRequest;

Json range_of(const Range& range) { return Json::array({Json(range.low), Json(range.high)}); }

std::string dollars(const std::optional<Range>& usd) {
  return usd ? "$" + text_of(*usd) : "unknown";
}

std::string energy(const std::optional<Range>& kwh) {
  return kwh ? text_of(*kwh) + " kWh" : "unknown";
}

Json to_json(const CandidateRun& run) {
  Json json;
  json["on"] = run.candidate.on;
  json["ranks"] = run.candidate.ranks;
  json["fits"] = run.fits;
  if (!run.set.empty()) json["set"] = run.set;
  if (!run.forecast) {
    json["why_not"] = run.why_not;
    return json;
  }
  json["predicted_step_seconds"] = range_of(run.forecast->step.step);
  json["predicted_run_seconds"] = range_of(run.forecast->run.total_s);
  json["predicted_epoch_seconds"] = range_of(run.forecast->run.epoch_s);
  if (run.forecast->run.usd) json["predicted_usd"] = range_of(*run.forecast->run.usd);
  if (run.forecast->run.kwh) json["predicted_kwh"] = range_of(*run.forecast->run.kwh);
  return json;
}

double middle_time(const CandidateRun& run) { return run.forecast->run.total_s.middle(); }
double middle_cost(const CandidateRun& run) { return run.forecast->run.usd->middle(); }

const CandidateRun* least(const std::vector<CandidateRun>& runs,
                          double (*value)(const CandidateRun&)) {
  const CandidateRun* best = nullptr;
  for (const CandidateRun& run : runs) {
    if (!run.forecast || !run.fits || (value == middle_cost && !run.forecast->run.usd)) continue;
    if (best == nullptr || value(run) < value(*best)) best = &run;
  }
  return best;
}

void print_row(const CandidateRun& run) {
  if (!run.forecast) {
    fmt::print("  {:<30} {}\n", name_of(run.candidate), run.why_not);
    return;
  }
  const Forecast& forecast = *run.forecast;
  fmt::print("  {:<30} {:<22} {:<22} {:<20} {:<20} {}{}\n",
             name_of(run.candidate),
             seconds_text(forecast.run.epoch_s),
             seconds_text(forecast.run.total_s),
             dollars(forecast.run.usd),
             energy(forecast.run.kwh),
             run.fits ? "fits" : "does NOT fit",
             run.set.empty() ? "" : ", --set " + run.set);
}

}  // namespace

std::string name_of(const Candidate& candidate) {
  return fmt::format("{} x {}", candidate.ranks, candidate.on);
}

double efficiency_of(const CandidateRun& run, const CandidateRun& first) {
  return first.forecast->step.step.middle() * first.candidate.ranks /
         (run.forecast->step.step.middle() * run.candidate.ranks);
}

Candidate candidate_of(const std::string& text) {
  int ranks = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  const bool counted = code == std::errc() && end != text.data() + text.size() &&
                       (*end == 'x' || *end == 'X') && ranks > 0;
  if (!counted) return {text, 1};
  return {std::string(end + 1, text.data() + text.size()), ranks};
}

CandidateRun run_on(PlanRequest request, const Candidate& candidate) {
  CandidateRun run{candidate, std::nullopt, false, "", ""};
  request.on = candidate.on;
  request.ranks = candidate.ranks;
  request.ranks_per_node = std::min(request.ranks_per_node, candidate.ranks);
  PlanPlace place;
  find_place(request, place);
  if (!place.predicts())
    throw ConfigError("{}: only its memory is known; allowed: the name of hardware or a file",
                      candidate.on);
  const auto plan = [&](const std::vector<std::string>& set) {
    PlannedRun planned = launcher::plan_run(request, place, set);
    run.forecast = std::move(planned.forecast);
    // These do not outlive this function.
    run.forecast->place.hardware = nullptr;
    run.forecast->place.link = run.forecast->place.network = nullptr;
    run.fits = planned.fits();
  };
  try {
    plan({});
  } catch (const ConfigError& error) {
    run.why_not = error.what();
  }
  if (run.forecast) return run;
  const std::string lanes = fmt::format("train.lanes={}", candidate.ranks);
  try {
    plan({lanes});
    run.set = lanes;
  } catch (const ConfigError& error) {
    run.why_not += fmt::format("; with --set {}: {}", lanes, error.what());
  }
  return run;
}

std::vector<int> sweep_of(const std::string& text) {
  const auto refuse = [&] {
    throw ConfigError("--sweep: value is {}; allowed: ranks=1..1024 or ranks=1,2,6",
                      in_quotes(text));
  };
  constexpr std::string_view kRanks = "ranks=";
  if (!text.starts_with(kRanks)) refuse();
  std::vector<int> ranks;
  const char* at = text.data() + kRanks.size();
  const char* const end = text.data() + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [next, code] = std::from_chars(at, end, value);
    if (code != std::errc() || value < 1 || value > 1 << 20) refuse();
    at = next;
    return value;
  };
  ranks.push_back(number());
  if (std::string_view(at, end).starts_with("..")) {
    at += 2;
    const int last = number();
    if (at != end || last < ranks[0]) refuse();
    int next = 1;
    while (next <= ranks[0]) next *= 2;
    for (; next < last; next *= 2) ranks.push_back(next);
    if (last > ranks[0]) ranks.push_back(last);
    return ranks;
  }
  while (at != end) {
    if (*at++ != ',') refuse();
    ranks.push_back(number());
  }
  if (std::ranges::adjacent_find(ranks, std::greater_equal()) != ranks.end()) refuse();
  return ranks;
}

void print_sweep(const std::vector<CandidateRun>& runs, Json& json) {
  constexpr int kBar = 30;
  fmt::print("predicted, not measured\n{:>6}  {:<22} {:>10} {:<22} {:<20} {}\n",
             "ranks",
             "a step",
             "efficiency",
             "whole run",
             "cost",
             "efficiency drawn");
  const CandidateRun* first = nullptr;
  for (const CandidateRun& run : runs) {
    Json row = to_json(run);
    if (!run.forecast) {
      fmt::print("{:>6}  {}\n", run.candidate.ranks, run.why_not);
      json["sweep"].push_back(row);
      continue;
    }
    if (first == nullptr) first = &run;
    const double efficiency = efficiency_of(run, *first);
    row["predicted_efficiency"] = efficiency;
    json["sweep"].push_back(row);
    fmt::print("{:>6}  {:<22} {:>9.1f}% {:<22} {:<20} {}{}{}\n",
               run.candidate.ranks,
               seconds_text(run.forecast->step.step),
               100 * efficiency,
               seconds_text(run.forecast->run.total_s),
               dollars(run.forecast->run.usd),
               std::string(static_cast<size_t>(std::clamp(
                               static_cast<int>(std::round(efficiency * kBar)), 0, kBar)),
                           '#'),
               run.fits ? "" : " does NOT fit",
               run.set.empty() ? "" : " --set " + run.set);
  }
}

void print_comparison(const std::vector<CandidateRun>& runs, Json& json) {
  fmt::print("predicted, not measured\n  {:<30} {:<22} {:<22} {:<20} {:<20}\n",
             "on",
             "an epoch",
             "whole run",
             "cost of it",
             "energy");
  for (const CandidateRun& run : runs) {
    print_row(run);
    json["comparison"].push_back(to_json(run));
  }
  const CandidateRun* const cheapest = least(runs, middle_cost);
  const CandidateRun* const fastest = least(runs, middle_time);
  if (fastest != nullptr) {
    fmt::print("fastest: {}", name_of(fastest->candidate));
    json["fastest"] = name_of(fastest->candidate);
  }
  if (cheapest != nullptr) {
    fmt::print("; cheapest: {}", name_of(cheapest->candidate));
    json["cheapest"] = name_of(cheapest->candidate);
  }
  if (fastest != nullptr || cheapest != nullptr) fmt::print("\n");
}

std::vector<Candidate> rentable() {
  constexpr int kMost = 512;
  std::vector<Candidate> all;
  for (const Hardware& hardware : config::known_hardware()) {
    const bool priced = std::ranges::any_of(config::known_prices(), [&](const Price& price) {
      return price.hardware == hardware.name && price.market == Price::Market::kOnDemand;
    });
    if (!priced) continue;
    if (hardware.kind == Hardware::Kind::kCpu) {
      all.push_back({hardware.name, 1});
      continue;
    }
    for (int ranks = 1; ranks <= kMost; ranks *= 2) all.push_back({hardware.name, ranks});
  }
  return all;
}

void print_within(const std::vector<CandidateRun>& runs, const Limits& limits, Json& json) {
  constexpr size_t kPrinted = 5;
  std::vector<CandidateRun> within;
  for (const CandidateRun& run : runs) {
    if (!run.forecast || !run.fits || !run.forecast->run.usd) continue;
    // The most that is expected counts.
    const bool affordable =
        limits.budget_usd == 0 || run.forecast->run.usd->high <= limits.budget_usd;
    const bool in_time =
        limits.deadline_s == 0 || run.forecast->run.total_s.high <= limits.deadline_s;
    if (affordable && in_time) within.push_back(run);
  }
  if (within.empty()) {
    fmt::print("predicted: nothing that is known fits, is affordable and is in time\n");
    json["within"] = Json::array();
    return;
  }
  const auto print = [&](const char* title, const char* key, double (*value)(const CandidateRun&)) {
    std::ranges::stable_sort(within, {}, value);
    fmt::print("{}\n  {:<30} {:<22} {:<22} {:<20} {:<20}\n",
               title,
               "on",
               "an epoch",
               "whole run",
               "cost of it",
               "energy");
    for (size_t i = 0; i < std::min(kPrinted, within.size()); ++i) {
      print_row(within[i]);
      json["within"][key].push_back(to_json(within[i]));
    }
  };
  print("predicted, not measured; the cheapest:", "by_cost", middle_cost);
  print("the fastest:", "by_time", middle_time);
}

void print_purchase(const CandidateRun& run, const Purchase& purchase, Json& json) {
  const RunForecast& forecast = run.forecast->run;
  if (forecast.usd_per_hour == 0) {
    fmt::print("rent or buy: the rent is unknown; give it with --price\n");
    return;
  }
  constexpr double kDaysAMonth = 30.4;
  const double hours = purchase.hours_a_day * kDaysAMonth;
  const double rent = hours * forecast.usd_per_hour;
  const double power = hours * forecast.node_watts / 1000 * purchase.usd_per_kwh;
  const double months = rent > power ? purchase.usd / (rent - power) : -1;
  if (months < 0)
    fmt::print("rent or buy: the power alone costs ${:.4g} a month, more than the rent\n", power);
  else
    fmt::print(
        "rent or buy: bought for ${:.6g} and used {:g} hours a day, a node costs less than its "
        "rent (${:.4g} a month; power ${:.4g}) after {:.3g} months\n",
        purchase.usd,
        purchase.hours_a_day,
        rent,
        power,
        months);
  json["predicted_break_even_months"] = months;
}

}  // namespace lockstep::forecast
