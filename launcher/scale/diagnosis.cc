#include "launcher/scale/report.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::scale {
namespace {

constexpr double kReportThreshold = 0.02;  // of a step
constexpr double kWorthAdding = 0.1;  // of the loss, for a second cause; of a step, for a first one
constexpr double kOtherWork = 0.1;    // CPUs
constexpr int64_t kManyBuckets = 16;
constexpr double kSmallBucket = 256 << 10;  // bytes

// The activity in which a rank spends more time than another one.
const char* doing(Part part) {
  switch (part) {
    case Part::kDataWait: return "waiting for data";
    case Part::kOptimizer: return "the optimizer and gather";
    case Part::kGaps: return "launch and host gaps";
    default: return "computing";
  }
}

// The rank that the others wait for.
std::string slow_rank(const ScaleRow& row) {
  const std::optional<Straggler>& straggler = row.straggler;
  if (!straggler || !straggler->always) return "different ranks are late at different times";
  std::string text = fmt::format("rank {} on {} works {:.3g} ms longer a step, mostly in {}",
                                 straggler->rank,
                                 straggler->host,
                                 straggler->excess_ms,
                                 doing(straggler->in));
  if (row.counted_s < kEnough_s)
    text += fmt::format(", which in only {:.2g} s may be chance", row.counted_s);
  return text;
}

std::string slow_rank_and_remedy(const ScaleRow& row) {
  const std::string who = slow_rank(row);
  const std::optional<Straggler>& straggler = row.straggler;
  if (row.counted_s < kEnough_s) return who + ": a run with more --steps would show it";
  if (straggler && straggler->always && straggler->in == Part::kDataWait)
    return who + ": check how fast its host reads, and what else uses its disk and CPUs";
  return who + ": check what else runs there, and how threads are bound";
}

constexpr const char* kSoonerData =
    "more data.decode_threads, or records packed by `lockstep data pack`, deliver data sooner";

std::string exchange_advice(const ScaleRow& row) {
  const ExchangeSizes& exchange = row.exchange;
  if (row.hosts > 1) {
    constexpr const char* remedy =
        "a larger batch a rank or a faster network make it less, or another comm.bucket_mib";
    if (exchange.host_sends_bytes == 0) return remedy;
    const double bytes = static_cast<double>(exchange.host_sends_bytes);
    return fmt::format(
        "each host sends {:.3g} MB a step, on average {:.4g} Mbit/s; if that is the network's "
        "limit, {}",
        bytes / 1e6,
        bytes * 8 / 1e3 / row.step_ms,
        remedy);
  }
  if (exchange.shares_memory)
    return "these ranks share memory and send nothing: they wait for each other, bucket by bucket, "
           "for example because other work takes a CPU from time to time";
  return "a larger batch a rank or another comm.bucket_mib make it less";
}

std::string advice_for(Part part, const ScaleRow& row) {
  switch (part) {
    case Part::kExchange: return exchange_advice(row);
    case Part::kStragglers: return slow_rank_and_remedy(row);
    case Part::kDataWait: return kSoonerData;
    case Part::kOptimizer: return "a larger batch a rank makes it a smaller part of a step";
    case Part::kGaps: return "a larger batch a rank makes steps longer, and these weigh less";
    case Part::kCompute:
      return row.world.mode == Mode::kStrong
                 ? "ranks compete for memory bandwidth and clock, or have too little work each: "
                   "try fewer threads a rank, or a larger batch"
                 : "ranks compete for memory bandwidth and clock: try fewer threads a rank, or "
                   "more hosts";
  }
  return "";
}

// Advice if there are many small buckets, each of which costs extra work; otherwise empty.
std::string about_buckets(Part largest_loss, const ScaleRow& row) {
  const ExchangeSizes& exchange = row.exchange;
  const auto largest = static_cast<double>(exchange.largest_bucket_bytes);
  if (exchange.buckets < kManyBuckets || largest >= kSmallBucket) return "";
  if (largest_loss == Part::kStragglers || largest_loss == Part::kDataWait) return "";
  return fmt::format(
      "; each of {} buckets of up to {:.3g} KiB costs extra work and waits: try a "
      "larger comm.bucket_mib",
      exchange.buckets,
      largest / 1024);
}

std::string about_other_work(const ScaleRow& row) {
  if (row.other_cpus < kOtherWork) return "";
  return fmt::format("; meanwhile other work took {:.1f} CPUs of this host", row.other_cpus);
}

// What the smallest world's own step waits for; its loss shows nowhere else.
std::string of_smallest(const ScaleRow& row) {
  std::string text = "the reference for the others";
  for (const Part part : {Part::kDataWait, Part::kStragglers, Part::kExchange}) {
    const double share = at(row.parts, part) / row.step_ms;
    if (share <= kWorthAdding) continue;
    text += fmt::format("; {:.0f}% of its own step is {}: {}",
                        100 * share,
                        part == Part::kDataWait ? "waiting for data" : title_of(part),
                        advice_for(part, row));
  }
  return text + about_other_work(row);
}

}  // namespace

double lost_altogether(const Parts& lost) {
  double total = 0;
  for (const double part : lost) total += std::max(0.0, part);
  return total;
}

std::string diagnose(const ScaleRow& row, bool smallest) {
  std::string text =
      row.oversubscribed ? "more threads than CPUs: shows that it works, not how it scales; " : "";
  if (smallest) return text + of_smallest(row);
  if (row.lost_ms <= kReportThreshold * row.ideal_step_ms)
    return text + (row.lost_ms < -kReportThreshold * row.ideal_step_ms
                       ? fmt::format("faster than ideal by {:.3g} ms a step", -row.lost_ms)
                       : "no significant loss");
  const double altogether = lost_altogether(row.lost);
  const Part largest_loss =
      kAllParts[static_cast<size_t>(std::ranges::max_element(row.lost) - row.lost.begin())];
  text += fmt::format("most is lost to {}, {:.3g} of {:.3g} ms a step",
                      title_of(largest_loss),
                      at(row.lost, largest_loss),
                      altogether);
  // Other parts may make up for some of it.
  if (altogether - row.lost_ms > kWorthAdding * altogether)
    text += fmt::format(" ({:.3g} after what other parts gain)", row.lost_ms);
  if (row.oversubscribed) return text + ", as ranks wait for a CPU" + about_other_work(row);
  text += ": " + advice_for(largest_loss, row);
  if (row.straggler && largest_loss != Part::kStragglers &&
      at(row.lost, Part::kStragglers) > kWorthAdding * altogether)
    text += "; " + slow_rank(row);
  return text + about_buckets(largest_loss, row) + about_other_work(row);
}

}  // namespace lockstep::scale
