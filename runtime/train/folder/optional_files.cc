#include "runtime/train/folder/optional_files.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/passing_error.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::train {
namespace {

void publish(const std::filesystem::path& path, const std::string& text) {
  check_generation(path.parent_path());
  write_file_atomically(path, text);
}

}  // namespace

void OptionalFiles::write(const std::filesystem::path& path, const std::string& text) {
  try {
    publish(path, text);
    unwritten_.erase(path);
  } catch (const IoError& error) {
    if (!may_pass(error.error_number())) throw;
    if (!unwritten_.contains(path))
      log_warn("{}; the run continues, and will try '{}' again", error.what(), path.string());
    unwritten_[path] = text;
  }
}

void OptionalFiles::retry() noexcept {
  for (auto file = unwritten_.begin(); file != unwritten_.end();) {
    try {
      publish(file->first, file->second);
      file = unwritten_.erase(file);
    } catch (const std::exception&) {
      ++file;
    }
  }
}

void OptionalFiles::finish() noexcept {
  retry();
  for (const auto& [path, text] : unwritten_)
    log_warn("'{}' is missing: it could not be written", path.string());
  unwritten_.clear();
}

}  // namespace lockstep::train
