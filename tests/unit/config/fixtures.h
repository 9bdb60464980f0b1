#pragma once
// Two small good configs, and the check that an input is refused in the promised form.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/parse.h"
#include "runtime/run/config_checks.h"

namespace lockstep::config {

inline const std::string kMlpText = R"(model { mlp { hidden: [32, 16] } }
data { table { train: "a.csv" target: "y" } }
train { steps: 100 }
optimizer { sgd { momentum: 0.9 } }
)";

inline const std::string kGptText = R"(model { gpt { width: 64 heads: 4 } }
data { text { train: "a.txt" } }
train { steps: 100 }
optimizer { adamw {} }
)";

// The configs in `folder`, without the hardware files.
inline std::vector<std::filesystem::path> example_configs(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    if (entry.is_regular_file() && path.extension() != ".md" &&
        path.parent_path().filename() != "hardware")
      paths.push_back(path);
  }
  std::ranges::sort(paths);
  return paths;
}

inline RunConfig parse_good(const std::string& text,
                            const std::vector<std::string>& overrides = {}) {
  const run::OpenedConfig opened = run::open_config(parse_config(text, "run.textproto", overrides));
  run::check_config(opened);
  return opened.config;
}

// The message with which the input is refused; a test failure and "" when it is not refused, when
// the error is not a ConfigError, or when the message is not one line.
inline std::string refusal(const std::string& text,
                           const std::vector<std::string>& overrides = {}) {
  try {
    parse_good(text, overrides);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    const std::string message = error.what();
    EXPECT_EQ(message.find_first_of("\r\n"), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u) << message;
    return message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a ConfigError: " << error.what();
    return "";
  }
  ADD_FAILURE() << "accepted:\n" << text;
  return "";
}

inline void expect_contains(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
}

}  // namespace lockstep::config
