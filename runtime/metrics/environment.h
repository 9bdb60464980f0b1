#pragma once
// environment.json of the run folder: machine, versions, settings.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::metrics {

// The caller's part of environment.json. The rest is read from the machine.
struct EnvironmentInfo {
  int ranks = 1;
  int threads = 1;                   // compute threads per rank
  std::vector<std::string> hosts;    // one for each rank; may be empty
  std::vector<std::string> devices;  // descriptions, one for each rank; may be empty
  std::vector<std::string> simd;     // vector units, one name for each rank; may be empty
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version
  std::string git_revision;                                    // empty: left out
  std::vector<std::string> command_line;
  // The planned memory of this rank: name, bytes.
  std::vector<std::pair<std::string, int64_t>> memory;
};

double seconds_since_1970();
// "2026-01-31T12:00:00Z".
std::string utc_text(double seconds_since_1970);
std::string utc_now();
// When this process started.
std::string start_time_utc();

// Lockstep's version, "0.1.0".
const char* lockstep_version();

// environment.json as text: lockstep_version, compiler, host, operating_system, cpu_model,
// cpu_cores, memory_bytes, planned_memory, planned_bytes, ranks, threads, hosts, devices, simd,
// libraries, git_revision, command_line, start_time (ISO 8601, UTC).
std::string environment_text(const EnvironmentInfo& info);

}  // namespace lockstep::metrics
