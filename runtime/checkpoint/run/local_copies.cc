#include "runtime/checkpoint/run/local_copies.h"

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <system_error>

#include "collectives/agree/agreement.h"
#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/shards.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string new_name() {
  std::random_device random;
  return to_hex(uint64_t{random()} << 32 | random());
}

}  // namespace

void LocalCopies::open(bool discard_old) {
  if (!wanted()) return;
  collectives::Communicator& communicator = run_.communicator;
  std::string name;
  collectives::run_on_root(communicator, [&] {
    run_.check_generation();
    const fs::path file = run_.run_dir / kLocalCopiesName;
    std::error_code code;
    if (discard_old || !is_there(file)) {
      fs::create_directories(run_.run_dir, code);
      name = new_name();
      // Removed first: copies under the old name must not count if the new one cannot be written.
      fs::remove(file, code);
      if (code) throw IoError("remove", file, code.value());
      // If the disk is full, the file is written later. Until then no run finds the copies, which
      // does no harm.
      run_.write_small_file(file, name);
    } else {
      name = read_file(file, 64);
    }
    uint64_t number = 0;
    if (!from_hex(name, number))
      throw CheckpointError(
          "{}: contains {} instead of 16 hexadecimal digits", file.string(), quote_name(name));
  });
  name = collectives::broadcast_text(communicator, name);
  root_ = fs::absolute(run_.config.local.folder) / ("lockstep-" + name);
  collectives::run_on_all(communicator, [&] {
    std::error_code code;
    if (fs::is_symlink(root_, code))
      throw CheckpointError("'{}' is a link, and a run does not write through links; remove it",
                            root_.string());
  });
  const std::vector<std::string> roots =
      collectives::gather_texts(communicator, host_identity() + ":" + root_.string());
  const auto me = roots.begin() + communicator.rank();
  leads_ = std::find(roots.begin(), me, *me) == me;
}

// Returns a checksum of the state if this rank finds its files undamaged; otherwise empty. A rank
// needs only its own files if the same number of ranks wrote the copy, otherwise all files.
std::string LocalCopies::usable_state(const fs::path& folder) const {
  const int rank = run_.communicator.rank(), ranks = run_.communicator.size();
  try {
    CheckpointState state = read_state(folder);
    const auto needed = [&](const FileRecord& record) {
      if (state.ranks != ranks) return true;
      return record.name == optimizer_file_name(rank, ranks) ||
             (rank == 0 && record.name == kModelFile);
    };
    const std::vector<std::string> problems = verify_files(folder, state, needed);
    if (problems.empty()) {
      state.extra.erase(kConfigKey);  // hosts may keep the data, and this run, in other folders
      state.config_hash = 0;
      return to_hex(hash_text(to_text(state)));
    }
    log_warn("skipping {}: {}", folder.string(), problems.front());
  } catch (const Error& error) {
    log_warn("skipping {}: {}", folder.string(), error.what());
  }
  return "";
}

std::optional<int64_t> LocalCopies::newest_after(int64_t step) const {
  if (!wanted()) return std::nullopt;
  std::string mine;
  collectives::run_on_all(run_.communicator, [&] {
    for (const CheckpointEntry& entry : list_checkpoints(root_)) {
      if (entry.step <= step) continue;
      const std::string state = usable_state(entry.path);
      if (!state.empty()) mine += fmt::format("{} {}\n", entry.step, state);
    }
  });
  std::map<std::pair<int64_t, std::string>, int> holders;
  for (const std::string& text : collectives::gather_texts(run_.communicator, mine)) {
    std::istringstream lines(text);
    std::pair<int64_t, std::string> copy;
    while (lines >> copy.first >> copy.second) ++holders[copy];
  }
  for (auto copy = holders.rbegin(); copy != holders.rend(); ++copy)
    if (copy->second == run_.communicator.size()) return copy->first.first;
  return std::nullopt;
}

void LocalCopies::remove() const {
  std::error_code ignored;
  if (!leads_) return;
  try {
    run_.check_generation();
  } catch (const Error&) {
    return;  // the copies belong to a later start
  }
  fs::remove_all(root_, ignored);
}

}  // namespace lockstep::checkpoint
