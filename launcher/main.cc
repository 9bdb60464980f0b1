#include <cstdio>
#include <cstdlib>
#include <exception>

#include "collectives/agreement.h"
#include "launcher/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/metrics/environment.h"

namespace lockstep {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 2 usage or config, 3 data, 4 checkpoint or run folder, 5 does not fit in "
    "memory,\n"
    "6 a peer or the network failed, 7 numeric failure, 70 internal, 75 preempted with checkpoint "
    "written.\n"
    "Several ranks: mpirun -n N lockstep train CONFIG ..., srun, torchrun --no-python, or, without "
    "a\n"
    "launcher, one process per rank with RANK, WORLD_SIZE, and MASTER_ADDR and MASTER_PORT or\n"
    "LOCKSTEP_RENDEZVOUS=file:///shared/path.";

// One line on stderr.
void complain(const std::string& who, const char* message) {
  std::fprintf(stderr, "lockstep: %serror: %s\n", who.c_str(), message);
  std::fflush(stderr);
  log_record(fmt::format("{}error: {}", who, message));
}

// Runs the command. An error that all ranks agreed on ends each of them in order, and rank 0
// speaks; an error of one rank alone ends the others too, since they may wait for it.
int run_command(Session& session, const Command& command) {
  const int rank = session.communicator().rank();
  const std::string who = session.communicator().size() > 1 ? fmt::format("rank {}: ", rank) : "";
  const auto fail = [&](ExitCode code, const char* message) {
    if (code == ExitCode::kPeer) session.await_turn_to_tell(message);
    complain(who, message);
    if (session.communicator().size() > 1) session.abort(static_cast<int>(code), message);
    return static_cast<int>(code);
  };
  try {
    const ExitCode code = command(session);
    // What was printed may still be on its way to a full disk.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return fail(ExitCode::kCheckpoint, "cannot write to the standard output");
    return static_cast<int>(code);
  } catch (const AgreedError& error) {
    if (rank == 0) complain("", error.what());
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kMemory, "out of memory");
  } catch (const std::exception& error) {
    return fail(ExitCode::kInternal, error.what());
  }
}

// Empty when the first argument is a command or a flag.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::string allowed;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == argv[1]) return "";
    allowed += (allowed.empty() ? "" : ", ") + command->get_name();
  }
  return fmt::format("unknown command '{}'; allowed: {}", argv[1], allowed);
}

// Parses the command line; returns what is wrong with it. --help and --version print and end the
// process.
std::string parse(CLI::App& app, int argc, char** argv) {
  const std::string unknown = unknown_command(app, argc, argv);
  if (!unknown.empty()) return unknown;
  try {
    app.parse(argc, argv);
    return "";
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) std::exit(app.exit(error));
    return error.what();
  }
}

int main_of(int argc, char** argv) {
  CLI::App app(
      "Lockstep: distributed data-parallel training with the same bits on any number of ranks.",
      "lockstep");
  app.set_version_flag("--version", std::string("lockstep ") + lockstep_version());
  app.require_subcommand(1);
  app.footer(kFooter);
  Command command;
  add_train_command(app, command);
  add_eval_command(app, command);
  add_predict_command(app, command);
  add_generate_command(app, command);
  add_plan_command(app, command);
  add_scale_command(app, command);
  add_selftest_command(app, command);
  add_bench_command(app, command);
  add_inspect_command(app, command);
  add_import_command(app, command);
  add_export_command(app, command);
  add_data_command(app, command);

  const std::string usage_error = parse(app, argc, argv);
  std::unique_ptr<Session> session;
  try {
    session = join_run();
  } catch (const Error& error) {
    complain("", error.what());
    return static_cast<int>(error.code());
  }
  return run_command(*session, [&](Session& joined) {
    // Ranks may be given different words, and environments.
    run_on_all(joined.communicator(), [&] {
      if (!usage_error.empty()) throw ConfigError("{} (see lockstep --help)", usage_error);
    });
    return command(joined);
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::main_of(argc, argv); }
