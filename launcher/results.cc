#include "launcher/results.h"

#include <fmt/format.h>

#include "collectives/agreement.h"
#include "runtime/base/file.h"

namespace lockstep {

void write_result(Session& session, const std::string& path, const nlohmann::ordered_json& result) {
  if (path.empty()) return;
  run_on_root(session.communicator(), [&] { write_file_atomically(path, result.dump(2) + "\n"); });
}

std::string hash_text_of(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace lockstep
