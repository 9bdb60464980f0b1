#pragma once
// Reads checkpoints, on any number of ranks, and verifies them. Everything read is checked against
// the checksums of the state. Errors are CheckpointError (missing, corrupt, does not fit) or
// IoError. No communication; ranks may read at the same time.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"

namespace lockstep {

CheckpointState read_state(const std::filesystem::path& folder);

// Reads every parameter into flat (fp32, at the slices' offsets); elements between slices are left
// alone. Names and shapes of the checkpoint must be exactly those of `slices`: the error names the
// tensor, what was found and what was expected.
void read_model(const std::filesystem::path& folder,
                const CheckpointState& state,
                const std::vector<NamedSlice>& slices,
                float* flat);

// What a person should know of weights from elsewhere that were read.
struct WeightsRead {
  std::vector<std::string> notes;  // a sentence each
  bool new_head = false;           // the head keeps what was there
};

// The same from a single safetensors file without checksums, such as initial weights from
// elsewhere. F16 and BF16 tensors are converted, and values that are not finite refused;
// num_batches_tracked is passed over. A last layer, if it is linear, that the file lacks or has with
// other extents keeps what `flat` has.
WeightsRead read_model_file(const std::filesystem::path& file,
                            const std::vector<NamedSlice>& slices,
                            float* flat);

// What begins the names of the last layer's parameters, where that is a linear layer and not the only
// one: the head, which may be another one in a file. Empty: none.
std::string last_layer_of(const std::vector<NamedSlice>& slices);

// The same, where read_model_file() would keep what `flat` has of them; empty: it reads all.
std::string new_head_of(const std::filesystem::path& file, const std::vector<NamedSlice>& slices);

// The same from an open file that is known to have every tensor, under another name perhaps.
void read_tensors(const SafetensorsFile& file,
                  const std::vector<NamedSlice>& slices,
                  const std::function<std::string(const std::string&)>& name_in_file,
                  float* flat);

// A part of the flat buffer to be filled: elements [begin, begin + values.size()).
struct MomentTarget {
  int64_t begin = 0;
  std::span<float> values;
};

// Fills `targets` with the moment (one of state.moments), whoever wrote it. `slices` is the
// reader's layout of the flat buffer: values are matched by parameter name, so that padding, order
// and sharding may all differ from the writer's; elements between slices become zero, and so does what
// the writer had frozen or kept no such moment of.
void read_optimizer(const std::filesystem::path& folder,
                    const CheckpointState& state,
                    const std::vector<NamedSlice>& slices,
                    const std::string& moment,
                    const std::vector<MomentTarget>& targets);

// Those of `slices` that the checkpoint's run had frozen: there are no moments of them.
std::vector<NamedSlice> frozen_slices(const CheckpointState& state,
                                      const std::vector<NamedSlice>& slices);

// As read_model(), the moving average of the weights; of frozen ones they themselves.
void read_average(const std::filesystem::path& folder,
                  const CheckpointState& state,
                  const std::vector<NamedSlice>& slices,
                  std::span<float> flat);

// Reads everything and returns a line for each problem, naming file, tensor and byte offsets; none:
// every bit is as written. Does not throw for what is wrong with the checkpoint.
std::vector<std::string> verify(const std::filesystem::path& folder);

// The same of the files of `state` that are asked for.
std::vector<std::string> verify_files(const std::filesystem::path& folder,
                                      const CheckpointState& state,
                                      const std::function<bool(const FileRecord&)>& asked_for);

}  // namespace lockstep
