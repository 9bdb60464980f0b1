#include "runtime/data/images/masks.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/images/image_pipeline.h"

namespace lockstep::data {
namespace {

// What is read of a store when it is opened, which takes a second or two.
constexpr int64_t kMaxImages = 2000, kMaxPixelsRead = int64_t{1} << 28;

}  // namespace

void MaskRules::refuse(int64_t number, int64_t index, int64_t width) const {
  throw DataError("pixel (x {}, y {}) of the mask is {}; allowed: 0..{}{}",
                  index % width,
                  index / width,
                  number,
                  classes - 1,
                  ignored < 0 ? remedy : fmt::format(" or {}{}", ignored, remedy));
}

LabelCounts count_pixels(const ImageStore& store, bool skip_bad) {
  ImagePipeline& pipeline = ImagePipeline::of_this_thread();
  Mask& mask = pipeline.mask();
  LabelCounts counts;
  std::vector<int64_t> of_class;
  const int64_t images = std::min(store.count(), kMaxImages);
  int64_t pixels = 0, read = 0;
  for (int64_t i = 0; i < images && pixels < kMaxPixelsRead; ++i, ++read) {
    const int64_t index = i * store.count() / images;
    try {
      store.load_mask(index, &mask);
      require_size_of_image(mask, pipeline.size_of(store.load(index, pipeline.buffer())));
    } catch (const DataError& error) {
      if (!skip_bad)
        throw DataError("{}: {} (set data.bad_records to SKIP to continue without it)",
                        store.name(index),
                        error.what());
      continue;
    }
    pixels += static_cast<int64_t>(mask.classes.size());
    for (const int32_t number : mask.classes) {
      if (number < 0) continue;
      if (static_cast<size_t>(number) >= of_class.size())
        of_class.resize(static_cast<size_t>(number) + 1);
      ++of_class[static_cast<size_t>(number)];
    }
  }
  if (read < store.count()) return {};
  for (size_t number = 0; number < of_class.size(); ++number)
    if (of_class[number] > 0) counts.add(static_cast<int32_t>(number), of_class[number]);
  return counts;
}

}  // namespace lockstep::data
