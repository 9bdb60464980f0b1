#include "launcher/forecast/timed_run.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <unordered_map>

#include "launcher/forecast/some_samples.h"
#include "runtime/base/error.h"
#include "runtime/metrics/timeline.h"

namespace lockstep::forecast {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A span of the trace, in microseconds.
struct Span {
  std::string name, category;
  double start, end;
  double us() const { return end - start; }
  bool contains(const Span& other) const { return start <= other.start && other.end <= end; }
};

// The spans of one rank: its steps in order, and the others in order of start.
struct RankSpans {
  std::vector<Span> steps, others;
};

std::map<int64_t, RankSpans> spans_of(const Json& timeline) {
  std::map<int64_t, RankSpans> ranks;
  for (const Json& event : timeline) {
    if (event.at("ph").get<std::string>() != "X") continue;
    Span span = {event.at("name").get<std::string>(),
                 event.at("cat").get<std::string>(),
                 event.at("ts").get<double>(),
                 0};
    span.end = span.start + event.at("dur").get<double>();
    RankSpans& rank = ranks[event.at("pid").get<int64_t>()];
    (span.name.starts_with("step ") ? rank.steps : rank.others).push_back(std::move(span));
  }
  for (auto& [number, rank] : ranks) {
    std::ranges::sort(rank.steps, {}, &Span::start);
    // A span comes before those within it.
    std::ranges::sort(rank.others, [](const Span& a, const Span& b) {
      return std::pair(a.start, -a.end) < std::pair(b.start, -b.end);
    });
  }
  return ranks;
}

// The times of a run's parts, over ranks and steps.
class Parts {
 public:
  Parts(const run::PreparedRun& prepared, const GraphWork& work)
      : prepared_(prepared), work_(work), ops_(work.works.size()) {
    const graph::Graph& graph = prepared.graphs->training;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const graph::Op& op = graph.ops[i];
      const std::string kind = graph::name_of(op.kind);
      std::string name = op.name == kind ? kind : kind + " " + op.name;
      name.resize(std::min(name.size(), metrics::Timeline::kMaxName));
      names_.try_emplace(std::move(name), work.of_op[i]);
    }
  }

  void add(const RankSpans& rank) {
    // The first step touches memory for the first time.
    const size_t first = rank.steps.size() > 1 ? 1 : 0;
    for (size_t i = first; i < rank.steps.size(); ++i) add_step(rank.steps[i], rank.others);
  }

  std::vector<MeasuredOp> ops(int threads) const {
    const Arithmetic arithmetic = arithmetic_of(prepared_);
    const std::string compute = arithmetic.name(arithmetic.compute);
    std::vector<MeasuredOp> all;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const OpWork& work = work_.works[i];
      if (ops_[i].empty() || work.bytes() == 0) continue;
      all.push_back({.op = work.measured_name(),
                     .type = arithmetic.name(work.type),
                     .threads = threads,
                     .extents = work.extents,
                     .flops = work.flops(),
                     .bytes = work.bytes(),
                     .us = median(ops_[i])});
    }
    const auto add = [&](const std::string& name,
                         const std::string& type,
                         const std::vector<int64_t>& extents,
                         double bytes,
                         const std::vector<double>& times) {
      if (times.empty() || median(times) <= 0) return;
      all.push_back({.op = name,
                     .type = type,
                     .threads = threads,
                     .extents = extents,
                     .flops = 0,
                     .bytes = bytes,
                     .us = median(times)});
    };
    const double gradients = gradient_bytes(prepared_);
    add(kLaneSum, compute, lane_extents(prepared_), gradients, lanes_);
    add(kStepRest, compute, {memory_sharers(prepared_)}, gradients, steps_);
    add(update_name(prepared_), compute, {}, update_bytes(prepared_), updates_);
    return all;
  }

 private:
  void add_step(const Span& step, const std::vector<Span>& others) {
    double rest = step.us();
    const auto begin = std::ranges::lower_bound(others, step.start, {}, &Span::start);
    for (auto span = begin; span != others.end() && span->start < step.end; ++span) {
      if (!step.contains(*span)) continue;
      if (span->category == "op") {
        add_op(*span);
      } else if (span->name == "forward and backward") {
        rest -= span->us();
        add_lane(*span, span, others.end());
      } else if (span->name == "update my slice") {
        rest -= span->us();
        updates_.push_back(span->us());
      } else if (span->category == "wait" || span->name == "wait for data") {
        if (!in_lane(*span)) rest -= span->us();
      }
    }
    steps_.push_back(rest);
  }

  void add_op(const Span& span) {
    const auto known = names_.find(span.name);
    if (known == names_.end())
      throw ConfigError("the timeline has an op '{}', which this config's network does not have",
                        span.name);
    ops_[known->second].push_back(span.us());
  }

  template <typename Iterator>
  void add_lane(const Span& lane, Iterator from, Iterator end) {
    lane_ = lane;
    double rest = lane.us();
    for (auto span = from; span != end && span->start < lane.end; ++span) {
      const bool counts = span->category == "op" || span->category == "wait";
      if (counts && lane.contains(*span)) rest -= span->us();
    }
    lanes_.push_back(rest);
  }

  bool in_lane(const Span& span) const { return lane_.contains(span); }

  const run::PreparedRun& prepared_;
  const GraphWork& work_;
  std::unordered_map<std::string, size_t> names_;  // of ops in the timeline: their work
  std::vector<std::vector<double>> ops_;           // by work
  std::vector<double> lanes_, steps_, updates_;
  Span lane_ = {"", "", 0, -1};  // the latest
};

