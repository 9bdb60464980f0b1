// Catches: an environment that is read wrongly, or a bad value that is not refused by name.
#include "collectives/tcp/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "runtime/base/error.h"
#include "tests/reference/temporary_folder.h"
#include "tests/reference/text_checks.h"

namespace lockstep::collectives {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<TcpOptions> read(const Variables& variables) {
  return tcp_options_from([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const Variables& variables) {
  try {
    read(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "abc"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kSlurm = {{"SLURM_JOB_ID", "17"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "5"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_LOCALID", "1"}};

TEST(TcpOptions, NoRunWithoutVariablesThatSpeakOfOne) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}));
  EXPECT_FALSE(read(kSlurm));  // no meeting point: MPI may see the step
  EXPECT_FALSE(read(with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, {{"MASTER_ADDR", "a"}})));
}

TEST(TcpOptions, AStartOfLaunchNamesItsRun) {
  EXPECT_EQ(
      read(with(kTorchrun, {{"LOCKSTEP_LAUNCH_ID", "cafe"}, {"LOCKSTEP_GENERATION", "7"}}))->run,
      "cafe.7.abc.2");
}

TEST(TcpOptions, RankAndWorldSize) {
  const auto options = read(kTorchrun);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->rank, 3);
  EXPECT_EQ(options->size, 4);
  EXPECT_EQ(options->local_rank, 1);
  EXPECT_EQ(options->local_size, 2);
  EXPECT_EQ(options->address, "node1");
  EXPECT_EQ(options->port, 29500);
  EXPECT_EQ(options->file, "");
  EXPECT_EQ(options->run, "abc.2");
  EXPECT_EQ(options->limits.rendezvous_s, 300);
  EXPECT_EQ(options->limits.operation_s, 1800);
}

TEST(TcpOptions, PortThatTorchrunsStoreHoldsIsLeftToIt) {
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->port, 29501);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->port, 29500);
}

TEST(TcpOptions, SlurmStepWithAMeetingPoint) {
  const auto options = read(with(kSlurm, {{"LOCKSTEP_RENDEZVOUS", "file:///shared/meet"}}));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->rank, 5);
  EXPECT_EQ(options->size, 8);
  EXPECT_EQ(options->local_rank, 1);
  EXPECT_EQ(options->local_size, -1);
  EXPECT_EQ(options->file, "/shared/meet");
  EXPECT_EQ(options->run, "17.0");
  // The job has more tasks than this step.
  EXPECT_EQ(
      read(
          with(kSlurm,
               {{"SLURM_STEP_NUM_TASKS", "6"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}))
          ->size,
      6);
}

TEST(TcpOptions, OneRankNeedsNoMeetingPoint) {
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->size, 1);
  EXPECT_EQ(read({{"WORLD_SIZE", "1"}})->rank, 0);  // who is alone need not say which rank it is
}

// Otherwise each of several processes trains alone, all in one run folder.
TEST(TcpOptions, HalfOfWhatALauncherSaysIsRefused) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"RANK", "7"}}, "RANK is '7', but WORLD_SIZE is not set"},
      {{{"RANK", "0"}}, "RANK is '0', but WORLD_SIZE is not set"},
      {{{"RANK", "0"}, {"LOCAL_RANK", "0"}}, "RANK is '0', but WORLD_SIZE is not set"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is '2', but RANK is not set"},
      {{{"WORLD_SIZE", "2"}, {"RANK", ""}}, "WORLD_SIZE is '2', but RANK is not set"},
      {{{"LOCAL_RANK", "1"}}, "LOCAL_RANK is '1', but RANK and WORLD_SIZE are not set"},
      {{{"LOCAL_WORLD_SIZE", "2"}},
       "LOCAL_WORLD_SIZE is '2', but RANK and WORLD_SIZE are not set"}};
  for (const auto& [variables, message] : cases) {
    const std::string error = refusal(variables);
    EXPECT_TRUE(error.starts_with(message)) << error;
  }
  EXPECT_FALSE(read(with(kSlurm, {{"LOCAL_RANK", "1"}})));  // Slurm says the rest
}

