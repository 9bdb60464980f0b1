#pragma once
// What Git leaves in the place of a large file where Git LFS has not fetched it: some lines of text.

#include <cstddef>
#include <string_view>

namespace lockstep {

constexpr size_t kLongestLfsPointer = 1024;  // bytes; by its specification they are fewer

// Of a file, or of its beginning.
constexpr bool is_lfs_pointer(std::string_view begin) {
  return begin.starts_with("version https://git-lfs.github.com/spec/");
}

// To be said of such a file.
constexpr const char* kLfsAdvice =
    "is a pointer of Git LFS and not the file itself, which `git lfs pull` in its folder fetches";

}  // namespace lockstep
