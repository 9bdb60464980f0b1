#pragma once
// A safetensors file of a checkpoint, held against its record in the state; shared by the readers
// and verify.

#include <filesystem>
#include <string>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"

namespace lockstep {

// Opens the file; throws CheckpointError unless its size and header are as recorded.
SafetensorsFile open_recorded(const std::filesystem::path& folder, const FileRecord& record);

// The F32 tensor of the record; throws CheckpointError where the file has none of this name and
// size.
const SafetensorsEntry& entry_of(const SafetensorsFile& file, const TensorRecord& record);

// Reads the tensor into out, or nowhere when out is null; false: its checksum is not `expected`.
bool read_checked(const SafetensorsFile& file,
                  const SafetensorsEntry& entry,
                  uint64_t expected,
                  float* out);

// The message for the latter: names file, tensor and bytes.
std::string damaged(const SafetensorsFile& file, const SafetensorsEntry& entry);

}  // namespace lockstep