TEST(TcpOptions, BadValuesAreRefusedByName) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"RANK", "4"}}, "RANK is '4'; allowed: a whole number from 0 to 3"},
      {{{"RANK", "-1"}}, "RANK is '-1'; allowed: a whole number from 0 to 3"},
      {{{"RANK", "1x"}}, "RANK is '1x'; allowed: a whole number from 0 to 3"},
      {{{"WORLD_SIZE", "0"}}, "WORLD_SIZE is '0'; allowed: a whole number from 1 to 4096"},
      {{{"LOCAL_RANK", "2"}}, "LOCAL_RANK is '2'; allowed: a whole number from 0 to 1"},
      {{{"LOCAL_WORLD_SIZE", "5"}}, "LOCAL_WORLD_SIZE is '5'; allowed: a whole number from 1 to 4"},
      {{{"MASTER_PORT", "70000"}},
       "MASTER_PORT is '70000'; allowed: a whole number from 1 to 65535"},
      {{{"MASTER_PORT", ""}}, "MASTER_PORT is ''; allowed: a whole number from 1 to 65535"},
      {{{"LOCKSTEP_COMM_TIMEOUT_S", "0"}},
       "LOCKSTEP_COMM_TIMEOUT_S is '0'; allowed: seconds, more than 0"},
      {{{"LOCKSTEP_RENDEZVOUS_TIMEOUT_S", "nan"}},
       "LOCKSTEP_RENDEZVOUS_TIMEOUT_S is 'nan'; allowed: seconds, more than 0"}};
  for (const auto& [change, message] : cases) EXPECT_EQ(refusal(with(kTorchrun, change)), message);
  for (const char* bad :
       {"/shared/meet", "file://relative", "file:///", "file:///folder/", "tcp://a:1"}) {
    const std::string error = refusal(with(kTorchrun, {{"LOCKSTEP_RENDEZVOUS", bad}}));
    EXPECT_TRUE(error.starts_with("LOCKSTEP_RENDEZVOUS is '" + std::string(bad) +
                                  "'; allowed: file:///absolute/path"))
        << error;
  }
  EXPECT_CONTAINS(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "set MASTER_ADDR and MASTER_PORT");
  EXPECT_CONTAINS(refusal({{"LOCKSTEP_RENDEZVOUS", "file:///shared/meet"}}),
                  "set RANK and WORLD_SIZE");
}

TEST(TcpOptions, TokenIsAVariableOrAFile) {
  EXPECT_FALSE(read(kTorchrun)->token.is_set());
  EXPECT_EQ(read(with(kTorchrun, {{"LOCKSTEP_TOKEN", "0123456789abcdef"}}))->token.secret(),
            "0123456789abcdef");
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() / "token";
  std::ofstream(file) << "0123456789abcdef\n";
  EXPECT_EQ(read(with(kTorchrun, {{"LOCKSTEP_TOKEN_FILE", file}}))->token.secret(),
            "0123456789abcdef");
  EXPECT_CONTAINS(refusal(with(kTorchrun, {{"LOCKSTEP_TOKEN", "short"}})),
                  "LOCKSTEP_TOKEN has 5 characters; allowed: 16 or more");
  EXPECT_CONTAINS(refusal(with(kTorchrun, {{"LOCKSTEP_TOKEN_FILE", file + ".absent"}})),
                  "LOCKSTEP_TOKEN_FILE: ");
  EXPECT_CONTAINS(
      refusal(
          with(kTorchrun, {{"LOCKSTEP_TOKEN", "0123456789abcdef"}, {"LOCKSTEP_TOKEN_FILE", file}})),
      "are both set; set one of them");
}

}  // namespace
}  // namespace lockstep::collectives
