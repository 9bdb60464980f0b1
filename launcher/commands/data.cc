// lockstep data
#include "launcher/commands/commands.h"

namespace lockstep::launcher {

CommandSpec data_command() {
  return {.name = "data",
          .help = "Inspect data, pack and time images, convert text to tokens",
          .subcommands = {data_pack_command(),
                          data_inspect_command(),
                          data_bench_command(),
                          data_tokenize_command()}};
}

}  // namespace lockstep::launcher
