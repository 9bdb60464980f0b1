// Catches: a restart with another config than the first start, a changed file or program that
// nobody is told of, and one that only looks changed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/command_line/handed_config.h"
#include "launcher/launch/given_files.h"
#include "launcher/launch/program.h"
#include "runtime/base/error.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

class Inputs : public ::testing::Test {
 protected:
  Inputs() {
    std::string name = fs::temp_directory_path() / "lockstep-inputs-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Inputs() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  fs::path folder_;
};

TEST(HandedConfig, ArrivesAsItWas) {
  std::string text = "# caf\xe9\nname: \"x=y\"\n";
  for (const char c : {'a', 'b', 'c'}) text.append(300000, c);
  for (const std::string& config : {std::string(), text}) {
    auto file = launcher::config_in_memory(config);
    const std::string variable = launcher::config_variable(*file);
    const size_t equals = variable.find('=');
    EXPECT_FALSE(launcher::handed_config());
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    for (int time = 0; time < 2; ++time) EXPECT_EQ(launcher::handed_config(), config);
    file.reset();
    EXPECT_THROW(launcher::handed_config(), ConfigError)
        << "it was copied to where there is no such file";
    ::unsetenv(variable.substr(0, equals).c_str());
  }
}

TEST_F(Inputs, ChangesOfFilesAreToldOnce) {
  const fs::path config = write("config", "a: 1"),
                 large = write("large", std::string(2 << 20, 'x'));
  fs::create_directory(folder_ / "model");
  GivenFiles files;
  files.add(config, "the config", "it is kept");
  files.add(large, "data.train", "");
  files.add(folder_ / "model", "model.from", "");
  files.add(folder_ / "absent", "--hostfile", "");
  EXPECT_TRUE(files.changes(files.states()).empty());
  write("config", "a: 1");
  EXPECT_TRUE(files.changes(files.states()).empty()) << "written again, with the same text";
  write("config", "a: 2");
  write("model/weights", "1");
  fs::resize_file(large, 3 << 20);
  write("absent", "a slots=2");
  const std::vector<std::string> told = files.changes(files.states());
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[0],
            "'" + config.string() + "' (the config) has changed since the first start: it is kept");
  EXPECT_TRUE(files.changes(files.states()).empty());
  fs::remove(config);
  EXPECT_EQ(files.changes(files.states()).size(), 1u);
}

TEST_F(Inputs, TheConfigsFilesAreThoseThatAreThere) {
  const fs::path network = write("net.onnx", "1"), table = write("data/train.csv", "1");
  write("run", "not what the field `name` means");
  RunConfig config;
  config.name = (folder_ / "run").string();
  OnnxConfig onnx;
  onnx.file = network.string();
  config.model = onnx;
  config.data.dir = (folder_ / "data").string();
  TableConfig source;
  source.train = "train.csv";
  source.eval = "absent.csv";
  config.data.source = source;
  GivenFiles files;
  files.add_named_in(config);
  for (const char* name : {"net.onnx", "data/train.csv", "run"}) write(name, "22");
  const std::vector<std::string> told = files.changes(files.states());
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NE(told[0].find("model.onnx.file") == std::string::npos ? told[1].find("model.onnx.file")
                                                                 : size_t{0},
            std::string::npos);
}

TEST_F(Inputs, ABuildIsTheContentOfProgramAndLibraries) {
  const fs::path program = write("bin/lockstep", "1");
  write("bin/liblockstep_cuda.so", "2");
  write("lib/lockstep/libmpi.so.40", "3");
  write("bin/unrelated.so", "4");
  const std::string build = build_at(program);
  write("bin/lockstep", "1");
  write("bin/unrelated.so", "5");
  EXPECT_EQ(difference_of_builds(build, build_at(program)), "");
  write("bin/lockstep", "12");
  EXPECT_EQ(difference_of_builds(build, build_at(program)), "the program is from another build");
  write("bin/lockstep", "1");
  write("bin/liblockstep_cuda.so", "22");
  EXPECT_EQ(difference_of_builds(build, build_at(program)),
            "liblockstep_cuda.so is from another build");
  fs::remove(folder_ / "bin/liblockstep_cuda.so");
  EXPECT_EQ(difference_of_builds(build, build_at(program)), "liblockstep_cuda.so is missing");
  write("bin/liblockstep_cuda.so", "2");
  write("lib/lockstep/libmpi.so.40", "33");
  EXPECT_EQ(difference_of_builds(build, build_at(program)), "libmpi.so.40 is from another build");
  write("lib/lockstep/libmpi.so.40", "3");
  fs::remove(program);
  EXPECT_EQ(difference_of_builds(build, build_at(program)), "") << "a disk that does not answer";
  EXPECT_NE(difference_of_builds(build, ""), "");
  EXPECT_EQ(difference_of_builds(running_build(), build_at(program_to_start())), "");
}

}  // namespace
}  // namespace lockstep::launch
