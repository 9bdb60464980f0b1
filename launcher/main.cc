#include <csignal>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/standard_streams.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/session.h"
#include "runtime/base/error.h"
#include "runtime/base/failure.h"
#include "runtime/base/log.h"
#include "runtime/base/passing_error.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"
#include "runtime/cpu/simd_level.h"
#include "runtime/metrics/environment.h"

namespace lockstep::launcher {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 2 usage or config, 3 data, 4 checkpoint, run folder or standard output, "
    "5 does not fit in memory,\n"
    "6 a peer or the network failed, 7 numeric failure, 70 internal, 75 preempted with checkpoint "
    "written.\n"
    "Several ranks: mpirun -n N lockstep train CONFIG ..., "
    "lockstep launch -n N -- train CONFIG ...,\n"
    "srun, torchrun --no-python, or, without a launcher, one process per rank "
    "with RANK, WORLD_SIZE,\n"
    "and MASTER_ADDR and MASTER_PORT or LOCKSTEP_RENDEZVOUS=file:///shared/path.";

// Prints one line to stderr and log.txt, before it returns.
void report_error(const std::string& who, const char* message) {
  print_log(fmt::format("lockstep: {}error: {}\n", who, escape_controls_in_lines(message)));
  log_record(fmt::format("{}error: {}", who, message));
  end_log();
}

// If fmt::print cannot write, its exception looks like an internal error. Returns the failure of
// standard output in that case; otherwise empty.
std::string output_failure_behind(ExitCode code) {
  return code == ExitCode::kInternal ? output_failure() : "";
}

// Runs the command. If all ranks have agreed on an error, each ends in order and rank 0 reports it.
// An error of this rank alone ends the others too, as they may wait for it, with the same exit
// code.
int run_command(Session& session, const Command& command) {
  const int rank = session.communicator().rank();
  const std::string who = session.communicator().size() > 1 ? fmt::format("rank {}: ", rank) : "";
  const auto fail = [&](ExitCode code, const char* message) {
    if (code == ExitCode::kPeer) {
      session.await_turn_to_report(message);
      code = reported_exit_code(message).value_or(code);
    }
    report_error(who, message);
    const int ended = exit_code_for(static_cast<int>(code), message);
    if (session.communicator().size() > 1) session.abort(ended, message);
    return ended;
  };
  try {
    const ExitCode code = command(session);
    const std::string failure = output_failure();
    if (failure.empty()) return static_cast<int>(code);
    if (code == ExitCode::kOk) return fail(ExitCode::kCheckpoint, failure.c_str());
    report_error(who, failure.c_str());  // the command's own exit code is more specific
    return static_cast<int>(code);
  } catch (const collectives::AgreedError& error) {
    const std::string output = output_failure_behind(error.code());
    if (rank == 0) report_error("", output.empty() ? error.what() : output.c_str());
    if (!output.empty()) return static_cast<int>(ExitCode::kCheckpoint);
    return exit_code_for(static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    const std::string output = output_failure_behind(failure.code);
    if (!output.empty()) return fail(ExitCode::kCheckpoint, output.c_str());
    return fail(failure.code, failure.message.c_str());
  }
}

void check_same_command(collectives::Communicator& communicator, const ParsedCommandLine& parsed) {
  std::vector<collectives::Fact> facts = {{"Lockstep's version", metrics::lockstep_version()},
                                          {"command", parsed.name}};
  for (const GivenOption& option : parsed.given) facts.push_back({option.name, option.value});
  collectives::require_same_facts(
      communicator, facts, "all ranks must be started with the same command");
}

// Called if an exception has no handler: prints the same line and exits with the same code as
// elsewhere.
[[noreturn]] void on_unhandled() {
  Failure failure{ExitCode::kInternal,
                  "internal error: the program was ended without an exception"};
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    failure = failure_of(error);
  } catch (...) {
    failure.message = "internal error: an exception of an unknown type";
  }
  report_error("", failure.message.c_str());
  const char* want_core = std::getenv("LOCKSTEP_ABORT");
  if (want_core != nullptr && std::string_view(want_core) == "1") std::abort();
  std::_Exit(exit_code_for(static_cast<int>(failure.code), failure.message));
}

std::unique_ptr<Session> join_run_for(const ParsedCommandLine& parsed) {
  try {
    return join_run();
  } catch (const Error& error) {
    if (!parsed.runs_apart || !parsed.usage_error.empty()) throw;
    return session_apart(error.what());
  }
}

CommandSpec program() {
  CommandSpec program = {
      .name = "lockstep",
      .help =
          "Lockstep: distributed data-parallel training with the same bits on any number of ranks.",
      .footer = kFooter};
  for (const auto make : kCommands) program.subcommands.push_back(make());
  return program;
}

int main_of(int argc, char** argv) {
  prepare_streams();
  std::set_terminate(on_unhandled);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f fails, as on a full disk
  std::signal(SIGCHLD, SIG_DFL);  // if it stays ignored, the end of a child could not be noticed
  ParsedCommandLine parsed;
  std::unique_ptr<Session> session;
  try {
    parsed = parse_command_line(
        program(), fmt::format("lockstep {}", metrics::lockstep_version()), argc, argv);
    session = join_run_for(parsed);
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    report_error("", failure.message.c_str());
    return exit_code_for(static_cast<int>(failure.code), failure.message);
  }
  return run_command(*session, [&](Session& joined) {
    // Ranks may be given different arguments and environments.
    collectives::run_on_all(joined.communicator(), [&] {
      if (!parsed.usage_error.empty()) throw ConfigError("{}", parsed.usage_error);
      cpu::simd_level();  // limits the kernels, none of which has run yet
    });
    check_same_command(joined.communicator(), parsed);
    return parsed.command(joined);
  });
}

}  // namespace
}  // namespace lockstep::launcher

int main(int argc, char** argv) {
  const int code = lockstep::launcher::main_of(argc, argv);
  lockstep::end_log();
  return code;
}
