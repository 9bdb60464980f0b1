#pragma once
// A ring buffer's allocator: parts are freed in the order in which they were allocated.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::collectives {

class Ring {
 public:
  // For a buffer of `length` elements and at most `max_parts` parts at a time.
  Ring(int64_t length, size_t max_parts) : length_(length), begins_(max_parts) {}

  // Allocates n > 0 consecutive elements and returns their offset: behind the newest part or, if
  // they do not fit before the end, at the start. Returns nullopt if older parts must be freed
  // first. If the ring is empty, any n up to `length` fits.
  std::optional<int64_t> take(int64_t n);
  // Frees the oldest part.
  void give_back();
  void clear() { count_ = 0; }
  size_t parts() const { return count_; }

 private:
  int64_t length_;
  std::vector<int64_t> begins_;  // offsets of the parts, itself a ring
  size_t first_ = 0, count_ = 0;
  int64_t next_ = 0;  // the end of the newest part
};

}  // namespace lockstep::collectives
