#include "runtime/train/guard/not_finite_search.h"

#include <algorithm>

#include "collectives/agree/agreement.h"
#include "runtime/base/host.h"
#include "runtime/train/gather_values.h"
#include "runtime/train/guard/not_finite_text.h"
#include "runtime/train/guard/numeric_fault.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

NotFiniteSearch::NotFiniteSearch(const RunContext& context, TrainingStep& step)
    : context_(context), step_(step), values_(context.backend) {}

void NotFiniteSearch::wrote(const graph::Graph& graph,
                            size_t op,
                            const graph::LaneContext& lane,
                            std::span<std::byte* const> tensors) {
  const auto number = static_cast<int64_t>(op);
  step_read_ = lane.step;
  if (number >= first_.op) return;
  context_.backend.synchronize();
  kinds_.resize(tensors.size());
  const graph::Op& of = graph.ops[op];
  const Found here{number, lane.first_sample, lane.step, lane.lane};
  NotFiniteKinds read = kinds_of_constants(of);
  for (const TensorId id : of.inputs) {
    if (id == kNoTensor) continue;
    NotFiniteKinds& kinds = kinds_[static_cast<size_t>(id)];
    if (graph[id].role != graph::Role::kActivation) {
      kinds = values_.kinds_in(graph[id], tensors[static_cast<size_t>(id)]);
      const bool meant = graph[id].role == graph::Role::kConstant && !kinds.nan;
      if (kinds.any() && !meant) {
        first_ = here;
        first_.tensor = id;
        return;
      }
    }
    read.add(kinds);
  }
  for (const TensorId id : of.outputs) {
    if (id == kNoTensor) continue;
    NotFiniteKinds& kinds = kinds_[static_cast<size_t>(id)];
    kinds = values_.kinds_in(graph[id], tensors[static_cast<size_t>(id)]);
    const NotFiniteKinds made = kinds.without(read);
    if (!made.any()) continue;
    const bool logarithm = of.kind == graph::OpKind::kPointwise && made.only_negative();
    Found& found = logarithm ? first_logarithm_ : first_;
    if (number >= found.op) continue;
    found = here;
    found.tensor = id;
    found.of_mask = made.nan && !made.infinity && read.only_negative();
  }
}

std::pair<size_t, NotFiniteSearch::Found> NotFiniteSearch::first_of_ranks(const Found& mine) {
  const std::vector<Found> all = gather_values(context_.communicator, mine);
  const auto first = std::ranges::min_element(
      all, {}, [](const Found& found) { return std::pair(found.op, found.first_sample); });
  return {static_cast<size_t>(first - all.begin()), *first};
}

std::pair<size_t, NotFiniteSearch::Found> NotFiniteSearch::search(const Pass& pass) {
  first_ = first_logarithm_ = {};
  pass.repeat(*this);
  for (const Found& mine : {first_, first_logarithm_}) {
    const auto found = first_of_ranks(mine);
    if (found.second.tensor != kNoTensor) return found;
  }
  return {};
}

NotFiniteCause NotFiniteSearch::describe() {
  TrainingStep::Repeated again;
  const Pass pass{
      true, context_.graphs.training, *context_.data.train, [&](exec::OpObserver& observer) {
        again = step_.compute_again(observer);
      }};
  const auto [rank, found] = search(pass);
  if (found.tensor == kNoTensor && again.finite && !again.moments_overflow)
    return {fmt::format("every number of every lane is finite when the step is computed again "
                        "(loss {:.6g}, norm {:.6g}): a passing error of memory or processor",
                        again.loss,
                        again.grad_norm),
            ""};
  NotFiniteCause cause;
  if (found.tensor != kNoTensor)
    cause = this->cause(pass, rank, found);
  else if (again.moments_overflow)
    cause = {"the square of that norm overflows float32 in the optimizer's moment " +
                 squares_moment(context_.config.optimizer),
             smaller_updates(context_.config)};
  else
    cause = cause_of_sum();
  cause.text += again.same ? "; computed again it is the same, so the machine is not at fault"
                           : fmt::format("; computed again, loss and norm are {} and {}",
                                         number_text(again.loss),
                                         number_text(again.grad_norm));
  return cause;
}

NotFiniteCause NotFiniteSearch::describe_evaluation(
    const std::function<void(exec::OpObserver&)>& repeat) {
  const Pass pass{false, *context_.graphs.evaluation, *context_.data.eval, repeat};
  const auto [rank, found] = search(pass);
  if (found.tensor == kNoTensor)
    return {
        "every number is finite when it is computed again: a passing error of memory or "
        "processor",
        ""};
  return cause(pass, rank, found);
}

