#include "runtime/metrics/task_report.h"

#include <algorithm>
#include <functional>
#include <set>

namespace lockstep::metrics {
namespace {

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

ClassScores mean_of(const std::vector<ClassScores>& all, bool weighted) {
  ClassScores mean;
  double weights = 0;
  for (const ClassScores& scores : all) {
    const double weight = weighted ? static_cast<double>(scores.support) : 1;
    mean.precision += weight * scores.precision;
    mean.recall += weight * scores.recall;
    mean.f1 += weight * scores.f1;
    mean.support += scores.support;
    weights += weight;
  }
  if (weights == 0) return mean;
  mean.precision /= weights;
  mean.recall /= weights;
  mean.f1 /= weights;
  return mean;
}

}  // namespace

int64_t Confusion::total() const {
  int64_t total = 0;
  for (const auto& [pair, count] : counts_) total += count;
  return total;
}

int64_t Confusion::count(int32_t target, int32_t predicted) const {
  const auto found = counts_.find({target, predicted});
  return found == counts_.end() ? 0 : found->second;
}

std::vector<Confusion::Cell> Confusion::cells() const {
  std::vector<Cell> cells;
  for (const auto& [pair, count] : counts_) cells.push_back({pair.first, pair.second, count});
  return cells;
}

std::vector<Confusion::Cell> Confusion::most_confused(size_t most) const {
  std::vector<Cell> all = cells();
  std::erase_if(all, [](const Cell& cell) { return cell.target == cell.predicted; });
  std::ranges::stable_sort(all, std::greater(), &Cell::count);
  if (all.size() > most) all.resize(most);
  return all;
}

std::vector<int32_t> Confusion::classes() const {
  std::set<int32_t> classes;
  for (const auto& [pair, count] : counts_) {
    classes.insert(pair.first);
    classes.insert(pair.second);
  }
  return {classes.begin(), classes.end()};
}

std::vector<ClassScores> Confusion::scores() const {
  std::map<int32_t, int64_t> wanted, predicted;
  for (const auto& [pair, count] : counts_) {
    wanted[pair.first] += count;
    predicted[pair.second] += count;
  }
  std::vector<ClassScores> scores;
  for (const int32_t of : classes()) {
    const int64_t right = count(of, of);
    scores.push_back({share(right, predicted[of]),
                      share(right, wanted[of]),
                      share(2 * right, predicted[of] + wanted[of]),
                      wanted[of]});
  }
  return scores;
}

double Confusion::accuracy() const {
  int64_t right = 0;
  for (const auto& [pair, count] : counts_) right += pair.first == pair.second ? count : 0;
  return share(right, total());
}

ClassScores Confusion::macro_mean() const { return mean_of(scores(), /*weighted=*/false); }
ClassScores Confusion::weighted_mean() const { return mean_of(scores(), /*weighted=*/true); }

}  // namespace lockstep::metrics
