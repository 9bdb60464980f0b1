#include "runtime/train/step/muon.h"

#include <algorithm>

namespace lockstep::train {
namespace {

// The part of a matrix that a rank owns in one bucket.
struct Piece {
  collectives::Range range;  // of the flat buffer
  int64_t local = 0;         // index of its first element among those that the rank updates
};

// The offset of a matrix from an address aligned for vectors. It is the same in the flat buffer and
// in the memory where it is assembled. A backend may choose its matrix product by alignment, and
// all ranks must get the same bits.
int64_t shift_of(const plan::MuonMatrix& matrix) {
  constexpr int64_t kVector = 4;  // 16 bytes
  return matrix.range.begin % kVector;
}

std::vector<Piece> pieces_of(const plan::Plan& plan, const collectives::Range& matrix, int rank) {
  std::vector<Piece> pieces;
  const collectives::Topology& topology = plan.sharding.topology;
  for (const collectives::Range& bucket : plan.layout.buckets) {
    const collectives::Range owned =
        collectives::part_of(bucket, topology.part_of(rank), topology.ranks());
    const collectives::Range part = {std::max(owned.begin, matrix.begin),
                                     std::min(owned.end, matrix.end)};
    if (part.begin < part.end)
      pieces.push_back({part, plan.sharding.owned_index_of(rank, bucket, part.begin)});
  }
  return pieces;
}

}  // namespace

MuonDirections::MuonDirections(const plan::Plan& plan,
                               collectives::Communicator& communicator,
                               exec::Backend& backend,
                               const collectives::OwnedFloats& gradients,
                               std::byte* memory)
    : plan_(plan),
      layout_(*plan.traffic.muon),
      communicator_(communicator),
      waits_(communicator, nullptr),
      backend_(backend),
      gradients_(gradients),
      matrix_(reinterpret_cast<float*>(memory)),
      send_(reinterpret_cast<float*>(memory + layout_.matrix_bytes)),
      receive_(send_),
      scratch_(memory + layout_.matrix_bytes) {
  for (const plan::MuonMatrix& matrix : layout_.matrices) slots_.push_back(matrix.slot);
  std::ranges::sort(slots_);
  slots_.erase(std::unique(slots_.begin(), slots_.end()), slots_.end());
  for (const plan::MuonRound& planned : layout_.rounds) rounds_.push_back(make_round(planned));
}

MuonDirections::Round MuonDirections::make_round(const plan::MuonRound& planned) const {
  Round round;
  round.first = planned.first;
  round.slot_bytes = static_cast<size_t>(planned.slot) * sizeof(float);
  for (size_t i = planned.first; i < planned.first + planned.count; ++i) {
    const plan::MuonMatrix& matrix = layout_.matrices[i];
    const bool mine = matrix.owner == communicator_.rank();
    // If slices are not owned, a rank owns everything, in the flat order, so the matrix is
    // contiguous.
    float* const in_place = layout_.sharded ? matrix_ + shift_of(matrix)
                                            : gradients_.at(matrix.range.begin, matrix.range.begin);
    if (mine) {
      round.matrix = in_place;
      round.shape = {.rows = matrix.rows,
                     .columns = matrix.columns,
                     .iterations = layout_.iterations,
                     .scale = matrix.scale};
    }
    if (layout_.sharded) {
      add_copies(matrix, round);
    } else {
      round.gathered.push_back(in_place);
    }
  }
  return round;
}

// Adds the copies of a matrix of the round: from its owners to the rank that takes it, and back.
void MuonDirections::add_copies(const plan::MuonMatrix& matrix, Round& round) const {
  const int me = communicator_.rank();
  const auto slot = static_cast<int64_t>(round.slot_bytes / sizeof(float));
  float* const receive = send_ + slot * communicator_.size();
  if (matrix.owner != me) {
    float* sent = send_ + slot * matrix.owner;
    float* received = receive + slot * matrix.owner;
    for (const Piece& piece : pieces_of(plan_, matrix.range, me)) {
      float* const mine = gradients_.at(piece.range.begin, piece.local);
      round.sent.push_back({mine, sent, piece.range.size()});
      round.received_back.push_back({received, mine, piece.range.size()});
      sent += piece.range.size();
      received += piece.range.size();
    }
    return;
  }
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    float* sent = send_ + slot * rank;
    float* received = receive + slot * rank;
    for (const Piece& piece : pieces_of(plan_, matrix.range, rank)) {
      float* const destination =
          matrix_ + shift_of(matrix) + (piece.range.begin - matrix.range.begin);
      const int64_t elements = piece.range.size();
      if (rank == me) {
        float* const mine = gradients_.at(piece.range.begin, piece.local);
        round.received.push_back({mine, destination, elements});
        round.received_back.push_back({destination, mine, elements});
        continue;
      }
      round.received.push_back({received, destination, elements});
      round.sent_back.push_back({destination, sent, elements});
      sent += elements;
      received += elements;
    }
  }
}

