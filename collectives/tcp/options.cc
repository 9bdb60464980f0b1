#include "collectives/tcp/options.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep {
namespace {

constexpr int kMaxRanks = 4096;
constexpr int kMaxPort = 65535;

// Reads variables and refuses what they may not be.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const {
    const char* value = environment_(name);
    return value != nullptr && *value != '\0';
  }
  std::string text(const char* name) const { return has(name) ? environment_(name) : ""; }

  int whole_number(const char* name, int low, int high) const {
    const std::string value = text(name);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || error != std::errc() || end != value.data() + value.size() ||
        number < low || number > high)
      throw ConfigError(
          "{} is '{}'; allowed: a whole number from {} to {}", name, value, low, high);
    return number;
  }
  int whole_number_or(const char* name, int low, int high, int otherwise) const {
    return has(name) ? whole_number(name, low, high) : otherwise;
  }
  double seconds_or(const char* name, double otherwise) const {
    if (!has(name)) return otherwise;
    const std::string value = text(name);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !(number > 0) ||
        !(number <= 1e9))
      throw ConfigError("{} is '{}'; allowed: seconds, more than 0", name, value);
    return number;
  }

 private:
  const Environment& environment_;
};

// Ids that launchers give their runs, and the count of restarts where they restart them under one
// id.
std::string run_of(const Reader& read) {
  std::string run;
  for (const char* name : {"LOCKSTEP_LAUNCH_ID",
                           "LOCKSTEP_GENERATION",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT",
                           "SLURM_JOB_ID",
                           "SLURM_STEP_ID",
                           "SLURM_RESTART_COUNT"}) {
    if (!read.has(name)) continue;
    if (!run.empty()) run += '.';
    run += read.text(name);
  }
  return run;
}

void read_meeting_point(const Reader& read, TcpOptions& options) {
  constexpr std::string_view kFile = "file://";
  if (read.has("LOCKSTEP_RENDEZVOUS")) {
    const std::string where = read.text("LOCKSTEP_RENDEZVOUS");
    const bool file = where.starts_with(kFile) && where.size() > kFile.size() + 1 &&
                      where[kFile.size()] == '/' && where.back() != '/';
    if (!file)
      throw ConfigError(
          "LOCKSTEP_RENDEZVOUS is '{}'; allowed: file:///absolute/path on a file system that all "
          "ranks share",
          where);
    options.file = where.substr(kFile.size());
    return;
  }
  if (!read.has("MASTER_ADDR")) {
    if (options.size == 1) return;
    throw ConfigError(
        "this is rank {} of {}, but nothing says where the ranks meet; set MASTER_ADDR and "
        "MASTER_PORT (rank 0's host and a free port there) or "
        "LOCKSTEP_RENDEZVOUS=file:///shared/path",
        options.rank,
        options.size);
  }
  options.address = read.text("MASTER_ADDR");
  options.port = read.whole_number("MASTER_PORT", 1, kMaxPort);
  const std::string store = read.text("TORCHELASTIC_USE_AGENT_STORE");
  if (store == "True" || store == "1") options.port += options.port < kMaxPort ? 1 : -1;
}

// `name` alone is one part of what a launcher says: without the other part each of its processes
// would train alone, all in one run folder.
[[noreturn]] void refuse_half(const Reader& read, const char* name, const char* missing) {
  throw ConfigError(
      "{} is '{}', but {} not set; set RANK and WORLD_SIZE for one rank of a run, neither (and no "
      "LOCAL_RANK, LOCAL_WORLD_SIZE) for a run of one process",
      name,
      read.text(name),
      missing);
}

// RANK and WORLD_SIZE, or Slurm's; false where there are neither. WORLD_SIZE=1 says by itself that
// this is the only process; RANK=0 does not, for every run has a rank 0.
bool read_ranks(const Reader& read, TcpOptions& options) {
  if (read.has("RANK") && !read.has("WORLD_SIZE")) refuse_half(read, "RANK", "WORLD_SIZE is");
  if (read.has("WORLD_SIZE")) {
    options.size = read.whole_number("WORLD_SIZE", 1, kMaxRanks);
    if (!read.has("RANK") && options.size > 1) refuse_half(read, "WORLD_SIZE", "RANK is");
    options.rank = read.whole_number_or("RANK", 0, options.size - 1, 0);
    options.local_size = read.whole_number_or("LOCAL_WORLD_SIZE", 1, options.size, -1);
    const int most = options.local_size > 0 ? options.local_size : options.size;
    options.local_rank = read.whole_number_or("LOCAL_RANK", 0, most - 1, -1);
    return true;
  }
  // A script of Slurm may say the local rank besides: Slurm's own variables say the others.
  const bool step =
      read.has("SLURM_PROCID") && read.has("SLURM_STEP_ID") && read.has("SLURM_LOCALID");
  const bool meeting_point = read.has("LOCKSTEP_RENDEZVOUS") || read.has("MASTER_ADDR");
  if (step && meeting_point) {
    const char* tasks = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    options.size = read.whole_number(tasks, 1, kMaxRanks);
    options.rank = read.whole_number("SLURM_PROCID", 0, options.size - 1);
    options.local_rank = read.whole_number("SLURM_LOCALID", 0, options.size - 1);
    return true;
  }
  for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (read.has(name) && !step) refuse_half(read, name, "RANK and WORLD_SIZE are");
  }
  if (read.has("LOCKSTEP_RENDEZVOUS"))
    throw ConfigError(
        "LOCKSTEP_RENDEZVOUS is set, but not which rank this is; set RANK and WORLD_SIZE (srun "
        "sets its own variables)");
  return false;
}

// The secret that all ranks share; without one the ranks are not asked for any.
Token read_token(const Reader& read) {
  constexpr size_t kLeast = 16, kMost = 4096;
  std::string secret = read.text("LOCKSTEP_TOKEN"), source = "LOCKSTEP_TOKEN";
  if (read.has("LOCKSTEP_TOKEN_FILE")) {
    if (!secret.empty())
      throw ConfigError("LOCKSTEP_TOKEN_FILE is set, and LOCKSTEP_TOKEN too; allowed: one of them");
    source = fmt::format("LOCKSTEP_TOKEN_FILE '{}'", read.text("LOCKSTEP_TOKEN_FILE"));
    try {
      secret = read_file(read.text("LOCKSTEP_TOKEN_FILE"), kMost);
    } catch (const IoError& error) {
      throw ConfigError("LOCKSTEP_TOKEN_FILE: {}", error.what());
    }
    secret.erase(secret.find_last_not_of(" \n\r\t") + 1);
  } else if (secret.empty()) {
    return {};
  }
  if (secret.size() < kLeast)
    throw ConfigError(
        "{} has {} characters; allowed: {} or more, random ones", source, secret.size(), kLeast);
  return Token(secret);
}

}  // namespace

void read_time_limits(const Environment& environment, TimeLimits& limits) {
  const Reader read(environment);
  limits.rendezvous_s = read.seconds_or("LOCKSTEP_RENDEZVOUS_TIMEOUT_S", limits.rendezvous_s);
  limits.operation_s = read.seconds_or("LOCKSTEP_COMM_TIMEOUT_S", limits.operation_s);
}

std::optional<TcpOptions> tcp_options_from(const Environment& environment) {
  const Reader read(environment);
  TcpOptions options;
  if (!read_ranks(read, options)) return std::nullopt;
  read_meeting_point(read, options);
  options.run = run_of(read);
  if (options.size > 1) options.token = read_token(read);
  read_time_limits(environment, options.limits);
  return options;
}

}  // namespace lockstep
