#include "launcher/scale/report.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/error.h"

namespace lockstep::scale {
namespace {

constexpr double kReportThreshold = 0.02;  // of a step

double own_work_ms(const train::RankTimes& times) { return times.step_ms - times.comm_exposed_ms; }

const train::RankTimes& fastest_rank(const MeasuredRun& run) {
  return *std::ranges::min_element(run.ranks, {}, own_work_ms);
}

std::optional<Straggler> find_straggler(const MeasuredRun& run) {
  const train::RankTimes& fastest = fastest_rank(run);
  const train::RankTimes& slowest = *std::ranges::max_element(run.ranks, {}, own_work_ms);
  if (fastest.straggler_ms <= kReportThreshold * fastest.step_ms) return std::nullopt;
  Straggler found{.rank = slowest.rank, .host = slowest.host};
  found.excess_ms = own_work_ms(slowest) - own_work_ms(fastest);
  const Parts slow = parts_of(slowest), fast = parts_of(fastest);
  found.in_ms = -1;
  for (const Part part : {Part::kCompute, Part::kDataWait, Part::kOptimizer, Part::kGaps}) {
    const double excess = at(slow, part) - at(fast, part);
    if (excess <= found.in_ms) continue;
    found.in = part;
    found.in_ms = excess;
  }
  found.always = found.excess_ms >= fastest.straggler_ms / 2;
  return found;
}

// The median of the known values; negative if there are none.
double median_energy(const std::vector<const MeasuredRun*>& runs) {
  std::vector<double> known;
  for (const MeasuredRun* run : runs)
    if (run->joules_per_step >= 0) known.push_back(run->joules_per_step);
  std::ranges::sort(known);
  return known.empty() ? -1 : (known[(known.size() - 1) / 2] + known[known.size() / 2]) / 2;
}

// Combines the repeats of one world size into a row. The fields that depend on other sizes are not
// set.
ScaleRow summarize(std::vector<const MeasuredRun*> runs) {
  std::ranges::sort(runs, {}, [](const MeasuredRun* run) { return fastest_rank(*run).step_ms; });
  const size_t low = (runs.size() - 1) / 2, high = runs.size() / 2;
  ScaleRow row;
  row.world = runs[0]->world;
  row.binding = runs[0]->binding;
  row.oversubscribed = runs[0]->oversubscribed;
  row.repeats = runs.size();
  row.exchange = runs[0]->exchange;
  row.counted_s = counted_s(fastest_rank(*runs[0]));
  for (const MeasuredRun* run : runs)
    row.counted_s = std::min(row.counted_s, counted_s(fastest_rank(*run)));
  for (const MeasuredRun* run : runs)
    row.other_cpus += run->other_cpus / static_cast<double>(runs.size());
  std::set<std::string> hosts;
  for (const train::RankTimes& rank : runs[0]->ranks) hosts.insert(rank.host);
  row.hosts = static_cast<int>(hosts.size());
  row.fastest_ms = fastest_rank(*runs.front()).step_ms;
  row.slowest_ms = fastest_rank(*runs.back()).step_ms;
  const Parts lower = parts_of(fastest_rank(*runs[low])),
              upper = parts_of(fastest_rank(*runs[high]));
  for (size_t i = 0; i < kParts; ++i) row.parts[i] = (lower[i] + upper[i]) / 2;
  row.step_ms = sum(row.parts);
  row.samples_per_s = static_cast<double>(row.world.global_batch) / row.step_ms * 1000;
  row.joules_per_step = median_energy(runs);
  row.predicted_low_ms = runs[0]->predicted_low_ms;  // the same for all repeats
  row.predicted_high_ms = runs[0]->predicted_high_ms;
  row.straggler = find_straggler(*runs[high]);
  return row;
}

// A run's mode, ranks and repeat: "strong 2-1".
std::string name_of(const MeasuredRun& run) {
  return fmt::format("{} {}-{}", name_of(run.world.mode), run.world.ranks, run.repeat);
}

}  // namespace

const char* title_of(Part part) {
  switch (part) {
    case Part::kExchange: return "exposed communication";
    case Part::kStragglers: return "stragglers";
    case Part::kDataWait: return "data wait";
    case Part::kOptimizer: return "optimizer and gather";
    case Part::kGaps: return "launch and host gaps";
    case Part::kCompute: return "slower compute (contention)";
  }
  return "";
}

const char* key_of(Part part) {
  switch (part) {
    case Part::kExchange: return "exchange";
    case Part::kStragglers: return "stragglers";
    case Part::kDataWait: return "data_wait";
    case Part::kOptimizer: return "optimizer";
    case Part::kGaps: return "gaps";
    case Part::kCompute: return "compute";
  }
  return "";
}

double sum(const Parts& parts) {
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

Parts parts_of(const train::RankTimes& times) {
  Parts parts{};
  at(parts, Part::kExchange) = times.comm_exposed_ms - times.straggler_ms;
  at(parts, Part::kStragglers) = times.straggler_ms;
  at(parts, Part::kDataWait) = times.data_wait_ms;
  at(parts, Part::kOptimizer) = times.optimizer_ms;
  at(parts, Part::kCompute) = times.compute_ms;
  at(parts, Part::kGaps) = times.step_ms - sum(parts);
  return parts;
}

std::vector<ScaleRow> make_rows(const std::vector<MeasuredRun>& runs) {
  std::map<int, std::vector<const MeasuredRun*>> by_ranks;
  for (const MeasuredRun& run : runs) by_ranks[run.world.ranks].push_back(&run);
  std::vector<ScaleRow> rows;
  for (const auto& [ranks, repeats] : by_ranks) rows.push_back(summarize(repeats));
  LOCKSTEP_CHECK(!rows.empty());
  const ScaleRow base = rows.front();
  for (ScaleRow& row : rows) {
    const double growth = static_cast<double>(row.world.ranks) / base.world.ranks;
    const double share = row.world.mode == Mode::kStrong ? 1 / growth : 1;
    row.ideal_samples_per_s = base.samples_per_s * growth;
    row.efficiency = row.samples_per_s / row.ideal_samples_per_s;
    row.ideal_step_ms = base.step_ms * share;
    for (size_t i = 0; i < kParts; ++i) row.lost[i] = row.parts[i] - base.parts[i] * share;
    row.lost_ms = row.step_ms - row.ideal_step_ms;
    row.diagnosis = diagnose(row, row.world.ranks == base.world.ranks);
  }
  return rows;
}

HashCheck compare_hashes(const std::vector<MeasuredRun>& runs, bool tree_order) {
  LOCKSTEP_CHECK(!runs.empty());
  const bool strong = runs[0].world.mode == Mode::kStrong;
  HashCheck check;
  if (!tree_order) {
    check.statement = "weights not compared: comm.order FAST promises no equal bits";
    return check;
  }
  std::map<int, const MeasuredRun*> first;  // the run to compare with; strong: one for all sizes
  for (const MeasuredRun& run : runs) {
    const auto [entry, added] = first.emplace(strong ? 0 : run.world.ranks, &run);
    if (added) continue;
    check.checked = true;
    if (entry->second->weights_hash == run.weights_hash) continue;
    check.equal = false;
    check.statement = fmt::format("weights differ: {} ends with {}, {} with {}",
                                  name_of(*entry->second),
                                  entry->second->weights_hash,
                                  name_of(run),
                                  run.weights_hash);
    return check;
  }
  if (!check.checked)
    check.statement = "weights not compared: one run of each world size";
  else
    check.statement =
        strong ? fmt::format("the same weights, bit for bit, in every run: weights_hash {}",
                             runs[0].weights_hash)
               : "the same weights, bit for bit, in all repeats of a world size";
  return check;
}

}  // namespace lockstep::scale
