#include "runtime/run/lanes.h"

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/config/validate.h"
#include "runtime/run/config_checks.h"

namespace lockstep::run {
namespace {

constexpr int64_t kMaxAutoLanes = 8;
// As norm_statistics.cc warns of fewer values.
constexpr int64_t kNormalisedSamples = 16;

struct Choice {
  int64_t lanes;
  std::string reason;
};

Choice by_batch(int64_t batch, bool normalises) {
  int64_t lanes = kMaxAutoLanes;
  while (lanes > 1 && (batch % lanes != 0 || (normalises && batch / lanes < kNormalisedSamples)))
    lanes /= 2;
  const int64_t samples = batch / lanes;
  const bool few = normalises && lanes < kMaxAutoLanes && batch % (2 * lanes) == 0;
  return {
      lanes,
      fmt::format(
          "AUTO: {} sample{} a lane{}",
          samples,
          plural(samples),
          few ? fmt::format(", because batch norms take at least {}", kNormalisedSamples) : "")};
}

Choice meaning_of_auto(const OpenedConfig& opened, int64_t recorded) {
  const models::OpenedModel& model = *opened.model;
  const int64_t batch = opened.config.train.global_batch;
  if (recorded > 0 && batch % recorded == 0) return {recorded, "AUTO, as the run recorded"};
  const Choice usual = by_batch(batch, model.traits().normalises_lanes);
  // The data are not open yet. That they have another size of images changes neither answer.
  const models::ModelIo io = model.io_of_weights([](const std::string&) { return std::nullopt; });
  const std::string mixing = model.mixing_node(io, batch, batch / usual.lanes);
  if (!mixing.empty()) return {1, "AUTO, because samples mix at " + mixing};
  const int64_t only = model.only_batch(io);
  const bool fits =
      only > 0 && batch % only == 0 && batch / only <= config::integer_limit_of("train.lanes").high;
  if (!fits) return usual;
  return {batch / only,
          fmt::format("AUTO, because the network takes {} sample{} at once", only, plural(only))};
}

// The --set for lanes that the ranks share evenly: the fewest that are more than now or, if none of
// these divides the batch, about as many as now, with about the same batch.
std::string even_lanes(const TrainConfig& train, int ranks) {
  const int64_t limit = std::min(train.global_batch, config::integer_limit_of("train.lanes").high);
  for (int64_t lanes = (train.lanes / ranks + 1) * ranks; lanes <= limit; lanes += ranks)
    if (train.global_batch % lanes == 0) return fmt::format("--set train.lanes={}", lanes);
  const int64_t lanes = (train.lanes + ranks / 2) / ranks * ranks;
  const int64_t batch = (train.global_batch + lanes / 2) / lanes * lanes;
  return fmt::format("--set train.lanes={} --set train.global_batch={}", lanes, batch);
}

}  // namespace

ChosenLanes choose_lanes(const OpenedConfig& opened, int64_t recorded) {
  ChosenLanes chosen{opened, ""};
  TrainConfig& train = chosen.opened.config.train;
  if (train.lanes != 0) return chosen;
  const Choice choice = meaning_of_auto(opened, recorded);
  train.lanes = choice.lanes;
  chosen.text = fmt::format("{} ({})", choice.lanes, choice.reason);
  config::validate(chosen.opened.config);
  check_samples_of_lanes(train);
  return chosen;
}

int lanes_of_pass(const RunConfig& config, int ranks) {
  return static_cast<int>(
      std::min(config.execution.lanes_per_pass, (config.train.lanes + ranks - 1) / ranks));
}

LaneUse lane_use(const RunConfig& config, const collectives::LaneShares& shares) {
  const int ranks = shares.ranks, most = shares.most();
  LaneUse use{
      .most = most,
      .efficiency = static_cast<double>(shares.lanes) / (static_cast<double>(ranks) * most)};
  int full = 0, few = most;  // ranks that have the most lanes; lanes of the others
  for (int rank = 0; rank < ranks; ++rank) {
    const int count = shares.of(rank).count;
    if (count == most) ++full;
    few = std::min(few, count);
  }
  if (full == ranks) return use;
  const int enough = (shares.lanes + most - 1) / most;
  use.warning = fmt::format(
      "{} lanes on {} ranks: {} rank{} {} lanes and {} {}, so at most {:.0f}% of the ranks' time "
      "is used{}; {} uses all of it",
      shares.lanes,
      ranks,
      full,
      full == 1 ? " has" : "s have",
      most,
      ranks - full,
      ranks - full == 1 ? fmt::format("has {}", few) : fmt::format("have {}", few),
      1e2 * use.efficiency,
      enough == ranks ? "" : fmt::format(", and {} ranks are as fast", enough),
      config.comm.residual_groups > 0
          ? fmt::format("a multiple of {} as comm.residual_groups", ranks)
          : even_lanes(config.train, ranks));
  return use;
}

}  // namespace lockstep::run