void MuonDirections::run() {
  for (const Round& round : rounds_) {
    if (layout_.sharded) {
      copy(round.sent);
      exchange(round.slot_bytes);
      copy(round.received);
    }
    if (round.matrix != nullptr) backend_.newton_schulz(round.matrix, round.shape, scratch_);
    if (layout_.sharded) {
      copy(round.sent_back);
      exchange(round.slot_bytes);
      copy(round.received_back);
    } else if (communicator_.size() > 1) {
      gather(round);
    }
  }
}

void MuonDirections::copy(const std::vector<Copy>& copies) {
  for (const Copy& one : copies)
    backend_.copy(reinterpret_cast<const std::byte*>(one.from),
                  reinterpret_cast<std::byte*>(one.to),
                  static_cast<size_t>(one.elements) * sizeof(float));
}

void MuonDirections::exchange(size_t slot_bytes) {
  auto* const send = reinterpret_cast<std::byte*>(send_);
  const collectives::Arrival pieces = {
      .handle = communicator_.start_exchange(
          {send,
           send + slot_bytes * static_cast<size_t>(communicator_.size()),
           slot_bytes,
           communicator_.everyone()})};
  waits_.wait(pieces, collectives::ExchangeObserver::Wait::kDirections, -1);
}

// Gathers one part of each matrix of the round at a time.
void MuonDirections::gather(const Round& round) {
  auto* const slots = reinterpret_cast<std::byte*>(receive_);
  const auto slot = static_cast<int64_t>(round.slot_bytes / sizeof(float));
  int64_t largest = 0;
  for (size_t i = 0; i < round.gathered.size(); ++i)
    largest = std::max(largest, layout_.matrices[round.first + i].range.size());
  for (int64_t begin = 0; begin < largest; begin += slot) {
    const auto each = [&](bool mine, auto body) {
      for (size_t i = 0; i < round.gathered.size(); ++i) {
        const plan::MuonMatrix& matrix = layout_.matrices[round.first + i];
        const int64_t elements = std::min(slot, matrix.range.size() - begin);
        if (elements <= 0 || (matrix.owner == communicator_.rank()) != mine) continue;
        body(reinterpret_cast<std::byte*>(round.gathered[i] + begin),
             slots + static_cast<size_t>(matrix.owner) * round.slot_bytes,
             static_cast<size_t>(elements) * sizeof(float));
      }
    };
    each(true,
         [&](std::byte* matrix, std::byte* at, size_t bytes) { backend_.copy(matrix, at, bytes); });
    const collectives::Arrival arrival = {.handle = communicator_.start_all_gather(
                                              slots, round.slot_bytes, communicator_.everyone())};
    waits_.wait(arrival, collectives::ExchangeObserver::Wait::kDirections, -1);
    each(false,
         [&](std::byte* matrix, std::byte* at, size_t bytes) { backend_.copy(at, matrix, bytes); });
  }
}

}  // namespace lockstep::train
