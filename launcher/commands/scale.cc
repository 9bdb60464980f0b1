// lockstep scale CONFIG --ranks 1,2,4
#include <fmt/core.h>

#include <csignal>
#include <memory>

#include "collectives/agree/agreement.h"
#include "launcher/command_line/train_options.h"
#include "launcher/commands/commands.h"
#include "launcher/processes/run_process.h"
#include "launcher/ranks/session.h"
#include "launcher/scale/measurement.h"
#include "runtime/base/log.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

using scale::ScaleOptions;

ExitCode run_scale(Session& session, const ScaleOptions& options) {
  // Also for the only rank of a launcher, whose variables would confuse the ranks that scale
  // starts.
  const int ranks = session.communicator().size();
  if (ranks > 1 || !session.library().empty())
    throw collectives::AgreedError(
        ExitCode::kUsage,
        fmt::format("scale: started as {} rank{} of a run; allowed: alone, without "
                    "mpirun, srun or WORLD_SIZE, since it starts the ranks itself",
                    ranks,
                    plural(ranks)));
  init_log("info", 0, 1);
  try {
    scale::measure_scaling(options);
    return ExitCode::kOk;
  } catch (const Interrupted& interrupted) {
    flush_streams();
    std::raise(interrupted.signal());  // this process ends by the same signal
    throw;
  }
}

void add_options(CommandSpec& command, ScaleOptions& options) {
  add_config_argument(command, options.common);
  command.add("--ranks",
              &options.ranks,
              "World sizes, increasing, with commas: 1,2,4,8",
              {.required = true, .also = "n np nproc world_sizes gpus num_gpus"});
  command.add("--mode",
              &options.mode,
              "strong: the config's batch on all sizes; weak: the config's batch and lanes on the "
              "smallest size, growing with the ranks; or both",
              {.show_default = true, .allowed = OneOf{{"strong", "weak", "both"}}});
  command.add("--repeats",
              &options.repeats,
              "Runs of each world size; medians are reported",
              {.show_default = true, .allowed = AtLeast{1}});
  command.add("--steps",
              &options.steps,
              "Steps of a run; the first quarter, at most 10 steps, does not count",
              {.show_default = true, .allowed = AtLeast{4}});
  command.add("--out",
              &options.out,
              "Folder of the report; by default runs/NAME-scaling, NAME the config's");
  command.add("--hostfile",
              &options.hostfile,
              "Open MPI's file of hosts, lines HOST slots=N; by default this host");
  command.add("--mpirun",
              &options.mpirun,
              "What starts the ranks, with flags of its own: \"mpirun --mca btl tcp,self\"; by "
              "default srun within an allocation of Slurm, otherwise mpirun");
  command.add("--limit",
              &options.limit_s,
              "Seconds after which a run is stopped as failed",
              {.show_default = true, .allowed = Between{1, 1e9}});
  add_on_option(command, options.on);
  add_config_options(command, options.common);
  add_device_options(command, options.common);
}

}  // namespace

CommandSpec scale_command() {
  auto options = std::make_shared<ScaleOptions>();
  CommandSpec command{
      .name = "scale",
      .help = "Measure how training scales with the number of ranks, and where the time goes"};
  add_options(command, *options);
  command.footer =
      "Started alone, it runs `lockstep train` on each world size in turn, without checkpoints\n"
      "and with almost no evaluation. The threads a rank are the same on every size: by default a\n"
      "host's CPUs divided by the max number of its ranks, or execution.threads. Open MPI gives\n"
      "each rank cores of its own if there are enough, unless --mpirun has --bind-to, --map-by or\n"
      "--oversubscribe. If it runs as root, Open MPI is told to allow that.\n"
      "Writes scaling.md, scaling.csv, scaling.json and pictures of throughput, efficiency and\n"
      "lost time (.svg, with their figures as .csv); logs and results of the runs are in runs/\n"
      "beside them. lockstep report FOLDER makes one page of all.\n"
      "Exit code 7: in TREE order the weights were not the same on all world sizes. If a run\n"
      "fails, the command ends with the run's exit code; on Ctrl-C it ends by that signal. The\n"
      "report then has the runs before, and is marked as incomplete.";
  command.run = [options](Session& session) { return run_scale(session, *options); };
  return command;
}

}  // namespace lockstep::launcher
