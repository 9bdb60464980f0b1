#pragma once
// The classes of pixels in stored masks.

#include <cstdint>
#include <string>

#include "runtime/data/images/image_store.h"
#include "runtime/data/label_counts.h"

namespace lockstep::data {

// Which numbers of a mask are classes.
struct MaskRules {
  int64_t classes = 0;      // 0 to classes - 1
  int64_t ignored = -1;     // does not count; -1: no such number
  bool any_number = false;  // numbers that are no class do not count, either
  std::string remedy = {};  // for messages: where `ignored` comes from

  // The class of a number, -1 if it does not count. Throws DataError, which names the pixel
  // (`index` in rows of `width`), if it is not allowed.
  int32_t class_of(int64_t number, int64_t index, int64_t width) const {
    if (number == ignored || number == -1) return -1;
    if (number >= 0 && number < classes) return static_cast<int32_t>(number);
    if (!any_number) refuse(number, index, width);
    return -1;
  }

 private:
  [[noreturn]] void refuse(int64_t number, int64_t index, int64_t width) const;
};

// How many pixels of the masks have each class. Empty if the store is so large that only a part of
// it, evenly spaced, was read. Throws DataError for a bad mask, or one that has not its image's
// size, unless `skip_bad`.
LabelCounts count_pixels(const ImageStore& store, bool skip_bad);

}  // namespace lockstep::data
