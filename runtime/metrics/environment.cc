#include "runtime/metrics/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>

#include "runtime/base/cpus.h"
#include "runtime/base/json.h"
#include "runtime/base/time.h"

namespace lockstep::metrics {
namespace {

// The value of the first line "KEY<blanks>: VALUE" of a file in /proc; empty if there is none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return colon == std::string::npos || start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string utc_text(double seconds_since_1970) {
  const auto time = static_cast<std::time_t>(seconds_since_1970);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string utc_now() { return utc_text(seconds_since_1970()); }

std::string start_time_utc() {
  static const std::string text =
      utc_text(seconds_since_1970() - (now_ms() - process_begin_ms) / 1000);
  return text;
}

const char* lockstep_version() { return LOCKSTEP_VERSION; }

std::string environment_text(const EnvironmentInfo& info) {
  utsname system{};
  ::uname(&system);
  Json json;
  json["lockstep_version"] = lockstep_version();
  if (!info.git_revision.empty()) json["git_revision"] = info.git_revision;
  json["start_time"] = start_time_utc();
  json["command_line"] = info.command_line;
  json["ranks"] = info.ranks;
  json["threads"] = info.threads;
  json["host"] = system.nodename;
  if (!info.hosts.empty()) json["hosts"] = info.hosts;
  if (!info.devices.empty()) json["devices"] = info.devices;
  if (!info.simd.empty()) json["simd"] = info.simd;
  json["operating_system"] =
      fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  json["cpu_model"] = proc_value("/proc/cpuinfo", "model name");
  json["cpu_cores"] = allowed_cpus().size();
  json["memory_bytes"] = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                         static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
#ifdef __clang__
  json["compiler"] = "clang " __clang_version__;
#else
  json["compiler"] = "gcc " __VERSION__;
#endif
  int64_t planned_bytes = 0;
  for (const auto& [name, bytes] : info.memory) {
    json["planned_memory"][name] = bytes;
    planned_bytes += bytes;
  }
  if (planned_bytes > 0) json["planned_bytes"] = planned_bytes;
  json["libraries"] = Json::object();
  for (const auto& [name, version] : info.libraries) json["libraries"][name] = version;
  return json.dump({.indent = 2, .replace_invalid = true}) + "\n";
}

}  // namespace lockstep::metrics
