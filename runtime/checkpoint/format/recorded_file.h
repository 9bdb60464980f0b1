#pragma once
// Opens the safetensors files of a checkpoint and compares them with their records in the state.
// Shared by the readers and verify().

#include <filesystem>
#include <string>

#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

// Opens the file. Throws CheckpointError unless its size and header are as recorded.
SafetensorsFile open_recorded(const std::filesystem::path& folder, const FileRecord& record);

// The tensor of the record. Throws CheckpointError if the file has no F32 or BF16 tensor, and no
// blocks of moments, of this name and size.
const SafetensorsEntry& entry_of(const SafetensorsFile& file, const TensorRecord& record);

// Whether the tensor is of MomentBlocks.
bool has_blocks(const SafetensorsEntry& entry);

// Reads the tensor into `out`, or discards it if `out` is null. Returns false if its checksum is
// not `expected`.
bool read_checked(const SafetensorsFile& file,
                  const SafetensorsEntry& entry,
                  uint64_t expected,
                  float* out);
// The same for a tensor of MomentBlocks, as it is.
bool read_blocks_checked(const SafetensorsFile& file,
                         const SafetensorsEntry& entry,
                         uint64_t expected,
                         MomentBlock* out);

// The message for a tensor with a wrong checksum. It names the file, the tensor and the bytes.
std::string damaged(const SafetensorsFile& file, const SafetensorsEntry& entry);

}  // namespace lockstep::checkpoint
