#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/images/npy_file.h"

namespace lockstep::data {
namespace {

// Numbers of uint8 arrays that do not count, as other libraries have it.
constexpr int64_t kIgnoredByte = 255;

int64_t integer_at(const NpyArray& array, int64_t index) {
  switch (array.type) {
    case NpyType::kInt32: return value_at<int32_t>(array, index);
    case NpyType::kInt64: return value_at<int64_t>(array, index);
    default: return value_at<uint8_t>(array, index);
  }
}

}  // namespace

NpyMasks::NpyMasks(NpyFile file, int64_t classes)
    : file_(std::move(file)), rules_{.classes = classes, .remedy = " or -1, which does not count"} {
  const NpyArray& array = file_.array;
  if (array.type == NpyType::kFloat32)
    throw DataError(
        "{}: has float32 classes; allowed: bool, uint8, int32 and int64, as from "
        "y.astype(numpy.uint8)",
        name());
  if (array.type != NpyType::kUint8) return;
  rules_.ignored = kIgnoredByte;
  rules_.remedy = ", which does not count";
}

NpyMasks::NpyMasks(NpyFile file, int64_t classes, const NpyArray& images)
    : NpyMasks(std::move(file), classes) {
  const NpyArray& array = file_.array;
  if (array.extents.size() != 3)
    throw DataError(
        "{}: has labels of {} dimensions; allowed: 3 (images, height, width), a class "
        "for each pixel",
        name(),
        array.extents.size());
  if (images.extents.size() < 3 || array.extents[1] != images.extents[1] ||
      array.extents[2] != images.extents[2])
    throw DataError("{}: the masks have {} x {} pixels, but the images {}; allowed: the same size",
                    name(),
                    array.extents[2],
                    array.extents[1],
                    images.extents.size() < 3
                        ? std::string("are no arrays of pixels")
                        : fmt::format("{} x {}", images.extents[2], images.extents[1]));
}

NpyMasks NpyMasks::of_features(NpyFile file, int64_t classes) {
  NpyMasks masks(std::move(file), classes);
  const NpyArray& array = masks.file_.array;
  if (array.extents.size() < 2)
    throw DataError(
        "{}: has a label for each sample; allowed: 2 dimensions (samples, positions) or more, a "
        "class for each position of the network's output",
        masks.name());
  std::vector<int32_t> row(static_cast<size_t>(array.row()));
  for (int64_t sample = 0; sample < array.count(); ++sample) masks.read(sample, row.data());
  return masks;
}

void NpyMasks::load(int64_t index, Mask* mask) const {
  const NpyArray& array = file_.array;
  mask->size = {static_cast<int>(array.extents[1]), static_cast<int>(array.extents[2])};
  mask->classes.resize(static_cast<size_t>(array.row()));
  read(index, mask->classes.data());
}

void NpyMasks::read(int64_t index, int32_t* classes) const {
  const NpyArray& array = file_.array;
  const int64_t row = array.row();
  try {
    for (int64_t i = 0; i < row; ++i)
      classes[i] = rules_.class_of(integer_at(array, index * row + i), i, array.extents.back());
  } catch (const DataError& error) {
    throw DataError("{}: sample {}: {}", name(), index, error.what());
  }
}

Shape NpyMasks::sample() const {
  Shape shape;
  for (size_t axis = 1; axis < file_.array.extents.size(); ++axis)
    shape.append(file_.array.extents[axis]);
  return shape;
}

}  // namespace lockstep::data
