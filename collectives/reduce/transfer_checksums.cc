#include "collectives/reduce/transfer_checksums.h"

#include <algorithm>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep::collectives {

TransferChecksums::TransferChecksums(Communicator& control,
                                     SliceMath& math,
                                     const Topology& topology,
                                     const std::vector<Range>& buckets,
                                     const std::vector<int64_t>& tensor_begins)
    : control_(control), math_(math) {
  std::vector<size_t> first;
  for (const Range& bucket : buckets) {  // no part is cut into more pieces than the bucket
    first.push_back(slot_);
    slot_ += cut_range(bucket, tensor_begins).size();
  }
  std::vector<Range> ranges = buckets;
  for (const RankGroup& group : topology.groups_of(control.rank())) {
    Level level = {.group = group, .me = group.index_of(control.rank()), .first = first};
    for (Range& range : ranges) {
      std::vector<std::vector<Range>>& parts = level.pieces.emplace_back();
      for (int i = 0; i < group.count; ++i)
        parts.push_back(cut_range(part_of(range, i, group.count), tensor_begins));
      range = part_of(range, level.me, group.count);
    }
    const size_t checksums = slot_ * static_cast<size_t>(group.count);
    level.offered = math.host_array<uint32_t>(checksums);
    level.taken = math.host_array<uint32_t>(checksums);
    level.expected.resize(checksums);
    levels_.push_back(std::move(level));
  }
}

void TransferChecksums::add(const std::byte* from,
                            DType dtype,
                            const std::vector<Range>& pieces,
                            uint32_t* checksums) {
  for (const Range& piece : pieces) {
    const int64_t offset = piece.begin - pieces.front().begin;
    math_.add_bits(
        from + static_cast<size_t>(offset) * size_of(dtype), dtype, piece.size(), checksums++);
  }
}

void TransferChecksums::offer(int bucket, size_t number, const std::byte* sent, DType dtype) {
  const double start_ms = now_ms();
  Level& level = levels_[number];
  const auto b = static_cast<size_t>(bucket);
  for (int i = 0; i < level.group.count; ++i) {
    const std::vector<Range>& pieces = level.pieces[b][static_cast<size_t>(i)];
    if (i != level.me)
      add(sent, dtype, pieces, &level.offered[static_cast<size_t>(i) * slot_ + level.first[b]]);
    sent += static_cast<size_t>(pieces.back().end - pieces.front().begin) * size_of(dtype);
  }
  ms_ += now_ms() - start_ms;
}

void TransferChecksums::take(int bucket,
                             size_t number,
                             std::span<const void* const> arrays,
                             std::span<const int> counts,
                             DType dtype) {
  const double start_ms = now_ms();
  Level& level = levels_[number];
  const auto b = static_cast<size_t>(bucket);
  size_t at = 0;
  for (int i = 0; i < level.group.count; ++i) {
    const auto index = static_cast<size_t>(i);
    for (int k = 0; k < counts[index]; ++k, ++at) {
      if (i != level.me)
        add(static_cast<const std::byte*>(arrays[at]),
            dtype,
            level.pieces[b][static_cast<size_t>(level.me)],
            &level.taken[index * slot_ + level.first[b]]);
    }
  }
  ms_ += now_ms() - start_ms;
}

std::optional<TransferChecksums::Damage> TransferChecksums::compare() {
  math_.synchronize();
  std::optional<Damage> first;
  for (Level& level : levels_) {
    control_.wait(control_.start_exchange({reinterpret_cast<const std::byte*>(level.offered.data()),
                                           reinterpret_cast<std::byte*>(level.expected.data()),
                                           slot_ * sizeof(uint32_t),
                                           level.group}));
    for (size_t i = 0; i < static_cast<size_t>(level.group.count); ++i) {
      if (static_cast<int>(i) == level.me) continue;
      for (size_t b = 0; b < level.first.size() && !first; ++b) {
        const std::vector<Range>& pieces = level.pieces[b][static_cast<size_t>(level.me)];
        for (size_t k = 0; k < pieces.size() && !first; ++k) {
          const size_t at = i * slot_ + level.first[b] + k;
          if (level.expected[at] != level.taken[at])
            first = Damage{level.group.rank_of(static_cast<int>(i)), pieces[k].begin};
        }
      }
    }
    std::ranges::fill(level.offered, 0u);
    std::ranges::fill(level.taken, 0u);
  }
  return first;
}

double TransferChecksums::take_ms() { return std::exchange(ms_, 0); }

}  // namespace lockstep::collectives
