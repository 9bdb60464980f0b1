// Fits the constants of launcher/published/tuned_trainer.h to the rows of rows.tsv whose `use` is
// "fit", prints them, and scores the other rows. Then it leaves out one source in turn and scores
// that source with what the others give; and so with each kind of network.
//
//   build/release/tests/peers/fit_published launcher/published/rows.tsv
//
// Least squares by Levenberg and Marquardt, of
//   log(predicted / published) over the rows, where large errors count linearly, and
//   log(constant / start) / uncertainty over the constants.
// Rows of one source and kind count less the more there are: by the fourth root of their number.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "launcher/published/published_rows.h"
#include "runtime/base/file.h"

namespace lockstep::published {
namespace {

struct Constant {
  const char* name;
  double TrainerConstants::*member;
  double start;        // what is known without these rows
  double uncertainty;  // of its logarithm
};

using C = TrainerConstants;
// Shares of products: measured maxima (0.80 of the peak on an H100, 0.87 on an A100, 0.78 on a
// B200; github.com/stas00/ml-engineering) and what power leaves of them. Attention: the papers of
// FlashAttention 1 to 3. Memory: triads of 0.85 to 0.89 of the peak. Others: orders of magnitude.
constexpr Constant kConstants[] = {{"volta", &C::volta, 0.75, 0.06},
                                   {"ampere", &C::ampere, 0.80, 0.05},
                                   {"hopper", &C::hopper, 0.68, 0.06},
                                   {"blackwell", &C::blackwell, 0.65, 0.08},
                                   {"geforce", &C::geforce, 0.83, 0.08},
                                   {"ada", &C::ada, 0.62, 0.1},
                                   {"amx", &C::amx, 0.10, 0.3},
                                   {"fp32_cores", &C::fp32_cores, 0.90, 0.05},
                                   {"fp32_vectors", &C::fp32_vectors, 0.5, 0.3},
                                   {"tf32", &C::tf32, 0.97, 0.05},
                                   {"old_products", &C::old_products, 0.88, 0.1},
                                   {"old_attention", &C::old_attention, 0.6, 0.15},
                                   {"convolutions", &C::convolutions, 0.92, 0.1},
                                   {"winograd", &C::winograd, 1.65, 0.1},
                                   {"depthwise", &C::depthwise, 0.05, 0.4},
                                   {"depth", &C::depth, 160, 0.4},
                                   {"memory", &C::memory, 0.85, 0.04},
                                   {"unfused", &C::unfused, 1.1, 0.2},
                                   {"softmax", &C::softmax, 1.6, 0.2},
                                   {"layout", &C::layout, 1.0, 0.2},
                                   {"clock", &C::clock, 0.30, 0.3},
                                   {"flash1", &C::flash1, 0.45, 0.2},
                                   {"flash2", &C::flash2, 0.55, 0.2},
                                   {"kernel_us", &C::kernel_us, 3.5, 0.3},
                                   {"launch_us", &C::launch_us, 20, 0.6},
                                   {"host_ms", &C::host_ms, 6, 0.6},
                                   {"spread", &C::spread, 0.02, 0.4},
                                   {"node_spread", &C::node_spread, 0.012, 0.4},
                                   {"hidden", &C::hidden, 0.13, 0.4},
                                   {"hidden_shards", &C::hidden_shards, 0.25, 0.5},
                                   {"network", &C::network, 0.87, 0.1},
                                   {"pretraining_fill", &C::pretraining_fill, 0.60, 0.15},
                                   {"mlperf_fill", &C::mlperf_fill, 0.47, 0.1},
                                   {"bucket_fill", &C::bucket_fill, 0.92, 0.05},
                                   {"bucket_spread", &C::bucket_spread, 0.08, 0.2},
                                   {"length_spread", &C::length_spread, 0.6, 0.3}};
constexpr size_t kCount = std::size(kConstants);
using Vector = std::vector<double>;
using Rows = std::vector<const PublishedRow*>;

TrainerConstants constants_of(const Vector& logs) {
  TrainerConstants constants;
  for (size_t i = 0; i < kCount; ++i)
    constants.*kConstants[i].member = kConstants[i].start * std::exp(logs[i]);
  return constants;
}

Vector errors_of(const Rows& rows, const TrainerConstants& constants) {
  Vector errors;
  std::string why;
  for (const PublishedRow* row : rows) {
    const auto prediction = predict(*row, constants, &why);
    errors.push_back(prediction ? std::log(prediction->value / row->number("value")) : 0);
  }
  return errors;
}

std::string group_of(const PublishedRow& row) { return row.source() + ' ' + row.text("kind"); }

// What is squared and summed.
Vector residuals(const Rows& rows, const Vector& weights, const Vector& logs) {
  constexpr double kLarge = 0.15, kUsual = 0.10;
  Vector all = errors_of(rows, constants_of(logs));
  for (size_t i = 0; i < all.size(); ++i) {
    const double of_large = all[i] / kLarge;
    const double size = kLarge * std::sqrt(2 * (std::sqrt(1 + of_large * of_large) - 1));
    all[i] = std::copysign(size, all[i]) * weights[i] / kUsual;
  }
  for (size_t i = 0; i < kCount; ++i) all.push_back(logs[i] / kConstants[i].uncertainty);
  return all;
}

double square(const Vector& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// The solution of a symmetric positive system, by elimination.
Vector solve(std::vector<Vector> matrix, Vector right) {
  const size_t n = right.size();
  for (size_t column = 0; column < n; ++column)
    for (size_t row = column + 1; row < n; ++row) {
      const double factor = matrix[row][column] / matrix[column][column];
      for (size_t i = column; i < n; ++i) matrix[row][i] -= factor * matrix[column][i];
      right[row] -= factor * right[column];
    }
  for (size_t row = n; row-- > 0;) {
    for (size_t i = row + 1; i < n; ++i) right[row] -= matrix[row][i] * right[i];
    right[row] /= matrix[row][row];
  }
  return right;
}

Vector fit(const Rows& rows, int most_steps) {
  std::map<std::string, int> counts;
  for (const PublishedRow* row : rows) ++counts[group_of(*row)];
  Vector weights, logs(kCount, 0);
  for (const PublishedRow* row : rows)
    weights.push_back(2 * std::pow(counts[group_of(*row)], -0.25));
  Vector now = residuals(rows, weights, logs);
  double damping = 1;
  for (int step = 0; step < most_steps; ++step) {
    constexpr double kChange = 0.02, kEnough = 1e-3, kMostDamping = 1e4;
    std::vector<Vector> slopes;
    for (size_t i = 0; i < kCount; ++i) {
      Vector changed = logs;
      changed[i] += kChange;
      slopes.push_back(residuals(rows, weights, changed));
      for (size_t j = 0; j < now.size(); ++j) slopes[i][j] = (slopes[i][j] - now[j]) / kChange;
    }
    std::vector<Vector> normal(kCount, Vector(kCount, 0));
    Vector right(kCount, 0);
    for (size_t i = 0; i < kCount; ++i) {
      for (size_t k = 0; k < kCount; ++k)
        for (size_t j = 0; j < now.size(); ++j) normal[i][k] += slopes[i][j] * slopes[k][j];
      for (size_t j = 0; j < now.size(); ++j) right[i] -= slopes[i][j] * now[j];
    }
    Vector next = logs, after;
    for (;; damping *= 4) {
      std::vector<Vector> damped = normal;
      for (size_t i = 0; i < kCount; ++i) damped[i][i] *= 1 + damping;
      const Vector change = solve(damped, right);
      for (size_t i = 0; i < kCount; ++i) next[i] = logs[i] + change[i];
      after = residuals(rows, weights, next);
      if (square(after) < square(now)) break;
      if (damping > kMostDamping) return logs;
    }
    const bool done = square(now) - square(after) < kEnough * square(now);
    logs = next;
    now = after;
    damping /= 4;
    if (done) break;
  }
  return logs;
}

void print_score(const std::string& name, Vector errors) {
  if (errors.empty()) return;
  double bias = 0, within = 0;
  for (double& error : errors) error = std::exp(error) - 1;
  std::ranges::sort(errors);
  bias = errors[errors.size() / 2];
  for (double& error : errors) error = std::abs(error);
  std::ranges::sort(errors);
  for (const double error : errors) within += error <= 0.25 ? 1 : 0;
  const auto count = static_cast<double>(errors.size());
  fmt::print("{:<66} {:>4} rows, median {:>5.1f}%, {:>3.0f}% within 25%, bias {:+.1f}%\n",
             name,
             errors.size(),
             100 * errors[errors.size() / 2],
             100 * within / count,
             100 * bias);
}

// Scores each group of rows with constants that were fitted without it.
void leave_out(const char* what,
               const std::vector<PublishedRow>& all,
               const std::function<std::string(const PublishedRow&)>& name_of) {
  std::set<std::string> names;
  for (const PublishedRow& row : all) names.insert(name_of(row));
  Vector errors;
  for (const std::string& name : names) {
    Rows others, scored;
    for (const PublishedRow& row : all) {
      if (fitted(row.text("id")) && name_of(row) != name) others.push_back(&row);
      if (!fitted(row.text("id")) && name_of(row) == name) scored.push_back(&row);
    }
    const Vector group = errors_of(scored, constants_of(fit(others, 4)));
    print_score(name, group);
    errors.insert(errors.end(), group.begin(), group.end());
  }
  print_score(fmt::format("all, each {} left out in turn", what), errors);
}

void run(const char* path) {
  const std::vector<PublishedRow> all = read_rows(read_file(path, size_t{1} << 24), path);
  Rows fit_rows, scored;
  for (const PublishedRow& row : all) (fitted(row.text("id")) ? fit_rows : scored).push_back(&row);
  const TrainerConstants constants = constants_of(fit(fit_rows, 12));
  for (const Constant& each : kConstants)
    fmt::print("{:<18} {:>8.3g} from {:<6g} +-{:.0f}%, in the program {:.3g}\n",
               each.name,
               constants.*each.member,
               each.start,
               100 * each.uncertainty,
               TrainerConstants{}.*each.member);
  print_score("fitted", errors_of(fit_rows, constants));
  print_score("scored", errors_of(scored, constants));
  print_score("scored, with the program's constants", errors_of(scored, {}));
  leave_out("source", all, [](const PublishedRow& row) {
    // The rounds of MLPerf are one source.
    return row.has("source", "mlcommons") ? "mlcommons" : row.source();
  });
  leave_out("kind", all, [](const PublishedRow& row) { return row.text("kind"); });
}

}  // namespace
}  // namespace lockstep::published

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: fit_published ROWS.tsv\n");
    return 2;
  }
  lockstep::published::run(arguments[1]);
  return 0;
}
