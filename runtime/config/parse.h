#pragma once
// Config text -> RunConfig, and back. All functions throw ConfigError: one line that names the
// field, its value and what is allowed, with file, line and column for syntax errors.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/config/image_normalisation.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// What a folder that model.from names holds.
struct FoundModel {
  ModelConfig model;
  ImageNormalisation images;  // that the folder tells to normalise with; empty: it does not
};

// Reads such a folder. `task_given`: the config says itself what the model's task is, so that the
// folder may be for one that is not here. Throws ConfigError.
using ModelSource = std::function<FoundModel(const std::string& folder, bool task_given)>;

// Parses text-format `text` (`origin` names it in errors), applies overrides "path.to.field=value"
// in order and validates every limit that the schema states, but for those that need to know the
// model or the format of the data: check_model and check_data do. Opens no data file.
//
// In an override text is taken literally, an enum by its name in any case; a repeated field is
// replaced by a comma-separated list (nothing clears it); sections on the path are created, which
// switches a oneof ("data.table.train=a.csv"); "optimizer.adamw={}" resets a section to its
// defaults. Refuses nesting deeper than 100 and text above 1 MiB.
RunConfig parse_config(const std::string& text,
                       const std::string& origin,
                       const std::vector<std::string>& overrides,
                       const ModelSource& model_in = {});

// The text of a config file. Throws ConfigError.
std::string read_config_text(const std::filesystem::path& path);

// The same for a file; one that cannot be read is a ConfigError too. `model_in` reads what model.from
// names (expand.h).
RunConfig load_config(const std::filesystem::path& path,
                      const std::vector<std::string>& overrides,
                      const ModelSource& model_in = {});

// The config of a file as text, with every field written out that applies; what neither the file nor
// an override says ends in "# default". It loads to the same config. Empty lists are left out, and
// sections that mean something by being given.
std::string complete_text(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides,
                          const ModelSource& model_in = {});

// Checks that need the number of ranks: lanes can be shared evenly by them, and their groups with
// residuals too.
void validate_for_ranks(const RunConfig& config, int ranks);

// The resolved config as text that parse_config maps to an equal RunConfig, floats included. Every
// field is written out, except schedule.gamma and schedule.power where the kind does not use them.
std::string to_text(const RunConfig& config);

}  // namespace lockstep
