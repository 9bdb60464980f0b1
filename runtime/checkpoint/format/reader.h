#pragma once
// Reads checkpoints, on any number of ranks, and verifies them. All data read are checked against
// the checksums of the state. Errors are CheckpointError (missing, corrupt, does not match) or
// IoError. No communication; ranks may read at the same time.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

CheckpointState read_state(const std::filesystem::path& folder);

// Reads every parameter into `flat` (fp32, at the slices' offsets). Elements between slices are not
// changed. The checkpoint must have exactly the names and shapes of `slices`; otherwise the error
// names the tensor and the shape found and expected.
void read_model(const std::filesystem::path& folder,
                const CheckpointState& state,
                const std::vector<NamedSlice>& slices,
                float* flat);

// The result of reading weights from a file.
struct WeightsRead {
  std::vector<std::string> notes;  // sentences for the log
  bool new_head = false;           // the head was not read: it keeps its values in `flat`
};

// Like read_model(), from a single safetensors file without checksums, such as initial weights from
// another program. F16 and BF16 tensors are converted, and values that are not finite are rejected.
// num_batches_tracked is skipped. If the last layer is linear, and the file lacks it or has it with
// other extents, it keeps its values in `flat`.
WeightsRead read_model_file(const std::filesystem::path& file,
                            const std::vector<NamedSlice>& slices,
                            float* flat);

// The common prefix of the names of the last layer's parameters, such as "head.", if that layer is
// linear and not the only one. It is the head, which may differ in a file. Otherwise empty.
std::string last_layer_of(const std::vector<NamedSlice>& slices);

// The same prefix if read_model_file() would not read that layer; empty if it reads all layers.
std::string new_head_of(const std::filesystem::path& file, const std::vector<NamedSlice>& slices);

// Reads tensors from an open file that is known to have all of them, possibly under other names.
void read_tensors(const SafetensorsFile& file,
                  const std::vector<NamedSlice>& slices,
                  const std::function<std::string(const std::string&)>& name_in_file,
                  float* flat);

// A part of the flat buffer to fill: elements [begin, begin + values.size()).
template <typename T>
struct MomentTargetOf {
  int64_t begin = 0;
  std::span<T> values;
};
using MomentTarget = MomentTargetOf<float>;
// The same for blocks; `begin` is a multiple of kMomentBlock.
using BlockTarget = MomentTargetOf<MomentBlock>;

// Fills `targets` with the moment (one of state.moments), whatever run wrote it. `slices` is the
// reader's layout of the flat buffer. Values are matched by parameter name, so padding, order and
// sharding may all differ from the writer's. These elements become zero: elements between slices,
// parameters that the writer had frozen, and parameters without this moment.
void read_optimizer(const std::filesystem::path& folder,
                    const CheckpointState& state,
                    const std::vector<NamedSlice>& slices,
                    const std::string& moment,
                    const std::vector<MomentTarget>& targets);

// Whether the moment is stored in blocks.
bool has_blocks(const std::filesystem::path& folder,
                const CheckpointState& state,
                const std::string& moment);
// Like read_optimizer(), for a moment that is stored in blocks, which are read as they are.
void read_moment_blocks(const std::filesystem::path& folder,
                        const CheckpointState& state,
                        const std::vector<NamedSlice>& slices,
                        const std::string& moment,
                        const std::vector<BlockTarget>& targets);

// Those of `slices` that were frozen in the checkpoint's run, and so have no moments.
std::vector<NamedSlice> frozen_slices(const CheckpointState& state,
                                      const std::vector<NamedSlice>& slices);

// Like read_model(), but reads the moving average of the weights. Frozen parameters get the weights
// themselves.
void read_average(const std::filesystem::path& folder,
                  const CheckpointState& state,
                  const std::vector<NamedSlice>& slices,
                  std::span<float> flat);

// Reads everything and returns a line for each problem, with file, tensor and byte offsets. An
// empty result means that every bit is as written. Does not throw if the checkpoint is damaged.
std::vector<std::string> verify(const std::filesystem::path& folder);

// The same for those files of `state` for which `asked_for` returns true.
std::vector<std::string> verify_files(const std::filesystem::path& folder,
                                      const CheckpointState& state,
                                      const std::function<bool(const FileRecord&)>& asked_for);

}  // namespace lockstep::checkpoint
