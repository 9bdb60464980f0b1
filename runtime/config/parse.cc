#include "runtime/config/parse.h"

#include <algorithm>
#include <cerrno>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/config/expand.h"
#include "runtime/config/from_proto.h"
#include "runtime/config/limits.h"
#include "runtime/config/names.h"
#include "runtime/config/overrides.h"
#include "runtime/config/text.h"
#include "runtime/config/to_proto.h"
#include "runtime/config/validate.h"

namespace lockstep::config {

namespace {

constexpr const char* kRunConfig = "config.textproto";  // of a run folder

std::unique_ptr<google::protobuf::Message> read_message(const std::string& text,
                                                        const std::string& origin,
                                                        const std::vector<std::string>& overrides,
                                                        const ModelSource& model_in) {
  auto message = parse_text(text, origin);
  for (const std::string& assignment : overrides) apply_override(assignment, message.get());
  expand_model(model_in, message.get());
  return message;
}

RunConfig valid_config(const google::protobuf::Message& message) {
  RunConfig config = from_proto(message);
  validate(config);
  return config;
}

// The --set for as many ranks: the fewest lanes that they share evenly or, if none of these divides
// the batch, also the fewest that do.
std::string lanes_for(const TrainConfig& train, int ranks) {
  const int64_t limit = std::min(train.global_batch, integer_limit_of("train.lanes").high);
  int64_t uneven = 0;
  for (int64_t lanes = ranks; lanes <= limit; ++lanes) {
    if (train.global_batch % lanes != 0) continue;
    if (lanes % ranks == 0) return fmt::format("--set train.lanes={}", lanes);
    if (uneven == 0) uneven = lanes;
  }
  const int64_t batch = (train.global_batch + ranks - 1) / ranks * ranks;
  return fmt::format(
      "{}--set train.lanes={} --set train.global_batch={}",
      uneven == 0 ? "" : fmt::format("--set train.lanes={} (shared unevenly), or ", uneven),
      ranks,
      batch);
}

}  // namespace

std::string read_config_text(const std::filesystem::path& path) {
  try {
    return read_file(path, kMaxConfigBytes);
  } catch (const IoError& error) {
    if (error.error_number() == EFBIG) {
      throw ConfigError(
          "{}: too large for a config; allowed: at most {} bytes", path.string(), kMaxConfigBytes);
    }
    if (error.error_number() == EISDIR && is_there(path / kRunConfig))
      throw ConfigError("config '{}' is a folder; did you mean '{}'?",
                        path.string(),
                        (path / kRunConfig).string());
    if (error.error_number() == EISDIR)
      throw ConfigError("config '{}' is a folder; allowed: the path of a config file",
                        path.string());
    std::string message = error.what();  // "cannot open 'x': No such file or directory"
    message.insert(std::min(message.find('\''), message.size()), "config ");
    throw ConfigError("{}", message);
  }
}

RunConfig parse_config(const std::string& text,
                       const std::string& origin,
                       const std::vector<std::string>& overrides,
                       const ModelSource& model_in) {
  return valid_config(*read_message(text, origin, overrides, model_in));
}

RunConfig parse_recorded_config(const std::string& text, const std::string& origin) {
  RunConfig config = parse_config(text, origin, {});
  if (config.execution.precision == Precision::kAuto) config.execution.precision = Precision::kFp32;
  if (config.train.lanes == 0) config.train.lanes = 8;
  return config;
}

RunConfig load_config(const std::filesystem::path& path,
                      const std::vector<std::string>& overrides,
                      const ModelSource& model_in) {
  return parse_config(read_config_text(path), path.string(), overrides, model_in);
}

std::string complete_text(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides,
                          const ModelSource& model_in) {
  const auto given = read_message(read_config_text(path), path.string(), overrides, model_in);
  return print_with_origins(*to_proto(valid_config(*given), Sections::kAll), *given);
}

void validate_for_ranks(const RunConfig& config, int ranks) {
  const int64_t lanes = config.train.lanes;
  if (ranks >= 1 && ranks <= lanes) return require_residual_groups(config, ranks);
  throw ConfigError(
      "train.lanes: {} lane{} cannot be shared by {} ranks; allowed: up to {} rank{}{}",
      lanes,
      plural(lanes),
      ranks,
      lanes,
      plural(lanes),
      ranks < 1 ? "" : ", or " + lanes_for(config.train, ranks));
}

std::string to_text(const RunConfig& config) { return print_text(*to_proto(config)); }

}  // namespace lockstep::config