NotFiniteCause NotFiniteSearch::cause(const Pass& pass, size_t rank, const Found& found) {
  OpValues values(values_,
                  found.op,
                  found.first_sample,
                  context_.config.train.global_batch / context_.plan.sharding.lanes);
  const bool mine = rank == static_cast<size_t>(context_.communicator.rank());
  exec::OpObserver none;
  pass.repeat(mine ? static_cast<exec::OpObserver&>(values) : none);
  NotFiniteCause own;
  if (mine) {
    own = own_cause(pass, found, values);
    own.text =
        fmt::format("rank {} on {}, {}: {}",
                    rank,
                    host_name(),
                    pass.trains ? fmt::format("lane {}", found.lane) : std::string("evaluation"),
                    own.text);
  }
  return {collectives::gather_texts(context_.communicator, own.text)[rank],
          collectives::gather_texts(context_.communicator, own.remedy)[rank]};
}

std::vector<data::SampleKey> NotFiniteSearch::samples_of(const Pass& pass,
                                                         const Found& found) const {
  const int64_t rows = context_.config.train.global_batch / context_.plan.sharding.lanes;
  if (pass.trains)
    return data::training_samples(
        pass.dataset, order_of(context_.config), found.step, found.first_sample, rows);
  std::vector<data::SampleKey> samples;
  for (int64_t row = 0; row < rows && found.first_sample + row < pass.dataset.samples(); ++row)
    samples.push_back({.index = found.first_sample + row});
  return samples;
}

// On the rank that has the finding.
NotFiniteCause NotFiniteSearch::own_cause(const Pass& pass,
                                          const Found& found,
                                          const OpValues& values) const {
  const graph::Graph& graph = pass.graph;
  const graph::Op& op = graph.ops[static_cast<size_t>(found.op)];
  NotFiniteCause cause{text_of_op(graph, op, found.op, found.tensor, found.of_mask), ""};
  if (found.of_mask) return {cause.text, kOtherMask};
  const graph::Role role = graph[found.tensor].role;
  if (role == graph::Role::kInput) return {cause.text, "data that are finite"};
  cause.text +=
      words_of_rows(values.rows_not_finite(found.tensor), samples_of(pass, found), pass.dataset);
  if (role != graph::Role::kParameter) cause.text += words_of_inputs(graph, values.inputs());
  const DataCause data = data_cause(pass, found, values);
  cause.text += data.text;
  cause.remedy = smaller_updates(context_.config);
  if (!data.text.empty())
    cause.remedy = fmt::format("{}, or {}", scaled(data.what, context_.config), cause.remedy);
  return cause;
}

// Large numbers in the batch or, if the weights are large, in the batches that have made them so.
NotFiniteSearch::DataCause NotFiniteSearch::data_cause(const Pass& pass,
                                                       const Found& found,
                                                       const OpValues& values) const {
  constexpr int64_t kStepsBefore = 5;
  try {
    const data::LargestNumbers here = data::largest_numbers(pass.dataset, samples_of(pass, found));
    const std::string text = data::words_for(here, pass.dataset);
    if (!text.empty()) return {"; " + text, data::what_is_large(here)};
    if (!pass.trains || values.largest_parameter() < data::kLargeNumber) return {};
    for (int64_t done = found.step - 1; done >= std::max(found.step - kStepsBefore, int64_t{0});
         --done) {
      const data::LargestNumbers before = largest_of_step(context_, done);
      const std::string in_step = data::words_for(before, pass.dataset);
      if (!in_step.empty())
        return {fmt::format("; in step {} {}", done + 1, in_step), data::what_is_large(before)};
    }
  } catch (const Error&) {  // a file that cannot be read now; the message does without
  }
  return {};
}

// The numbers of every lane are finite, but their sum is not: large numbers in the step's batch.
NotFiniteCause NotFiniteSearch::cause_of_sum() {
  NotFiniteCause cause{overflowing_sum(), smaller_updates(context_.config)};
  const data::LargestNumbers largest = largest_of_step(context_, step_read_);
  const std::string text = data::words_for(largest, *context_.data.train);
  if (text.empty()) return cause;
  return {cause.text + "; " + text,
          fmt::format(
              "{}, or {}", scaled(data::what_is_large(largest), context_.config), cause.remedy)};
}

// The numbers of every lane are finite, but their sum is not.
std::string NotFiniteSearch::overflowing_sum() {
  std::string mine;
  for (const StatePiece& piece : step_.update().optimizer().pieces()) {
    const collectives::OwnedFloats& sums = step_.exchange().sums();
    graph::Tensor sum;
    sum.shape = Shape{piece.range.size()};
    const auto* const data =
        reinterpret_cast<const std::byte*>(sums.at(piece.range.begin, piece.local));
    if (!values_.kinds_in(sum, data).any()) continue;
    mine = fmt::format("the sum over all lanes of the gradient of {} is not finite",
                       context_.plan.layout.slots[piece.slot].name);
    break;
  }
  for (const std::string& text : collectives::gather_texts(context_.communicator, mine)) {
    if (!text.empty()) return text;
  }
  return "the sum over all lanes is not finite, though every number of every lane is";
}

}  // namespace lockstep::train
