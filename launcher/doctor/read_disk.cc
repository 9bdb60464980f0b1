// The file system of the run folder. A network file system whose server is gone never answers, so a
// child process asks.
#include <fmt/core.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>

#include "launcher/doctor/fields.h"
#include "launcher/doctor/read_host.h"
#include "launcher/processes/in_child.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

// The type of the file system that holds the path: of the longest mount point that it is below.
std::string type_of(const fs::path& path) {
  std::ifstream mounts("/proc/self/mounts");
  std::string type, longest;
  for (std::string line; std::getline(mounts, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 3 || words[1].size() < longest.size()) continue;
    const std::string below = words[1] == "/" ? "/" : words[1] + "/";
    if (!(path.string() + "/").starts_with(below)) continue;
    longest = words[1];
    type = words[2];
  }
  return type;
}

void time_a_file(const fs::path& folder, DiskFacts& facts) {
  constexpr int kTimes = 3;  // the best counts: a disk may be busy for a moment
  const fs::path file = folder / fmt::format(".lockstep-doctor-{}", ::getpid());
  const fs::path renamed = file.string() + ".renamed";
  const std::string text(4096, 'x');
  for (int time = 0; time < kTimes; ++time) {
    const double begin_ms = now_ms();
    FileWriter writer(file);
    writer.write(text);
    writer.finish();
    const double synced_ms = now_ms();
    if (::rename(file.c_str(), renamed.c_str()) != 0) throw IoError("rename", file, errno);
    sync_folder(folder);
    const double end_ms = now_ms();
    if (time == 0 || synced_ms - begin_ms < facts.sync_ms) facts.sync_ms = synced_ms - begin_ms;
    if (time == 0 || end_ms - synced_ms < facts.rename_ms) facts.rename_ms = end_ms - synced_ms;
  }
}

// Makes the folder and those above it; returns the first that it has made, empty for none.
fs::path make_folders(const fs::path& folder) {
  fs::path first;
  for (fs::path path = folder; !fs::exists(path) && path != path.parent_path();
       path = path.parent_path())
    first = path;
  fs::create_directories(folder);
  return first;
}

DiskFacts examine(const fs::path& folder) {
  DiskFacts facts;
  facts.path = folder.string();
  try {
    const fs::path made = make_folders(folder);
    facts.type = type_of(fs::canonical(folder));
    struct statvfs room {};
    if (::statvfs(folder.c_str(), &room) == 0) {
      facts.free_bytes = static_cast<int64_t>(room.f_bavail * room.f_frsize);
      if (room.f_files > 0) facts.free_files = static_cast<int64_t>(room.f_favail);
    }
    try {
      time_a_file(folder, facts);
    } catch (const Error& error) {
      facts.failure = error.what();
    }
    std::error_code ignored;
    const std::string own = fmt::format(".lockstep-doctor-{}", ::getpid());
    fs::remove(folder / own, ignored);
    fs::remove(folder / (own + ".renamed"), ignored);
    // Only the folders that were made here, and that are empty.
    for (fs::path path = folder; !made.empty(); path = path.parent_path())
      if (!fs::remove(path, ignored) || path == made) break;
  } catch (const fs::filesystem_error& error) {
    facts.failure = fmt::format("cannot make '{}': {}", facts.path, error.code().message());
  }
  return facts;
}

}  // namespace

DiskFacts read_disk(const fs::path& folder, double limit_s) {
  const launcher::StopSignals signals;
  const fs::path path = fs::absolute(folder).lexically_normal();
  const std::optional<std::string> answer = launcher::in_child(
      [&] { return json_of(examine(path)).dump({.replace_invalid = true}); }, limit_s, signals);
  if (answer) return from_json<DiskFacts>(Json::parse(*answer));
  DiskFacts facts;
  facts.path = path.string();
  facts.failure = fmt::format("no answer within {:g} s", limit_s);
  return facts;
}

}  // namespace lockstep::doctor
