#include "models/huggingface/unfinished_folder.h"

#include <unistd.h>

#include "runtime/base/error.h"

namespace lockstep::huggingface {
namespace fs = std::filesystem;
namespace {

// Creates a temporary folder and removes it, unless become() has renamed it.
class Unfinished {
 public:
  explicit Unfinished(const fs::path& out)
      : path_(fmt::format("{}.{}.tmp", out.string(), ::getpid())) {
    for (const fs::path& path : {out, path_}) {
      if (fs::exists(path))
        throw CheckpointError("{}: exists already; choose a new folder", path.string());
    }
    fs::create_directories(path_);
  }
  ~Unfinished() {
    std::error_code ignored;
    if (!done_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void become(const fs::path& out) {
    fs::rename(path_, out);
    done_ = true;
  }

 private:
  const fs::path path_;
  bool done_ = false;
};

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

checkpoint::WrittenFile make_folder(
    const fs::path& out,
    const std::function<checkpoint::WrittenFile(const fs::path& folder)>& fill) {
  try {
    const fs::path target = without_slash(out);
    Unfinished folder(target);
    checkpoint::WrittenFile written = fill(folder.path());
    folder.become(target);
    return written;
  } catch (const fs::filesystem_error& error) {
    throw IoError("write", error.path1().string(), error.code().value());
  }
}

}  // namespace lockstep::huggingface
