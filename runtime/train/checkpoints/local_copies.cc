#include "runtime/train/checkpoints/local_copies.h"

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <system_error>

#include "collectives/agreement.h"
#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/shards.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string new_name() {
  std::random_device random;
  return to_hex(uint64_t{random()} << 32 | random());
}

}  // namespace

LocalCopies::LocalCopies(const RunParts& parts) : parts_(parts) {}

void LocalCopies::open(bool anew) {
  if (!wanted()) return;
  Communicator& communicator = parts_.communicator;
  std::string name;
  run_on_root(communicator, [&] {
    parts_.check_generation();
    const fs::path file = parts_.run_dir / "local_copies";
    std::error_code code;
    if (anew || !is_there(file)) {
      fs::create_directories(parts_.run_dir, code);
      name = new_name();
      // Gone first: copies under the old name must not count if the new one cannot be written.
      fs::remove(file, code);
      if (code) throw IoError("remove", file, code.value());
      write_name(file, name);
    } else {
      name = read_file(file, 64);
    }
    uint64_t number = 0;
    if (!from_hex(name, number))
      throw CheckpointError(
          "{}: holds {} where 16 hexadecimal digits are expected", file.string(), quote_name(name));
  });
  name = broadcast_text(communicator, name);
  root_ = fs::absolute(parts_.config.checkpoint.local.folder) / ("lockstep-" + name);
  run_on_all(communicator, [&] {
    std::error_code code;
    if (fs::is_symlink(root_, code))
      throw CheckpointError("'{}' is a link, and a run writes through none; remove it",
                            root_.string());
  });
  const std::vector<std::string> roots =
      gather_texts(communicator, host_identity() + ":" + root_.string());
  const auto me = roots.begin() + communicator.rank();
  leads_ = std::find(roots.begin(), me, *me) == me;
}

// If the disk is full now, it is written later: copies under a name that nobody finds do no harm.
void LocalCopies::write_name(const fs::path& file, const std::string& name) const {
  if (parts_.folder == nullptr) return write_file_atomically(file, name);
  parts_.folder->optional_files().write(file, name);
}

// A checksum of the state where this rank finds its part unharmed; else empty. The files are those
// of the ranks that wrote them, or else all are needed.
std::string LocalCopies::usable_state(const fs::path& folder) const {
  const int rank = parts_.communicator.rank(), ranks = parts_.communicator.size();
  try {
    const CheckpointState state = read_state(folder);
    const auto needed = [&](const FileRecord& record) {
      if (state.ranks != ranks) return true;
      return record.name == optimizer_file_name(rank, ranks) ||
             (rank == 0 && record.name == kModelFile);
    };
    const std::vector<std::string> problems = verify_files(folder, state, needed);
    if (problems.empty()) return to_hex(hash_text(to_text(state)));
    log_warn("passing over {}: {}", folder.string(), problems.front());
  } catch (const Error& error) {
    log_warn("passing over {}: {}", folder.string(), error.what());
  }
  return "";
}

std::optional<int64_t> LocalCopies::newest_after(int64_t step) const {
  if (!wanted()) return std::nullopt;
  std::string mine;
  run_on_all(parts_.communicator, [&] {
    for (const CheckpointEntry& entry : list_checkpoints(root_)) {
      if (entry.step <= step) continue;
      const std::string state = usable_state(entry.path);
      if (!state.empty()) mine += fmt::format("{} {}\n", entry.step, state);
    }
  });
  std::map<std::pair<int64_t, std::string>, int> holders;
  for (const std::string& text : gather_texts(parts_.communicator, mine)) {
    std::istringstream lines(text);
    std::pair<int64_t, std::string> copy;
    while (lines >> copy.first >> copy.second) ++holders[copy];
  }
  for (auto copy = holders.rbegin(); copy != holders.rend(); ++copy)
    if (copy->second == parts_.communicator.size()) return copy->first.first;
  return std::nullopt;
}

void LocalCopies::remove() const {
  std::error_code ignored;
  if (!leads_) return;
  try {
    parts_.check_generation();
  } catch (const Error&) {
    return;  // they are a later start's
  }
  fs::remove_all(root_, ignored);
}

}  // namespace lockstep
