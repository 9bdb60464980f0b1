#include "runtime/base/error.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/recorded_file.h"
#include "runtime/checkpoint/shards.h"

namespace lockstep {

std::vector<std::string> verify(const std::filesystem::path& folder) {
  std::vector<std::string> problems;
  CheckpointState state;
  try {
    state = read_state(folder);
  } catch (const Error& error) {
    return {error.what()};
  }
  problems = find_inconsistencies(state);
  for (const FileRecord& record : state.files) {
    try {
      const SafetensorsFile file = open_recorded(folder, record);
      if (file.header().entries.size() != record.tensors.size()) {
        problems.push_back(fmt::format("{}: holds {} tensors where {} lists {}",
                                       file.path(),
                                       file.header().entries.size(),
                                       kStateFile,
                                       record.tensors.size()));
      }
      for (const TensorRecord& tensor : record.tensors) {
        const SafetensorsEntry& entry = entry_of(file, tensor);
        if (!read_checked(file, entry, tensor.checksum, nullptr)) {
          problems.push_back(damaged(file, entry));
        }
      }
    } catch (const Error& error) {
      problems.push_back(error.what());
    }
  }
  return problems;
}

}  // namespace lockstep
