#include "runtime/cuda/flat/flat_update.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/check.h"

namespace lockstep::cuda {
namespace {

// The constants and the table are copied to the device for every run, in stream order, so all
// updates can share the same device memory.
class QueuedUpdate final : public exec::FlatUpdate {
 public:
  QueuedUpdate(std::span<const exec::OptimizerUpdate> updates,
               std::span<const exec::OptimizerSlice> slices,
               std::span<PlacedSlice> table,
               bool gated,
               Workspace& workspace,
               Stream stream)
      : updates_(updates),
        workspace_(workspace),
        gate_(gated ? &workspace.gate : nullptr),
        stream_(stream),
        stored_dtype_(slices.empty() ? DType::kF32 : slices.front().stored_dtype),
        moment_dtype_(slices.empty() ? DType::kF32 : slices.front().moment_dtype),
        rounding_(slices.empty() ? nullptr : slices.front().rounding) {
    LOCKSTEP_CHECK(updates.size() <= kMaxUpdateGroups && table.size() == slices.size());
    const auto* on_device = reinterpret_cast<const exec::OptimizerUpdate*>(workspace.updates);
    for (size_t first = 0; first < slices.size(); first += kMaxSlices) {
      const size_t count = std::min(kMaxSlices, slices.size() - first);
      PlacedSlice* const placed = &table[first];
      const uint32_t blocks =
          place_slices(slices.subspan(first, count), updates, on_device, placed);
      launches_.push_back({{placed, count}, blocks});
    }
  }

  void load() override {
    copy(updates_, workspace_.updates);
    if (rounding_ != nullptr) copy(std::span(rounding_, 1), &workspace_.rounding);
  }

  void run() override {
    for (const OneLaunch& launch : launches_) {
      copy(launch.table, workspace_.slices);
      const int count = static_cast<int>(launch.table.size());
      by_type(stored_dtype_, [&]<typename T>() {
        const auto update = [&]<typename Moment>(const exec::MomentRounding* rounding) {
          optimizer_update<T, Moment>(
              workspace_.slices, count, launch.blocks, gate_, stream_, rounding);
        };
        switch (moment_dtype_) {
          case DType::kBF16: return update.template operator()<BFloat16>(&workspace_.rounding);
          case DType::kU8: return update.template operator()<MomentBlock>(nullptr);
          default: return update.template operator()<float>(nullptr);
        }
      });
    }
  }

 private:
  struct OneLaunch {
    std::span<const PlacedSlice> table;
    uint32_t blocks;
  };

  template <typename T>
  void copy(std::span<const T> from, void* to) {
    LOCKSTEP_CUDA(
        cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_));
  }

  std::span<const exec::OptimizerUpdate> updates_;
  Workspace& workspace_;
  const GateState* gate_;  // null: not gated
  Stream stream_;
  DType stored_dtype_;
  DType moment_dtype_;
  const exec::MomentRounding* rounding_;  // null unless moments are bfloat16
  std::vector<OneLaunch> launches_;
};

}  // namespace

std::unique_ptr<exec::FlatUpdate> make_flat_update(std::span<const exec::OptimizerUpdate> updates,
                                                   std::span<const exec::OptimizerSlice> slices,
                                                   std::span<PlacedSlice> table,
                                                   bool gated,
                                                   Workspace& workspace,
                                                   Stream stream) {
  return std::make_unique<QueuedUpdate>(updates, slices, table, gated, workspace, stream);
}

}  // namespace lockstep::cuda
