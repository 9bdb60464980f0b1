// The configs that come with Lockstep. Catches an example that a change of the schema or of a limit
// has broken, and one that the README's commands could not run.

#include <algorithm>
#include <filesystem>

#include "runtime/run/lanes.h"
#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

std::vector<std::filesystem::path> example_configs() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_CONFIGS)) {
    if (entry.is_regular_file() && entry.path().extension() != ".md") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(ExampleConfigs, EveryFileParsesAndComesBackEqual) {
  const auto paths = example_configs();
  EXPECT_GE(paths.size(), 8u);
  for (const auto& path : paths) {
    SCOPED_TRACE(path);
    EXPECT_EQ(path.extension(), ".textproto");
    const RunConfig config = load_config(path, {});
    EXPECT_EQ(parse_good(to_text(config)), config);
    EXPECT_NO_THROW(
        validate_for_ranks(run::choose_lanes(run::open_config(config)).opened.config, 2));
  }
}

// Run folders are named after the config: two examples must not share one.
TEST(ExampleConfigs, NamesDiffer) {
  std::vector<std::string> names;
  for (const auto& path : example_configs()) names.push_back(load_config(path, {}).name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace lockstep::config
