#include "runtime/data/images/npy_targets.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::data {
namespace {

using config::TargetPart;

int64_t integer_at(const NpyArray& array, int64_t index) {
  switch (array.type) {
    case NpyType::kBool: return value_at<uint8_t>(array, index) != 0 ? 1 : 0;
    case NpyType::kUint8: return value_at<uint8_t>(array, index);
    case NpyType::kInt32: return value_at<int32_t>(array, index);
    default: return value_at<int64_t>(array, index);
  }
}

float float_at(const NpyArray& array, int64_t index) {
  return array.type == NpyType::kFloat32 ? value_at<float>(array, index)
                                         : static_cast<float>(integer_at(array, index));
}

std::string classes_in_words(const TargetPart& part) {
  std::string words = part.classes > 0 ? fmt::format("0..{}", part.classes - 1)
                                       : fmt::format("integers of 32 bits");
  if (part.ignored && part.classes > 0) words += fmt::format(", or {}", *part.ignored);
  return words;
}

// One part and its file.
struct OpenedPart {
  TargetPart part;  // with the extents of the file
  NpyFile file;

  OpenedPart(TargetPart asked, NpyFile opened) : part(std::move(asked)), file(std::move(opened)) {
    const NpyArray& array = file.array;
    std::vector<int64_t> extents(array.extents.begin() + 1, array.extents.end());
    if (!has_extents(part, extents))
      throw DataError("{}: the target {} is {} for each sample; the model takes {}",
                      file.file.name(),
                      in_quotes(part.name),
                      extents_in_words(extents),
                      extents_in_words(part.extents));
    part.extents = std::move(extents);
    part.any_extents = false;
    if (part.type == TargetPart::Type::kLabels)
      require_classes();
    else
      require_values();
  }

  void read(int64_t sample, std::byte* to) const {
    const int64_t row = part.elements(), first = sample * row;
    for (int64_t i = 0; i < row; ++i, to += sizeof(int32_t)) {
      if (part.type == TargetPart::Type::kLabels) {
        const auto label = static_cast<int32_t>(integer_at(file.array, first + i));
        std::memcpy(to, &label, sizeof(label));
      } else {
        const float value = float_at(file.array, first + i);
        std::memcpy(to, &value, sizeof(value));
      }
    }
  }

 private:
  void require_classes() const {
    const NpyArray& array = file.array;
    if (array.type == NpyType::kFloat32)
      throw DataError(
          "{}: has float32 numbers; the model takes the target {} as class numbers; allowed: bool, "
          "uint8, int32 and int64, as from y.astype(numpy.int64)",
          file.file.name(),
          in_quotes(part.name));
    const int64_t row = array.row();
    const int64_t low = part.classes > 0 ? 0 : std::numeric_limits<int32_t>::min();
    const int64_t high = part.classes > 0 ? part.classes - 1 : std::numeric_limits<int32_t>::max();
    for (int64_t i = 0; i < array.count() * row; ++i) {
      const int64_t label = integer_at(array, i);
      if ((label >= low && label <= high) || label == part.ignored) continue;
      throw DataError("{}: {} of sample {} is {}; allowed: {}",
                      file.file.name(),
                      row == 1 ? std::string("the label") : fmt::format("label {}", i % row),
                      i / row,
                      label,
                      classes_in_words(part));
    }
  }

  void require_values() const {
    const NpyArray& array = file.array;
    const bool shares = part.type == TargetPart::Type::kShares;
    const int64_t row = array.row();
    for (int64_t i = 0; i < array.count() * row; ++i) {
      const float value = float_at(array, i);
      if (std::isfinite(value) && (!shares || (value >= 0 && value <= 1))) continue;
      throw DataError("{}: {} of sample {} is {}; allowed: {}",
                      file.file.name(),
                      row == 1 ? std::string("the target") : fmt::format("target {}", i % row),
                      i / row,
                      value,
                      shares ? "0 to 1" : "finite numbers");
    }
  }
};

class NpyTargets final : public TargetRecords {
 public:
  explicit NpyTargets(std::vector<OpenedPart> opened) : opened_(std::move(opened)) {
    for (const OpenedPart& part : opened_) parts_.push_back(part.part);
  }
  const std::vector<TargetPart>& parts() const override { return parts_; }
  void read(int64_t sample, std::byte* record) const override {
    for (const OpenedPart& part : opened_) {
      part.read(sample, record);
      record += part.part.elements() * static_cast<int64_t>(sizeof(int32_t));
    }
  }
  int64_t resident_bytes() const override {
    int64_t bytes = 0;
    for (const OpenedPart& part : opened_) bytes += part.file.bytes();
    return bytes;
  }

 private:
  std::vector<OpenedPart> opened_;
  std::vector<TargetPart> parts_;
};

}  // namespace

std::shared_ptr<const TargetRecords> open_npy_targets(const DataConfig& data,
                                                      const NpyConfig& npy,
                                                      const std::vector<TargetPart>& asked,
                                                      bool train,
                                                      int64_t samples,
                                                      const std::string& inputs) {
  std::vector<OpenedPart> opened;
  for (const TargetPart& part : asked) {
    const auto found = std::ranges::find(npy.targets, part.name, &NpyTarget::name);
    const auto index = static_cast<size_t>(found - npy.targets.begin());
    NpyFile file(data.dir,
                 train ? found->train : found->eval,
                 fmt::format("npy.targets[{}].{}", index, train ? "train" : "eval"));
    if (file.array.count() != samples)
      throw DataError("{} has {} samples but {} has {} targets; the numbers must be equal",
                      inputs,
                      samples,
                      file.file.name(),
                      file.array.count());
    opened.emplace_back(part, std::move(file));
  }
  return std::make_shared<NpyTargets>(std::move(opened));
}

}  // namespace lockstep::data