// The share of a sample's rows that have a target.
double target_share(const run::PreparedRun& prepared) {
  const data::Dataset* data = prepared.data->train.get();
  if (prepared.ops->separate_memory || data == nullptr || data->target().dtype != DType::kI32)
    return 1;
  if (!prepared.data->summary.placeholder.empty()) {
    const auto* tokens = std::get_if<TokensConfig>(&prepared.config.data.source);
    const bool masked = prepared.model->traits().text_task == config::TextTask::kMaskedTokens;
    return masked && tokens != nullptr ? tokens->mask_share : 1;
  }
  int64_t targets = 0;
  const int64_t samples = read_some(*data, [&](const std::vector<std::byte>& target) {
    for (size_t at = 0; at < target.size(); at += sizeof(int32_t)) {
      int32_t value = 0;
      std::memcpy(&value, target.data() + at, sizeof(value));
      if (value >= 0) ++targets;
    }
    return true;
  });
  const int64_t rows = samples * data->target().shape.elements();
  return rows == 0 ? 1 : static_cast<double>(targets) / static_cast<double>(rows);
}

}  // namespace

GraphWork work_of_run(const run::PreparedRun& prepared,
                      const graph::Graph& graph,
                      const std::optional<cuda::KernelGpu>& gpu) {
  const bool skips_rows = std::ranges::any_of(
      graph.ops, [](const graph::Op& op) { return op.kind == graph::OpKind::kLinearCrossEntropy; });
  WorkOptions options{.target_share = skips_rows ? target_share(prepared) : 1, .gpu = gpu};
  if (const auto& joint = prepared.graphs->joint_training;
      joint && &graph == &prepared.graphs->training) {
    options.joint = &*joint;
    options.lanes = prepared.plan.sharding.lanes_per_pass;
  }
  return work_of(graph, options);
}

Arithmetic arithmetic_of(const run::PreparedRun& prepared) {
  return {.compute = prepared.plan.layout.compute,
          .tf32 = prepared.config.execution.tf32,
          .bf16x3 = prepared.graphs->training.bf16x3};
}

int64_t memory_sharers(const run::PreparedRun& prepared) {
  const collectives::Topology& topology = prepared.plan.sharding.topology;
  return topology.shares_memory ? topology.per_node : 1;
}

std::vector<int64_t> lane_extents(const run::PreparedRun& prepared) {
  const bool has_tables = prepared.plan.memory.row_bytes(plan::RowKind::kGradientRows) > 0;
  return {
      std::min(2, prepared.plan.sharding.shares().most()), memory_sharers(prepared), has_tables};
}

std::string update_name(const run::PreparedRun& prepared) {
  std::string name = config::name_of(prepared.config.optimizer.kind);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return "update." + name;
}

double gradient_bytes(const run::PreparedRun& prepared) {
  return static_cast<double>(prepared.plan.layout.trained()) * sizeof(float);
}

double update_bytes(const run::PreparedRun& prepared) {
  const plan::Plan& plan = prepared.plan;
  const int owners = plan.sharding.shards_optimizer() ? plan.sharding.topology.ranks() : 1;
  const double owned = static_cast<double>(plan.layout.trained()) / owners;
  // Gradients and weights are read, weights written; masters, if any, are the weights.
  const double weights = plan.layout.compute == DType::kF32 ? 12 : 14;
  return owned * weights + 2 * static_cast<double>(plan.memory.row_bytes(plan::RowKind::kMoments));
}

std::vector<MeasuredOp> measured_ops(const run::PreparedRun& prepared,
                                     const Json& timeline,
                                     int threads) {
  const GraphWork work = work_of_run(prepared, prepared.graphs->training);
  Parts parts(prepared, work);
  for (const auto& [rank, spans] : spans_of(timeline)) parts.add(spans);
  return parts.ops(threads);
}

std::vector<MeasuredOp> merged(std::vector<MeasuredOp> ops) {
  std::vector<MeasuredOp> all;
  std::vector<std::vector<double>> times;
  for (MeasuredOp& op : ops) {
    const auto same = [&](const MeasuredOp& other) {
      return op.op == other.op && op.type == other.type && op.threads == other.threads &&
             op.extents == other.extents && op.flops == other.flops && op.bytes == other.bytes;
    };
    const auto found = std::ranges::find_if(all, same);
    if (found == all.end()) {
      times.push_back({op.us});
      all.push_back(std::move(op));
    } else {
      times[static_cast<size_t>(found - all.begin())].push_back(op.us);
    }
  }
  for (size_t i = 0; i < all.size(); ++i) all[i].us = median(times[i]);
  return all;
}

}  // namespace lockstep::forecast
