// The configs that come with Lockstep. Catches an example that a change of the schema or of a limit
// has broken, and one that the README's commands could not run.

#include <algorithm>
#include <filesystem>

#include "runtime/run/lanes.h"
#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

TEST(ExampleConfigs, EveryFileParsesAndComesBackEqual) {
  const auto paths = example_configs(LOCKSTEP_CONFIGS);
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
  for (const auto& path : example_configs(LOCKSTEP_CONFIGS))
    names.push_back(load_config(path, {}).name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace lockstep::config
