#include "runtime/train/folder/run_timeline.h"

#include <fmt/core.h>

#include <algorithm>

#include "collectives/agree/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/graph/schema.h"
#include "runtime/train/gather_values.h"

namespace lockstep::train {
namespace {

constexpr size_t kSpans = 65536;  // ops, and as many others: 6.5 MiB each

// A name for a span, without a memory allocation.
class Name {
 public:
  template <typename... Args>
  explicit Name(fmt::format_string<Args...> format, Args&&... args) {
    *fmt::format_to_n(text_, sizeof(text_) - 1, format, std::forward<Args>(args)...).out = '\0';
  }
  const char* text() const { return text_; }

 private:
  char text_[48];
};

double mebibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Which ranks exchange on a level of the topology.
const char* title_of_level(const collectives::Topology& topology, size_t level) {
  if (topology.nodes == 1) return topology.shares_memory ? "in the node" : "all ranks";
  return topology.per_node > 1 && level == 0 ? "in the node" : "between nodes";
}

}  // namespace

std::unique_ptr<RunTimeline> RunTimeline::make(const RunContext& context) {
  return context.config.output.timeline ? std::make_unique<RunTimeline>(context) : nullptr;
}

RunTimeline::RunTimeline(const RunContext& context)
    : context_(context),
      queued_(context.backend.ops().separate_memory),
      groups_(context.plan.sharding.topology.groups_of(context.communicator.rank())),
      timeline_(kSpans),
      start_ms_(now_ms()) {
  for (const graph::Op& op : context.graphs.training.ops) {
    const char* const kind = graph::name_of(op.kind);
    op_names_.push_back(op.name == kind ? op.name : fmt::format("{} {}", kind, op.name));
  }
}

void RunTimeline::step_done(int64_t step, double start_ms) {
  timeline_.record(
      Name("step {}", step).text(), "step", metrics::Track::kSteps, start_ms, now_ms());
}

void RunTimeline::device_reduced(double reduce_ms) {
  const double end_ms = now_ms();
  timeline_.record("exchange after the backward pass",
                   "wait",
                   metrics::Track::kDevice,
                   end_ms - reduce_ms,
                   end_ms);
}

void RunTimeline::exchanged(
    int bucket, size_t bytes, size_t level, double start_ms, double end_ms) {
  if (queued_) return;
  const Name name("bucket {}, {:.3g} MiB, {}",
                  bucket,
                  mebibytes(bytes),
                  title_of_level(context_.plan.sharding.topology, level));
  const collectives::RankGroup& group = groups_[level];
  timeline_.record(name.text(),
                   "exchange",
                   metrics::Track::kExchanges,
                   start_ms,
                   end_ms,
                   {group.first, group.count});
}

void RunTimeline::gathered(int bucket, size_t bytes, double start_ms, double end_ms) {
  if (queued_) return;
  const Name name("bucket {}, {:.3g} MiB", bucket, mebibytes(bytes));
  timeline_.record(name.text(),
                   "gather",
                   metrics::Track::kGathers,
                   start_ms,
                   end_ms,
                   {0, context_.communicator.size()});
}

void RunTimeline::ran(size_t op, double start_ms, double end_ms) {
  if (queued_) return;
  timeline_.record(op_names_[op].c_str(), "op", metrics::Track::kOps, start_ms, end_ms);
}

void RunTimeline::waited(Wait what, int bucket, double start_ms, double end_ms) {
  const auto record = [&](const char* name, metrics::CollectiveGroup group = {}) {
    timeline_.record(name, "wait", metrics::Track::kSteps, start_ms, end_ms, group);
  };
  const metrics::CollectiveGroup all = {0, context_.communicator.size()};
  if (queued_ && what != Wait::kTotals && what != Wait::kNorms) return;
  switch (what) {
    case Wait::kExchange: record(Name("wait for gradients of bucket {}", bucket).text()); break;
    case Wait::kGather: record(Name("wait for parameters of bucket {}", bucket).text()); break;
    case Wait::kLanes: record("wait for all lanes", all); break;
    case Wait::kTotals: record("wait for all ranks", all); break;
    case Wait::kNorms: record("wait for norms of layers", all); break;
    case Wait::kDirections: record("wait for pieces of matrices", all); break;
  }
}

// Rank 0 logs how far the file can be trusted.
void RunTimeline::log_quality(const collectives::ClockOffset& offset,
                              const std::vector<std::string>& hosts) const {
  struct OfRank {
    double within_ms;
    uint64_t dropped, dropped_ops;
  };
  const std::vector<OfRank> ranks =
      gather_values(context_.communicator,
                    OfRank{offset.within_ms, timeline_.dropped(), timeline_.dropped_ops()});
  if (context_.communicator.rank() != 0) return;
  const auto worst = [&](auto value) {
    return static_cast<size_t>(std::ranges::max_element(ranks, {}, value) - ranks.begin());
  };
  const size_t clock = worst(&OfRank::within_ms);
  if (ranks.size() > 1)
    log_info("timeline: the ranks' clocks agree to within {:.3f} ms (rank {} on {})",
             ranks[clock].within_ms,
             clock,
             hosts[clock]);
  const auto log_dropped = [&](uint64_t OfRank::*count, const char* what) {
    const size_t full = worst(count);
    if (ranks[full].*count > 0)
      log_info("timeline: incomplete: the oldest {} {} of rank {} on {} were dropped",
               ranks[full].*count,
               what,
               full,
               hosts[full]);
  };
  log_dropped(&OfRank::dropped, "spans");
  log_dropped(&OfRank::dropped_ops, "ops");
}

// Gathers what this rank's spans need from the others: one rank after the other sends its arrival
// times.
metrics::CollectiveArrivals RunTimeline::collective_arrivals(double add_ms) const {
  collectives::Communicator& communicator = context_.communicator;
  const std::vector<metrics::CollectiveArrival> mine = timeline_.arrivals(add_ms);
  metrics::CollectiveArrivals collective_arrivals(mine);
  for (int rank = 0; rank < communicator.size(); ++rank) {
    uint64_t count = mine.size();
    communicator.broadcast(reinterpret_cast<std::byte*>(&count), sizeof(count), rank);
    std::vector<metrics::CollectiveArrival> arrivals = mine;
    arrivals.resize(count);
    communicator.broadcast(reinterpret_cast<std::byte*>(arrivals.data()),
                           count * sizeof(metrics::CollectiveArrival),
                           rank);
    collective_arrivals.add(rank, arrivals);
  }
  return collective_arrivals;
}

// Measures the clock offset here, at the end of the run, because only the newest spans are kept.
void RunTimeline::write(const std::vector<std::string>& hosts) const {
  collectives::Communicator& communicator = context_.communicator;
  const collectives::ClockOffset offset = collectives::measure_clock_offset(communicator);
  log_quality(offset, hosts);
  double start_ms = start_ms_;  // of rank 0, for all
  communicator.broadcast(reinterpret_cast<std::byte*>(&start_ms), sizeof(start_ms), 0);
  const int rank = communicator.rank();
  const double add_ms = offset.add_ms - start_ms;
  const std::string mine = timeline_.events_text(
      rank, hosts[static_cast<size_t>(rank)], add_ms, collective_arrivals(add_ms));
  // Collects the texts one by one, because each may have some MiB and only rank 0 keeps all.
  std::vector<std::string> events;
  for (int r = 0; r < communicator.size(); ++r) {
    std::string text = collectives::broadcast_text(communicator, mine, r);
    if (rank == 0) events.push_back(std::move(text));
  }
  collectives::run_on_root(communicator, [&] {
    context_.require_folder();
    try {
      metrics::write_timeline(context_.run_dir / "timeline.json", events);
    } catch (const IoError& error) {
      log_warn("{}; the run ends without a timeline", error.what());
    }
  });
}

}  // namespace lockstep::train
