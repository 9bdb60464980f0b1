#include "runtime/checkpoint/format/folder.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <functional>
#include <map>
#include <set>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/publish.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kBestFile[] = "best";
constexpr char kTemporarySuffix[] = ".tmp";
constexpr char kReplacedSuffix[] = ".replaced";
constexpr char kDeleteSuffix[] = ".tmp-delete";

// Whether temporary_name() made this name, for any generation.
bool is_temporary(std::string_view name) {
  constexpr std::string_view kSuffix = kTemporarySuffix;
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  const size_t dot = name.find(".g");
  return step_of_name(name.substr(0, dot)) >= 0 &&
         (dot == std::string_view::npos ||
          name.find_first_not_of("0123456789", dot + 2) == std::string_view::npos);
}

std::vector<std::string> names_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator next;
  do {
    next = fs::directory_iterator(root, code);
  } while (code == std::errc::interrupted);
  if (code == std::errc::no_such_file_or_directory) return names;
  while (!code && next != fs::directory_iterator()) {
    names.push_back(next->path().filename().string());
    next.increment(code);
  }
  if (code) throw IoError("list", root, code.value());
  return names;
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (uninterrupted([&] { return ::rename(from.c_str(), to.c_str()); }) != 0)
    throw IoError("rename", from, errno);
}

void remove_tree(const fs::path& path) {
  std::error_code code;
  do {
    fs::remove_all(path, code);
  } while (code == std::errc::interrupted);
  if (code) throw IoError("remove", path, code.value());
}

// Runs `remove` on a folder that the run does not need. If that fails, it logs a warning and leaves
// the folder.
void try_to_remove(const std::function<void()>& remove) {
  try {
    remove();
  } catch (const IoError& error) {
    log_warn("{}; it is left in place", error.what());
  }
}

// Throws if the state cannot be read, or if a file is missing or has another size. Does not read
// the tensors.
void check_files(const fs::path& folder) {
  for (const FileRecord& record : read_state(folder).files) {
    std::error_code code;
    const uint64_t size = fs::file_size(folder / record.name, code);
    if (code) throw IoError("stat", folder / record.name, code.value());
    if (size != record.size) {
      throw CheckpointError("{}: has {} bytes, but {} were written",
                            (folder / record.name).string(),
                            size,
                            record.size);
    }
  }
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:08d}", step); }

std::string temporary_name(int64_t step, int64_t generation) {
  return checkpoint_name(step) + (generation > 0 ? fmt::format(".g{}", generation) : "") +
         kTemporarySuffix;
}

int64_t step_of_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return -1;
  const int64_t step = parse_as<int64_t>(name.substr(kPrefix.size())).value_or(-1);
  return step >= 0 && checkpoint_name(step) == name ? step : -1;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& root) {
  std::map<int64_t, fs::path> found;
  for (const std::string& name : names_in(root)) {
    if (const int64_t step = step_of_name(name); step >= 0) found[step] = root / name;
    // An interrupted replacement left this one. It counts only while its successor does not exist.
    if (name.ends_with(kReplacedSuffix)) {
      const int64_t step = step_of_name(std::string_view(name).substr(0, name.rfind('.')));
      if (step >= 0) found.emplace(step, root / name);
    }
  }
  std::vector<CheckpointEntry> entries;
  for (const auto& [step, path] : found) entries.push_back({step, path});
  return entries;
}

std::optional<CheckpointEntry> find_latest(const fs::path& root,
                                           std::vector<std::string>* skipped) {
  std::vector<CheckpointEntry> entries = list_checkpoints(root);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      check_files(entry->path);
      return *entry;
    } catch (const Error& error) {
      if (skipped != nullptr) skipped->push_back(error.what());
    }
  }
  return std::nullopt;
}

