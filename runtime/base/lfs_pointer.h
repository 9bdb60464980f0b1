#pragma once
// The text file that Git leaves instead of a large file if Git LFS has not fetched it.

#include <cstddef>
#include <string_view>

namespace lockstep {

constexpr size_t kMaxLfsPointerBytes = 1024;  // bytes; the specification allows fewer than this

// `begin` is the contents of a file, or its beginning.
constexpr bool is_lfs_pointer(std::string_view begin) {
  return begin.starts_with("version https://git-lfs.github.com/spec/");
}

// The end of an error message about such a file.
constexpr const char* kLfsAdvice =
    "is a pointer of Git LFS, not the file itself; run `git lfs pull` in its folder";

}  // namespace lockstep
