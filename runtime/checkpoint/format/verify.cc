#include "runtime/base/error.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/recorded_file.h"
#include "runtime/checkpoint/format/shards.h"

namespace lockstep::checkpoint {

std::vector<std::string> verify_files(const std::filesystem::path& folder,
                                      const CheckpointState& state,
                                      const std::function<bool(const FileRecord&)>& asked_for) {
  std::vector<std::string> problems = find_inconsistencies(state);
  for (const FileRecord& record : state.files) {
    if (!asked_for(record)) continue;
    try {
      const SafetensorsFile file = open_recorded(folder, record);
      if (file.header().entries.size() != record.tensors.size()) {
        problems.push_back(fmt::format("{}: has {} tensors, but {} lists {}",
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

std::vector<std::string> verify(const std::filesystem::path& folder) {
  try {
    return verify_files(folder, read_state(folder), [](const FileRecord&) { return true; });
  } catch (const Error& error) {
    return {error.what()};
  }
}

}  // namespace lockstep::checkpoint
