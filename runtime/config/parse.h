#pragma once
// Parses configs and prints them. All functions throw ConfigError: one line with the field, its
// value and what is allowed, and with file, line and column for syntax errors.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/config/image_normalisation.h"
#include "runtime/config/run_config.h"

namespace lockstep::config {

// The contents of a folder that model.from names.
struct FoundModel {
  ModelConfig model;
  ImageNormalisation images;  // the folder's image normalisation; empty: it has none
};

// Reads such a folder. `task_given`: the config sets the model's task itself, so the folder's task
// need not be supported. Throws ConfigError.
using ModelSource = std::function<FoundModel(const std::string& folder, bool task_given)>;

// Parses `text`, in protobuf text format or JSON (`origin` names it in errors), applies the
// overrides "path.to.field=value" in order (see overrides.h), and checks every limit of the schema,
// except for those that depend on the model or the data format, which check_config checks. Opens no
// data file. Rejects nesting deeper than 100 and text above 1 MiB.
RunConfig parse_config(const std::string& text,
                       const std::string& origin,
                       const std::vector<std::string>& overrides,
                       const ModelSource& model_in = {});

// The config that a run recorded as recorded_text() (paths.h). If it does not name
// execution.precision or train.lanes, or has AUTO, an older revision wrote it, whose defaults were
// FP32 and 8. Then applies the overrides.
RunConfig parse_recorded_config(const std::string& text,
                                const std::string& origin,
                                const std::vector<std::string>& overrides = {});

// The text of a config file. Throws ConfigError.
std::string read_config_text(const std::filesystem::path& path);

// The same for a file. If it cannot be read, that is a ConfigError too. `model_in` reads the folder
// of model.from.
RunConfig load_config(const std::filesystem::path& path,
                      const std::vector<std::string>& overrides,
                      const ModelSource& model_in = {});

// The config of a file as text with every field that applies. Lines that neither the file nor an
// override sets end in "# default". The text loads to the same config. Omits empty lists, and
// sections whose mere presence has a meaning.
std::string complete_text(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides,
                          const ModelSource& model_in = {});

// Checks that every rank has a lane and, if comm.residual_groups is set, a group of them.
// train.lanes must not be AUTO.
void validate_for_ranks(const RunConfig& config, int ranks);

// The resolved config as text, which parse_config maps to an equal RunConfig, floats included.
// Prints every field except those that do not apply, such as schedule.gamma with most kinds.
std::string to_text(const RunConfig& config);

}  // namespace lockstep::config
