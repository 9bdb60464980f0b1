#pragma once
// A backend that does what another one does, and tells a test when its work gets to certain places
// and where the memory of a run lies: so a test can change bits like a fault would.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/backend.h"

namespace lockstep::test {

class HookedBackend final : public exec::Backend {
 public:
  explicit HookedBackend(std::unique_ptr<exec::Backend> inner) : inner_(std::move(inner)) {}

  // Called before the ops of a lane, and at a mark.
  std::function<void(const graph::LaneContext&)> on_lane;
  std::function<void(Mark)> on_mark;
  // Where the memory of a row of the plan begins; null where there is none.
  std::byte* row(const std::string& name) const {
    const auto found = rows_.find(name);
    return found == rows_.end() ? nullptr : found->second;
  }

  const exec::OpSet& ops() const override { return inner_->ops(); }
  void warm_up(const graph::Graph& graph) override { inner_->warm_up(graph); }
  void reserve(size_t bytes) override { inner_->reserve(bytes); }
  std::byte* allocate(size_t bytes, const char* what, Place place) override {
    return rows_[what] = inner_->allocate(bytes, what, place);
  }
  size_t allocated_bytes() const override { return inner_->allocated_bytes(); }
  exec::BatchUploads& uploads() override { return inner_->uploads(); }
  collectives::PowerSgdProducts& power_sgd() override { return inner_->power_sgd(); }
  void begin_lane(const graph::LaneContext& lane, int place) override {
    if (on_lane) on_lane(lane);
    inner_->begin_lane(lane, place);
  }
  void select_lane(int place) override { inner_->select_lane(place); }
  void* launch_context() override { return inner_->launch_context(); }
  std::unique_ptr<exec::FlatUpdate> flat_update(std::span<const exec::OptimizerUpdate> updates,
                                                std::vector<exec::OptimizerSlice> slices,
                                                bool gated) override {
    return inner_->flat_update(updates, std::move(slices), gated);
  }
  exec::UpdateGate* update_gate() override { return inner_->update_gate(); }
  void hash(
      const std::byte* x, DType dtype, int64_t n, uint64_t first_index, ContentHash* out) override {
    inner_->hash(x, dtype, n, first_index, out);
  }
  std::unique_ptr<exec::RepeatedWork> repeated_work() override { return inner_->repeated_work(); }
  void plan_recordings(size_t bytes) override { inner_->plan_recordings(bytes); }
  void mark(Mark mark) override {
    if (on_mark) on_mark(mark);
    inner_->mark(mark);
  }
  void newton_schulz(float* matrix,
                     const exec::NewtonSchulz& shape,
                     std::byte* workspace) override {
    inner_->newton_schulz(matrix, shape, workspace);
  }
  void add_factored_squares(const exec::FactoredPiece& piece,
                            const exec::FactoredStep* step) override {
    inner_->add_factored_squares(piece, step);
  }
  void factored_directions(const exec::FactoredPiece& piece,
                           const exec::FactoredStep* step) override {
    inner_->factored_directions(piece, step);
  }
  double reduce_ms() override { return inner_->reduce_ms(); }
  double peak_flops() override { return inner_->peak_flops(); }

  void tree_sum(const collectives::TreeSumTerms& terms, float* out, int64_t n) override {
    inner_->tree_sum(terms, out, n);
  }
  void pack(const float* from, DType wire, std::byte* to, int64_t n) override {
    inner_->pack(from, wire, to, n);
  }
  void add_rows(const collectives::AddedRows& rows,
                int64_t begin,
                int64_t end,
                float* to) override {
    inner_->add_rows(rows, begin, end, to);
  }
  void add_squares(const float* x, int64_t n, ExactSum* sum, uint32_t* bits) override {
    inner_->add_squares(x, n, sum, bits);
  }
  void add_bits(const std::byte* x, DType dtype, int64_t n, uint32_t* bits) override {
    inner_->add_bits(x, dtype, n, bits);
  }
  void copy(const std::byte* from, std::byte* to, size_t bytes) override {
    inner_->copy(from, to, bytes);
  }
  void fill_zeros(float* out, int64_t n) override { inner_->fill_zeros(out, n); }
  void synchronize() override { inner_->synchronize(); }
  std::byte* allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }

 private:
  std::unique_ptr<exec::Backend> inner_;
  std::map<std::string, std::byte*> rows_;
};

}  // namespace lockstep::test
