// Catches: memory that the plan does not know of, and an allocation inside a training step.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>

#include "runtime/base/flight_recorder.h"
#include "runtime/base/half.h"
#include "runtime/cpu/matmul/tile_units.h"
#include "tests/reference/prepared.h"
#include "tests/reference/runs.h"
#include "tests/reference/tcp_ranks.h"
#include "tests/unit/train/onnx_configs.h"

namespace {

std::atomic<int64_t> g_allocations{0};
std::atomic<size_t> g_largest{0};  // bytes

void* counted(std::size_t bytes, std::size_t alignment) {
  ++g_allocations;
  for (size_t largest = g_largest; largest < bytes;)
    if (g_largest.compare_exchange_weak(largest, bytes)) break;
  void* memory = alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                                : std::aligned_alloc(
                                      alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The compiler sees malloc and free through the operators that it inlines, and takes them for a
// mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

// Every allocation of C++ code, the libraries' included, passes here.
void* operator new(std::size_t bytes) { return counted(bytes, 0); }
void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++g_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept {
  return operator new(bytes, tag);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lockstep::train {
namespace {

using testing::TemporaryFolder;

// Whose norms are exchanged.
std::string lamb_config() {
  std::string text = testing::mlp_config();
  const std::string adamw = "adamw { weight_decay: 0.1 }";
  return text.replace(text.find(adamw), adamw.size(), "lamb {}");
}

// Documents of 2 to 13 tokens, padded, in steps of several lengths.
std::string padded_config() {
  static const TemporaryFolder folder;
  std::vector<uint16_t> tokens;
  std::vector<uint64_t> borders;
  for (uint64_t document = 0; document < 200; ++document) {
    borders.push_back(tokens.size());
    for (uint64_t i = 0; i < 2 + document * document % 12; ++i)
      tokens.push_back(static_cast<uint16_t>((document + 3 * i) % 17));
  }
  const auto write = [&](const char* name, const auto& values) {
    std::ofstream file(folder.path() / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(values[0])));
  };
  write("tokens.bin", tokens);
  write("documents.bin", borders);
  std::string text = testing::gpt_config();
  const std::string synthetic = "synthetic { samples: 300 classes: 17 }";
  text.replace(text.find(synthetic),
               synthetic.size(),
               "tokens { train: \"tokens.bin\" train_documents: \"documents.bin\" packing: PADDED "
               "eval: \"tokens.bin\" eval_documents: \"documents.bin\" } dir: \"" +
                   folder.path().string() + "\"");
  return text + " execution { length_buckets: [4, 8] }";
}

std::string in_bf16(const std::string& config) { return config + " execution { precision: BF16 }"; }
// The same by a matrix unit, which is emulated if this processor has none.
std::string by_tiles(const std::string& config) { return in_bf16(config) + "  # tiles"; }

class MemoryTest : public ::testing::TestWithParam<std::string> {
 private:
  cpu::tiles::ScopedTiles tiles_{GetParam().ends_with("# tiles")};
};

// The number of allocations of a run must not depend on how many steps it has. The last line, of
// which each run has one, is longer where a rank was waited for, and may take one more.
TEST_P(MemoryTest, StepsAllocateNothing) {
  for (int ranks : {1, 2}) {
    const auto allocations = [&](int64_t steps) {
      TemporaryFolder folder;
      const int64_t before = g_allocations;
      testing::train_in(folder.path(),
                        {GetParam(),
                         ranks,
                         {.resume = "none", .max_steps = steps},
                         {"train.steps=500", "checkpoint.every=0", "checkpoint.at_end=false"}});
      return g_allocations - before;
    };
    allocations(5);  // libraries make their own once
    const auto few = static_cast<double>(allocations(10));
    EXPECT_NEAR(few, static_cast<double>(allocations(310)), 3) << ranks << " ranks";
  }
}

TEST_P(MemoryTest, TheRunAllocatesWhatThePlanSays) {
  struct Case {
    collectives::Topology topology;
    std::vector<std::string> overrides = {};
  };
  for (const auto& [topology, overrides] :
       {Case{collectives::Topology::flat(1)},
        Case{collectives::Topology::flat(2)},
        Case{collectives::Topology::flat(4)},
        Case{{1, 4, /*shares_memory=*/true}},
        Case{{2, 2, /*shares_memory=*/true}},
        Case{{1, 4, /*shares_memory=*/true}, {"comm.zero_stage=0"}},
        Case{collectives::Topology::flat(4), {"comm.zero_stage=2"}},
        Case{{1, 4, /*shares_memory=*/true}, {"comm.zero_stage=2"}},
        Case{collectives::Topology::flat(4), {"comm.zero_stage=3"}}}) {
    TemporaryFolder folder;
    testing::run_ranks(topology.ranks(), [&](collectives::Communicator& communicator) {
      RunConfig config = config::parse_config(GetParam(), "test", overrides);
      config.output.run_dir = folder.path();
      const std::unique_ptr<exec::Backend> backend = cpu::make_backend();
      const run::PreparedRun prepared =
          testing::prepare(std::move(config), topology, run::RunPurpose::kTrain, backend->ops());
      const auto node = testing::share_memory(communicator, prepared.plan);
      const RunContext parts =
          run::context_of(prepared, communicator, communicator, *backend, node.get());
      const auto expect_planned = [&] {
        EXPECT_EQ(backend->allocated_bytes() + (node ? node->allocated_bytes() : 0),
                  prepared.plan.memory.total_bytes() -
                      prepared.plan.memory.row_bytes(plan::RowKind::kDataset) -
                      (communicator.rank() == 0
                           ? 0
                           : prepared.plan.memory.row_bytes(plan::RowKind::kWeightsSnapshot)));
      };
      Trainer trainer(parts);
      expect_planned();
      trainer.start("none");
      trainer.run(3);
      expect_planned();
    });
  }
}

// What has room in master weights or gradients is initialized, saved and loaded there.
TEST(Memory, HalvesNeedNoCopyOfTheWeights) {
  constexpr int64_t kWidth = 256, kLayers = 2;
  for (const int ranks : {1, 2}) {
    const TemporaryFolder folder;
    const auto train = [&](const char* resume, int64_t steps) {
      testing::train_in(folder.path(),
                        {in_bf16(testing::gpt_config()),
                         ranks,
                         {.resume = resume, .max_steps = steps},
                         {fmt::format("model.gpt.width={}", kWidth), "comm.bucket_mib=1"}});
    };
    g_largest = 0;
    train("none", 1);
    train("auto", 2);
    EXPECT_LT(g_largest, 12 * kLayers * kWidth * kWidth * sizeof(BFloat16)) << ranks << " ranks";
  }
}

// Nor does a sum in FAST order, whatever its size: what comes from other ranks lies in the caller's
// memory.
TEST(MemoryOverTcp, SumsAllocateNothing) {
  constexpr int kRanks = 3;
  constexpr int64_t kElements = 10'000;
  const TemporaryFolder folder;
  FlightRecorder::here();  // made once in a process, by the first rank that waits
  std::array<int64_t, kRanks> allocated{};
  const auto errors = testing::run_tcp_ranks(
      testing::tcp_ranks(kRanks, folder.path() / "meeting"),
      [&](collectives::TcpCommunicator& communicator) {
        std::vector<float> send(kRanks * kElements, 1), receive(send.size());
        std::array<std::byte, kRanks> meet{};
        communicator.all_gather(meet.data(), 1);
        const int64_t before = g_allocations;
        communicator.wait(
            communicator.start_reduce_scatter(send.data(), receive.data(), kElements));
        communicator.all_gather(meet.data(), 1);
        allocated[static_cast<size_t>(communicator.rank())] = g_allocations - before;
        communicator.all_gather(meet.data(), 1);
        EXPECT_EQ(receive[kElements - 1], kRanks);
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  for (const int64_t count : allocated) EXPECT_EQ(count, 0);
}

constexpr const char* kNames[] = {"mlp",
                                  "gpt",
                                  "lamb",
                                  "padded",
                                  "onnx_images",
                                  "onnx_tokens",
                                  "gpt_in_bf16",
                                  "gpt_in_bf16_by_tiles",
                                  "onnx_images_in_bf16"};
INSTANTIATE_TEST_SUITE_P(Models,
                         MemoryTest,
                         ::testing::Values(testing::mlp_config(),
                                           testing::gpt_config(),
                                           lamb_config(),
                                           padded_config(),
                                           testing::onnx_images_config(),
                                           testing::onnx_tokens_config(),
                                           in_bf16(testing::gpt_config()),
                                           by_tiles(testing::gpt_config()),
                                           in_bf16(testing::onnx_images_config())),
                         [](const auto& info) { return kNames[info.index]; });

}  // namespace
}  // namespace lockstep::train
