#include "runtime/data/subset.h"

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::data {
namespace {

// Some samples of a set, by their indices in it, ascending.
using Indices = std::vector<int32_t>;

template <typename Value>
std::vector<Value> chosen(const std::vector<Value>& of_all, const Indices& indices) {
  std::vector<Value> some;
  if (of_all.empty()) return some;
  for (const int32_t index : indices) some.push_back(of_all[static_cast<size_t>(index)]);
  return some;
}

// The whole set's order without the samples that are left out. A shard without samples goes too.
SampleOrder order_of(SampleOrder whole, const Indices& indices) {
  SampleOrder order = std::move(whole);
  order.samples = static_cast<int64_t>(indices.size());
  const std::vector<int64_t> shards = std::exchange(order.shard_samples, {});
  auto next = indices.begin();
  int64_t end = 0;
  for (const int64_t samples : shards) {
    end += samples;
    const auto first = next;
    while (next != indices.end() && *next < end) ++next;
    if (next != first) order.shard_samples.push_back(next - first);
  }
  return order;
}

int64_t bytes_of(const Indices& indices) {
  return static_cast<int64_t>(indices.capacity() * sizeof(int32_t));
}

// Two subsets share the whole set. One of them counts its memory.
class SubsetDataset final : public Dataset {
 public:
  SubsetDataset(std::shared_ptr<const Dataset> whole, Indices indices, bool counts_whole)
      : Dataset(whole->input(), whole->target()),
        whole_(std::move(whole)),
        indices_(std::move(indices)),
        counts_whole_(counts_whole) {}

  int64_t samples() const override { return static_cast<int64_t>(indices_.size()); }
  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    whole_->read({at(key.index), key.epoch, key.augment}, input, target);
  }
  int64_t resident_bytes() const override {
    return bytes_of(indices_) + (counts_whole_ ? whole_->resident_bytes() : 0);
  }
  int64_t length(int64_t index) const override { return whole_->length(at(index)); }
  int64_t tokens(int64_t index) const override { return whole_->tokens(at(index)); }
  int32_t label(int64_t index) const override { return whole_->label(at(index)); }
  std::vector<std::string> files() const override { return chosen(whole_->files(), indices_); }
  std::vector<int64_t> lines() const override { return chosen(whole_->lines(), indices_); }
  std::vector<SampleWord> words(int64_t index) const override { return whole_->words(at(index)); }
  std::string name_of(int64_t index) const override { return whole_->name_of(at(index)); }
  int64_t record_of(int64_t index) const override { return whole_->record_of(at(index)); }
  bool is_replaced(int64_t index) const override { return whole_->is_replaced(at(index)); }
  SampleOrder order() const override { return order_of(whole_->order(), indices_); }
  bool is_expensive() const override { return whole_->is_expensive(); }

 private:
  int64_t at(int64_t index) const { return indices_[static_cast<size_t>(index)]; }

  std::shared_ptr<const Dataset> whole_;
  Indices indices_;
  bool counts_whole_;
};

class SubsetStore final : public ImageStore {
 public:
  SubsetStore(std::shared_ptr<const ImageStore> whole, Indices indices, bool counts_whole)
      : whole_(std::move(whole)), indices_(std::move(indices)), counts_whole_(counts_whole) {}

  int64_t count() const override { return static_cast<int64_t>(indices_.size()); }
  int32_t label(int64_t index) const override { return whole_->label(at(index)); }
  std::string name(int64_t index) const override { return whole_->name(at(index)); }
  std::vector<std::string> files() const override { return chosen(whole_->files(), indices_); }
  bool has_masks() const override { return whole_->has_masks(); }
  void load_mask(int64_t index, Mask* mask) const override { whole_->load_mask(at(index), mask); }
  std::vector<std::string> split_names() const override {
    return chosen(whole_->split_names(), indices_);
  }
  int64_t record_of(int64_t index) const override { return whole_->record_of(at(index)); }
  StoredImage load(int64_t index, std::vector<std::byte>& buffer) const override {
    return whole_->load(at(index), buffer);
  }
  bool encoded() const override { return whole_->encoded(); }
  std::optional<ImageSize> common_size() const override { return whole_->common_size(); }
  int channels() const override { return whole_->channels(); }
  int64_t resident_bytes() const override {
    return bytes_of(indices_) + (counts_whole_ ? whole_->resident_bytes() : 0);
  }
  SampleOrder order() const override { return order_of(whole_->order(), indices_); }

 private:
  int64_t at(int64_t index) const { return indices_[static_cast<size_t>(index)]; }

  std::shared_ptr<const ImageStore> whole_;
  Indices indices_;
  bool counts_whole_;
};

struct Parts {
  Indices train, eval;
  std::string text;  // for the log
};

// `names`: of the samples' files, or empty.
template <typename Set>
Parts split(const HeldOut& held_out,
            const Set& set,
            int64_t samples,
            const std::vector<std::string>& names,
            const std::string& where) {
  constexpr int64_t kMaxSamples = std::numeric_limits<int32_t>::max();
  if (samples > kMaxSamples)
    throw DataError("{}: has {} samples; allowed with {}: up to {}",
                    where,
                    samples,
                    held_out.field,
                    kMaxSamples);
  Parts parts;
  for (int64_t i = 0; i < samples; ++i) {
    const bool taken = names.empty() ? held_out.takes(set.record_of(i))
                                     : held_out.takes(names[static_cast<size_t>(i)]);
    (taken ? parts.eval : parts.train).push_back(static_cast<int32_t>(i));
  }
  const auto taken = static_cast<int64_t>(parts.eval.size());
  held_out.require_parts(taken, samples, "training samples", where);
  parts.text = held_out.describe(taken, samples, "training samples");
  parts.train.shrink_to_fit();
  parts.eval.shrink_to_fit();
  return parts;
}

}  // namespace

void hold_out(const HeldOut& held_out,
              const std::string& where,
              bool need_train,
              OpenedSource* opened) {
  if (auto* const stores = std::get_if<ImageStores>(opened)) {
    const std::shared_ptr<const ImageStore> whole = std::move(stores->train);
    Parts parts = split(held_out, *whole, whole->count(), whole->split_names(), where);
    if (need_train)
      stores->train = std::make_shared<SubsetStore>(whole, std::move(parts.train), true);
    stores->eval = std::make_shared<SubsetStore>(whole, std::move(parts.eval), !need_train);
    stores->held_out = std::move(parts.text);
    return;
  }
  auto& data = std::get<OpenedData>(*opened);
  const std::shared_ptr<const Dataset> whole = std::move(data.train);
  Parts parts = split(held_out, *whole, whole->samples(), {}, where);
  if (need_train) data.train = std::make_unique<SubsetDataset>(whole, std::move(parts.train), true);
  data.eval = std::make_unique<SubsetDataset>(whole, std::move(parts.eval), !need_train);
  data.summary.held_out = std::move(parts.text);
  describe(&data);
}

}  // namespace lockstep::data
