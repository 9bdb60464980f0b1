#pragma once
// A piece of memory whose parts are given back in the order in which they were taken.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

class Ring {
 public:
  // Of `length` elements, for at most `most` parts at a time.
  Ring(int64_t length, size_t most) : length_(length), begins_(most) {}

  // Takes n > 0 elements that follow each other, behind what was taken last or, where that is near
  // the end, from the first on: where they begin. Nothing where older parts must be given back
  // first; what is no longer than the ring finds room once it is empty.
  std::optional<int64_t> take(int64_t n);
  // Gives back the part that was taken first.
  void give_back();
  void clear() { count_ = 0; }
  size_t parts() const { return count_; }

 private:
  int64_t length_;
  std::vector<int64_t> begins_;  // of the parts, itself a ring
  size_t first_ = 0, count_ = 0;
  int64_t next_ = 0;  // behind what was taken last
};

}  // namespace lockstep
