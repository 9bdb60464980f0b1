// Helper of tests/tools/check_safetensors.py.
//   safetensors_tool write FOLDER   saves a checkpoint of two ranks in FOLDER, values known to the
//   script safetensors_tool read FILE      prints "NAME VALUE..." for each tensor, values as
//   hexadecimal fp32 bits

#include <bit>
#include <cstdio>
#include <numeric>

#include "runtime/checkpoint/format/safetensors.h"
#include "runtime/checkpoint/format/writer.h"

namespace lockstep::checkpoint {
namespace {

void write(const char* folder) {
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), -10.0f);
  const std::vector<NamedSlice> layout{
      {"w", {3, 5}, 0}, {"names/\u00e9 \"q\"", {4}, 16}, {"s", {}, 24}};
  const CheckpointWriter writer = CheckpointWriter::begin(folder, 7);
  CheckpointState state;
  state.step = 7;
  state.ranks = 2;
  state.flat_elements = 64;
  state.moments = {"exp_avg"};
  state.layout = layout;
  state.files.push_back(writer.write_model(layout, values.data()));
  for (int64_t rank = 0; rank < 2; ++rank) {
    state.files.push_back(writer.write_optimizer_shard(
        rank, 2, {{"exp_avg", {{rank * 32, std::span(values).subspan(rank * 32, 32)}}}}));
  }
  std::puts(writer.commit(state).c_str());
}

void read(const char* path) {
  const SafetensorsFile file(path);
  for (const SafetensorsEntry& entry : file.header().entries) {
    std::vector<float> values(static_cast<size_t>(entry.elements));
    file.read_weights(entry, values.data());
    std::printf("%s", entry.name.c_str());
    for (float value : values) std::printf(" %08x", std::bit_cast<uint32_t>(value));
    std::puts("");
  }
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    std::string(argv[1]) == "write" ? lockstep::checkpoint::write(argv[2])
                                    : lockstep::checkpoint::read(argv[2]);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
