#include "runtime/train/step/gathered_checksums.h"

#include <algorithm>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep::train {

GatheredChecksums::GatheredChecksums(const RunContext& context,
                                     const RunMemory& memory,
                                     const StateChecksums& state)
    : context_(context),
      memory_(memory),
      state_(state),
      times_(context.plan.layout.buckets.size()) {
  const plan::Plan& plan = context.plan;
  const collectives::Topology& topology = plan.sharding.topology;
  const int ranks = topology.ranks(), me = context.communicator.rank();
  const std::vector<int64_t> begins = plan.layout.begins();
  for (const collectives::Range& bucket : plan.layout.buckets)
    max_pieces_ += collectives::cut_range(bucket, begins).size();
  owners_.resize(max_pieces_ * static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks && plan.sharding.shards_optimizer(); ++rank) {
    const bool of_my_node = rank / topology.per_node == me / topology.per_node;
    const bool mine_to_check = plan.sharding.shares_parameters()
                                   ? !of_my_node && (rank - me) % topology.per_node == 0
                                   : rank != me;
    if (!mine_to_check) continue;
    Source source = {.rank = rank, .checksums = context.backend.host_array<uint32_t>(max_pieces_)};
    size_t number = 0;
    for (const collectives::Range& bucket : plan.layout.buckets) {
      source.first.push_back(number);
      source.pieces.push_back(collectives::cut_range(
          collectives::part_of(bucket, topology.part_of(rank), ranks), begins));
      number += source.pieces.back().size();
    }
    sources_.push_back(std::move(source));
  }
  if (plan.layout.compute != DType::kF32)
    stored_ = context.backend.host_array<uint32_t>(state.pieces().size());
}

void GatheredChecksums::add(int bucket, const std::byte* gathered) {
  const auto b = static_cast<size_t>(bucket);
  if (b >= times_.size()) return;  // frozen parameters, which no update has written
  const double start_ms = now_ms();
  const DType dtype = context_.plan.layout.compute;
  ++times_[b];
  for (Source& source : sources_) {
    uint32_t* sum = &source.checksums[source.first[b]];
    for (const collectives::Range& piece : source.pieces[b]) {
      const int64_t offset = piece.begin - context_.plan.layout.buckets[b].begin;
      context_.backend.add_bits(
          gathered + static_cast<size_t>(offset) * size_of(dtype), dtype, piece.size(), sum++);
    }
  }
  ms_ += now_ms() - start_ms;
}

void GatheredChecksums::add_all() {
  for (size_t b = 0; b < times_.size(); ++b)
    add(static_cast<int>(b),
        memory_.parameters + static_cast<size_t>(context_.plan.layout.buckets[b].begin) *
                                 size_of(context_.plan.layout.compute));
}

// The checksums of this rank's own parameters, as its last update has written them.
std::span<const uint32_t> GatheredChecksums::own_checksums() {
  if (stored_.empty()) return state_.of(StateArray::kWeight);
  const DType dtype = context_.plan.layout.compute;
  std::ranges::fill(stored_, 0u);
  for (size_t i = 0; i < stored_.size(); ++i) {
    const StatePiece& piece = state_.pieces()[i];
    const int64_t offset =
        context_.plan.sharding.shards_parameters() ? piece.local : piece.range.begin;
    context_.backend.add_bits(memory_.parameters + static_cast<size_t>(offset) * size_of(dtype),
                              dtype,
                              piece.range.size(),
                              &stored_[i]);
  }
  context_.backend.synchronize();
  return stored_;
}

std::optional<GatheredChecksums::Damage> GatheredChecksums::compare() {
  context_.backend.synchronize();
  const auto slot_of_rank = [&](int rank) {
    return owners_.begin() + static_cast<int64_t>(max_pieces_) * rank;
  };
  std::ranges::copy(own_checksums(), slot_of_rank(context_.communicator.rank()));
  context_.communicator.all_gather(reinterpret_cast<std::byte*>(owners_.data()),
                                   max_pieces_ * sizeof(uint32_t));
  std::optional<Damage> first;
  for (Source& source : sources_) {
    const auto owner = slot_of_rank(source.rank);
    for (size_t b = 0; b < times_.size(); ++b) {
      for (size_t k = 0; k < source.pieces[b].size() && !first; ++k) {
        const size_t number = source.first[b] + k;
        if (source.checksums[number] != times_[b] * owner[static_cast<int64_t>(number)])
          first = Damage{source.rank, context_.plan.layout.slot_at(source.pieces[b][k].begin)};
      }
    }
    std::ranges::fill(source.checksums, 0u);
  }
  std::ranges::fill(times_, 0u);
  return first;
}

double GatheredChecksums::take_ms() { return std::exchange(ms_, 0); }

}  // namespace lockstep::train