fs::path resolve_checkpoint(const fs::path& path) {
  std::error_code code;
  if (fs::exists(path / kStateFile, code)) return path;
  if (path.filename() == kBestFile) {
    if (const auto best = read_best(path.parent_path())) return best->path;
    throw CheckpointError("{}: names no checkpoint: none was kept as the best", path.string());
  }
  if (fs::exists(path, code) && !fs::is_directory(path, code))
    throw CheckpointError(
        "{}: is a file; a checkpoint is a folder: step-*, the folder that holds them or a run "
        "folder{}",
        path.string(),
        has_suffix(path.string(), ".safetensors")
            ? fmt::format("; lockstep import CONFIG {} --out FOLDER makes one of it", path.string())
            : "");
  if (!fs::exists(path, code))
    throw CheckpointError(
        "'{}' does not exist; give a checkpoint (a step-* folder, the folder that holds them "
        "or a run folder){}",
        path.string(),
        look_alike_hint(path.string()));
  std::vector<std::string> skipped;
  for (const fs::path& root : {path, path / "checkpoints"}) {
    if (const auto latest = find_latest(root, &skipped)) return latest->path;
  }
  throw CheckpointError(
      "{}: no checkpoint here: give a step-* folder, the folder that holds them or "
      "a run folder{}{}{}",
      path.string(),
      look_alike_hint(path.string()),
      skipped.empty() ? "" : "; skipped: ",
      skipped.empty() ? "" : skipped.front());
}

void write_best(const fs::path& root, int64_t step) {
  write_file_atomically(root / kBestFile, checkpoint_name(step) + "\n");
}

std::optional<CheckpointEntry> read_best(const fs::path& root) {
  std::error_code code;
  if (!fs::exists(root / kBestFile, code)) return std::nullopt;
  std::string name = read_file(root / kBestFile, 4096);
  if (name.ends_with('\n')) name.pop_back();
  const int64_t step = step_of_name(name);
  if (step < 0) {
    throw CheckpointError("{}: contains {}; it must contain the name of a checkpoint",
                          (root / kBestFile).string(),
                          quote_name(name));
  }
  for (const CheckpointEntry& entry : list_checkpoints(root)) {
    if (entry.step == step) return entry;
  }
  return std::nullopt;
}

void remove_checkpoint(const fs::path& path) {
  try_to_remove([&] {
    const fs::path deleted = path.string() + kDeleteSuffix;
    remove_tree(deleted);
    rename_folder(path, deleted);
    remove_tree(deleted);
  });
}

void remove_leftovers(const fs::path& root) {
  const std::vector<std::string> names = names_in(root);
  const std::set<std::string> present(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string stem = name.substr(0, name.find('.'));
    if (step_of_name(stem) < 0) continue;
    // A checkpoint that was moved aside is the only one of its step until the new one has its final
    // name.
    const bool superseded = name == stem + kReplacedSuffix && present.count(stem) != 0;
    if (is_temporary(name) || name.ends_with(kDeleteSuffix) || superseded) {
      try_to_remove([&] { remove_tree(root / name); });
    }
  }
}

void publish_checkpoint(const fs::path& temporary, const fs::path& final_path, bool exchange) {
  const fs::path root = final_path.parent_path();
  std::error_code code;
  if (!fs::exists(final_path, code)) {
    rename_folder(temporary, final_path);
    sync_folder(root);
    remove_leftovers(root);
    return;
  }
  const auto swap_folders = [&] {
    return ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE);
  };
  if (exchange && uninterrupted(swap_folders) == 0) {
    sync_folder(root);
    remove_checkpoint(temporary);
    return;
  }
  if (exchange && errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    throw IoError("rename", temporary, errno);
  }
  const fs::path aside = final_path.string() + kReplacedSuffix;
  remove_tree(aside);
  rename_folder(final_path, aside);
  rename_folder(temporary, final_path);
  sync_folder(root);
  remove_checkpoint(aside);
}

void prune(const fs::path& root,
           int64_t keep_last,
           std::optional<int64_t> keep_step,
           int64_t newest,
           const std::function<void()>& check) {
  LOCKSTEP_CHECK(keep_last >= 1);
  std::vector<CheckpointEntry> entries = list_checkpoints(root);
  int64_t kept = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->step > newest) continue;
    if (kept >= keep_last) {
      if (entry->step == keep_step) continue;
      if (check) check();
      remove_checkpoint(entry->path);
      continue;
    }
    try {
      check_files(entry->path);
      ++kept;
    } catch (const Error&) {
    }
  }
}

}  // namespace lockstep::checkpoint
