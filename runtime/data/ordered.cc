#include "runtime/data/ordered.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::data {
namespace {

std::shared_ptr<const ClassMembers> members_of(const Dataset& dataset) {
  LOCKSTEP_CHECK(dataset.target().dtype == DType::kI32 && dataset.target().shape.rank() == 0);
  std::vector<std::vector<int64_t>> of_class;
  for (int64_t i = 0; i < dataset.samples(); ++i) {
    const auto label = static_cast<size_t>(dataset.label(i));
    if (label >= of_class.size()) of_class.resize(label + 1);
    of_class[label].push_back(i);
  }
  auto members = std::make_shared<ClassMembers>();
  members->begin = {0};
  for (const std::vector<int64_t>& samples : of_class) {
    if (samples.empty()) continue;
    members->samples.insert(members->samples.end(), samples.begin(), samples.end());
    members->begin.push_back(static_cast<int64_t>(members->samples.size()));
  }
  return members;
}

std::shared_ptr<const std::vector<int32_t>> lengths_of(const Dataset& dataset) {
  auto lengths = std::make_shared<std::vector<int32_t>>();
  for (int64_t i = 0; i < dataset.samples(); ++i)
    lengths->push_back(static_cast<int32_t>(dataset.length(i)));
  lengths->shrink_to_fit();
  return lengths;
}

// Wraps a data set to give it another order.
class OrderedDataset final : public WrappedDataset {
 public:
  OrderedDataset(std::unique_ptr<Dataset> dataset, SampleOrder order)
      : WrappedDataset(std::move(dataset)), order_(std::move(order)) {}

  int64_t resident_bytes() const override {
    size_t bytes = 0;
    if (order_.balanced != nullptr)
      bytes += (order_.balanced->begin.capacity() + order_.balanced->samples.capacity()) *
               sizeof(int64_t);
    if (order_.lengths != nullptr) bytes += order_.lengths->capacity() * sizeof(int32_t);
    return dataset_->resident_bytes() + static_cast<int64_t>(bytes);
  }
  SampleOrder order() const override { return order_; }

 private:
  SampleOrder order_;
};

void refuse_if_given(bool given, const char* field, const char* unless) {
  if (given) throw ConfigError("{}: value is true; allowed: false unless {}", field, unless);
}

}  // namespace

void check_order(const DataConfig& data, const config::ModelTraits& model) {
  refuse_if_given(data.balance_classes && !data.shuffle,
                  "data.balance_classes",
                  "data.shuffle is true, because samples are drawn at random");
  refuse_if_given(data.balance_classes && model.target_kind() != config::TargetKind::kClass,
                  "data.balance_classes",
                  "samples have class labels; this model predicts something else");
  refuse_if_given(data.group_by_length && !data.shuffle,
                  "data.group_by_length",
                  "data.shuffle is true, because batches come in a random order");
  refuse_if_given(data.group_by_length && model.input != config::ModelInput::kTokens,
                  "data.group_by_length",
                  "the model takes text, whose samples are padded");
}

void order_training(const DataConfig& data, OpenedData* opened) {
  if (opened->train == nullptr || !(data.balance_classes || data.group_by_length)) return;
  const Dataset& train = *opened->train;
  SampleOrder order = train.order();
  if (data.balance_classes) order.balanced = members_of(train);
  if (data.group_by_length) {
    order.lengths = lengths_of(train);
    refuse_if_given(
        std::all_of(order.lengths->begin(), order.lengths->end(), [](int32_t n) { return n == 0; }),
        "data.group_by_length",
        "samples are padded to the context; these never are");
  }
  opened->train = std::make_unique<OrderedDataset>(std::move(opened->train), std::move(order));
}

}  // namespace lockstep::data
