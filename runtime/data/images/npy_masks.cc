#include <fmt/format.h>

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

NpyMasks::NpyMasks(NpyFile file, int64_t classes, const NpyArray& images)
    : file_(std::move(file)), rules_{.classes = classes, .remedy = " or -1, which does not count"} {
  const NpyArray& array = file_.array;
  const std::string& name = file_.file.name();
  if (array.type == NpyType::kFloat32)
    throw DataError(
        "{}: has float32 classes of pixels; allowed: bool, uint8, int32 and int64, as from "
        "y.astype(numpy.uint8)",
        name);
  if (array.type == NpyType::kUint8) {
    rules_.ignored = kIgnoredByte;
    rules_.remedy = ", which does not count";
  }
  if (array.extents.size() != 3)
    throw DataError(
        "{}: has labels of {} dimensions; allowed: 3 (images, height, width), a class "
        "for each pixel",
        name,
        array.extents.size());
  if (images.extents.size() < 3 || array.extents[1] != images.extents[1] ||
      array.extents[2] != images.extents[2])
    throw DataError("{}: the masks have {} x {} pixels, but the images {}; allowed: the same size",
                    name,
                    array.extents[2],
                    array.extents[1],
                    images.extents.size() < 3
                        ? std::string("are no arrays of pixels")
                        : fmt::format("{} x {}", images.extents[2], images.extents[1]));
}

void NpyMasks::load(int64_t index, Mask* mask) const {
  const NpyArray& array = file_.array;
  const int64_t width = array.extents[2], pixels = array.extents[1] * width;
  mask->size = {static_cast<int>(array.extents[1]), static_cast<int>(width)};
  mask->classes.resize(static_cast<size_t>(pixels));
  try {
    for (int64_t i = 0; i < pixels; ++i)
      mask->classes[static_cast<size_t>(i)] =
          rules_.class_of(integer_at(array, index * pixels + i), i, width);
  } catch (const DataError& error) {
    throw DataError("{}: sample {}: {}", file_.file.name(), index, error.what());
  }
}

}  // namespace lockstep::data
