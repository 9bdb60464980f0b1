#include "collectives/tcp/options.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace lockstep::collectives {
namespace {

constexpr int kMaxRanks = 4096;
constexpr int kMaxPort = 65535;

// Reads variables and rejects values that are not allowed.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const {
    const char* value = environment_(name);
    return value != nullptr && *value != '\0';
  }
  std::string text(const char* name) const { return has(name) ? environment_(name) : ""; }

  int integer(const char* name, int low, int high) const {
    const std::string value = text(name);
    const auto number = parse_as<int>(value);
    if (!number || *number < low || *number > high)
      throw ConfigError(
          "{} is '{}'; allowed: a whole number from {} to {}", name, value, low, high);
    return *number;
  }
  int integer_or(const char* name, int low, int high, int otherwise) const {
    return has(name) ? integer(name, low, high) : otherwise;
  }
  double seconds_or(const char* name, double otherwise) const {
    if (!has(name)) return otherwise;
    const std::string value = text(name);
    const double number = parse_as<double>(value).value_or(0);
    if (!(number > 0) || !(number <= 1e9))
      throw ConfigError("{} is '{}'; allowed: seconds, more than 0", name, value);
    return number;
  }

 private:
  const Environment& environment_;
};

// Identifies the run, by the ids that launchers give their runs and the number of restarts, for
// launchers that restart under the same id.
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

void read_rendezvous(const Reader& read, TcpOptions& options) {
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
        "this is rank {} of {}, but no rendezvous is given; set MASTER_ADDR and MASTER_PORT (rank "
        "0's host and a free port there) or LOCKSTEP_RENDEZVOUS=file:///shared/path",
        options.rank,
        options.size);
  }
  options.address = read.text("MASTER_ADDR");
  options.port = read.integer("MASTER_PORT", 1, kMaxPort);
  const std::string store = read.text("TORCHELASTIC_USE_AGENT_STORE");
  if (store == "True" || store == "1") options.port += options.port < kMaxPort ? 1 : -1;
}

// Throws if a launcher's variables are incomplete: otherwise each of its processes would train on
// its own, all in one run folder.
[[noreturn]] void throw_incomplete(const Reader& read, const char* name, const char* missing) {
  throw ConfigError(
      "{} is '{}', but {} not set; set RANK and WORLD_SIZE for one rank of a run, neither (and no "
      "LOCAL_RANK, LOCAL_WORLD_SIZE) for a run of one process",
      name,
      read.text(name),
      missing);
}

// Reads RANK and WORLD_SIZE, or Slurm's variables; returns false if there are neither. WORLD_SIZE=1
// alone means that this is the only process. RANK=0 does not mean that, as every run has a rank 0.
bool read_ranks(const Reader& read, TcpOptions& options) {
  if (read.has("RANK") && !read.has("WORLD_SIZE")) throw_incomplete(read, "RANK", "WORLD_SIZE is");
  if (read.has("WORLD_SIZE")) {
    options.size = read.integer("WORLD_SIZE", 1, kMaxRanks);
    if (!read.has("RANK") && options.size > 1) throw_incomplete(read, "WORLD_SIZE", "RANK is");
    options.rank = read.integer_or("RANK", 0, options.size - 1, 0);
    options.local_size = read.integer_or("LOCAL_WORLD_SIZE", 1, options.size, -1);
    const int local_ranks = options.local_size > 0 ? options.local_size : options.size;
    options.local_rank = read.integer_or("LOCAL_RANK", 0, local_ranks - 1, -1);
    return true;
  }
  // A Slurm script may set LOCAL_RANK besides; Slurm's own variables have the rest.
  const bool step =
      read.has("SLURM_PROCID") && read.has("SLURM_STEP_ID") && read.has("SLURM_LOCALID");
  const bool rendezvous_point = read.has("LOCKSTEP_RENDEZVOUS") || read.has("MASTER_ADDR");
  if (step && rendezvous_point) {
    const char* tasks = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    options.size = read.integer(tasks, 1, kMaxRanks);
    options.rank = read.integer("SLURM_PROCID", 0, options.size - 1);
    options.local_rank = read.integer("SLURM_LOCALID", 0, options.size - 1);
    return true;
  }
  for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (read.has(name) && !step) throw_incomplete(read, name, "RANK and WORLD_SIZE are");
  }
  if (read.has("LOCKSTEP_RENDEZVOUS"))
    throw ConfigError(
        "LOCKSTEP_RENDEZVOUS is set, but not which rank this is; set RANK and WORLD_SIZE (srun "
        "sets its own variables)");
  return false;
}

// Reads the secret that all ranks share. Without one the ranks are not authenticated.
Token read_token(const Reader& read) {
  constexpr size_t kMinCharacters = 16, kMax = 4096;
  std::string secret = read.text("LOCKSTEP_TOKEN"), source = "LOCKSTEP_TOKEN";
  if (read.has("LOCKSTEP_TOKEN_FILE")) {
    if (!secret.empty())
      throw ConfigError("LOCKSTEP_TOKEN_FILE and LOCKSTEP_TOKEN are both set; set one of them");
    source = fmt::format("LOCKSTEP_TOKEN_FILE '{}'", read.text("LOCKSTEP_TOKEN_FILE"));
    try {
      secret = read_file(read.text("LOCKSTEP_TOKEN_FILE"), kMax);
    } catch (const IoError& error) {
      throw ConfigError("LOCKSTEP_TOKEN_FILE: {}", error.what());
    }
    secret.erase(secret.find_last_not_of(" \n\r\t") + 1);
  } else if (secret.empty()) {
    return {};
  }
  if (secret.size() < kMinCharacters)
    throw ConfigError("{} has {} characters; allowed: {} or more, chosen at random",
                      source,
                      secret.size(),
                      kMinCharacters);
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
  read_rendezvous(read, options);
  options.run = run_of(read);
  if (options.size > 1) options.token = read_token(read);
  read_time_limits(environment, options.limits);
  return options;
}

}  // namespace lockstep::collectives
