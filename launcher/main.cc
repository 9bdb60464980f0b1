#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "collectives/agreement.h"
#include "launcher/commands/commands.h"
#include "launcher/ranks/session.h"
#include "launcher/standard_streams.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/metrics/environment.h"

namespace lockstep {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 2 usage or config, 3 data, 4 checkpoint or run folder, 5 does not fit in "
    "memory,\n"
    "6 a peer or the network failed, 7 numeric failure, 70 internal, 75 preempted with checkpoint "
    "written.\n"
    "Several ranks: mpirun -n N lockstep train CONFIG ..., lockstep launch -n N -- train CONFIG ...,\n"
    "srun, torchrun --no-python, or, without a launcher, one process per rank with RANK, WORLD_SIZE,\n"
    "and MASTER_ADDR and MASTER_PORT or LOCKSTEP_RENDEZVOUS=file:///shared/path.";

// One line on stderr.
void complain(const std::string& who, const char* message) {
  const std::string text = escape_controls_in_lines(message);
  std::fprintf(stderr, "lockstep: %serror: %s\n", who.c_str(), text.c_str());
  std::fflush(stderr);
  log_record(fmt::format("{}error: {}", who, message));
}

// Runs the command. An error that all ranks agreed on ends each of them in order, and rank 0
// speaks; an error of one rank alone ends the others too, since they may wait for it, and with its
// code.
int run_command(Session& session, const Command& command) {
  const int rank = session.communicator().rank();
  const std::string who = session.communicator().size() > 1 ? fmt::format("rank {}: ", rank) : "";
  const auto fail = [&](ExitCode code, const char* message) {
    if (code == ExitCode::kPeer) {
      session.await_turn_to_tell(message);
      code = exit_code_told(message).value_or(code);
    }
    complain(who, message);
    if (session.communicator().size() > 1) session.abort(static_cast<int>(code), message);
    return static_cast<int>(code);
  };
  try {
    const ExitCode code = command(session);
    // What was printed may still be on its way to a full disk. Where its reader has gone, nobody
    // misses it.
    if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && !nobody_reads_output())
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

void check_same_command(Communicator& communicator, const ParsedCommandLine& parsed) {
  std::vector<Fact> facts = {{"Lockstep's version", lockstep_version()}, {"command", parsed.name}};
  for (const GivenOption& option : parsed.given) facts.push_back({option.name, option.value});
  check_same_facts(communicator, facts, "all ranks must be started with the same command");
}

CommandSpec program() {
  return {
      .name = "lockstep",
      .help =
          "Lockstep: distributed data-parallel training with the same bits on any number of ranks.",
      .footer = kFooter,
      .subcommands = {train_command(),
                      replay_command(),
                      eval_command(),
                      predict_command(),
                      generate_command(),
                      sample_command(),
                      plan_command(),
                      launch_command(),
                      scale_command(),
                      selftest_command(),
                      bench_command(),
                      inspect_command(),
                      import_command(),
                      export_command(),
                      data_command(),
                      config_command()}};
}

int main_of(int argc, char** argv) {
  open_missing_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f fails, as on a full disk
  const ParsedCommandLine parsed =
      parse_command_line(program(), fmt::format("lockstep {}", lockstep_version()), argc, argv);
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
      if (!parsed.usage_error.empty())
        throw ConfigError("{} (see lockstep --help)", parsed.usage_error);
    });
    check_same_command(joined.communicator(), parsed);
    return parsed.command(joined);
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::main_of(argc, argv); }
