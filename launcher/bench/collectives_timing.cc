#include "launcher/bench/collectives_timing.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "collectives/agree/agreement.h"
#include "collectives/gather/bucket_all_gather.h"
#include "collectives/gather/sum_all_gather.h"
#include "collectives/reduce/library_exchange.h"
#include "collectives/reduce/tree_exchange.h"
#include "runtime/base/error.h"
#include "runtime/base/time.h"
#include "runtime/plan/plan.h"

namespace lockstep::launcher {
namespace {

constexpr int64_t kFloat = sizeof(float);

// The share of the vector that each rank must send at least.
double sent_share(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce: return 2 * others;
    case Collective::kBroadcast: return 1;
    default: return others;
  }
}

// Numbers whose sums over the ranks are exact. Floats are exact below 2^24, in any order. BF16 has
// only eight significant bits. So in 16 bits the terms of neighbouring ranks deviate from a small
// number by the same amount in opposite directions. Every subtree of ranks then adds up to a power
// of two times that number. The small number is the sum, divided by the number of ranks.
class Numbers {
 public:
  Numbers(DType wire, int ranks) : wire_(wire), ranks_(ranks) {}
  // Element i of a rank's vector.
  float term(int64_t i, int rank) const {
    if (wire_ == DType::kF32) return static_cast<float>(i % 1021 + rank);
    const int apart = 1 + rank / 2 % 127;
    return (sum(i) + static_cast<float>(rank % 2 == 0 ? apart : -apart)) /
           static_cast<float>(ranks_);
  }
  float sum(int64_t i) const {
    if (wire_ != DType::kF32) return static_cast<float>(i % 127);
    return static_cast<float>(ranks_ * (i % 1021) + int64_t{ranks_} * (ranks_ - 1) / 2);
  }

 private:
  DType wire_;
  int ranks_;
};

std::unique_ptr<collectives::GradientExchange> make_exchange(
    const collectives::GradientExchangeSetup& setup,
    const collectives::Topology& topology,
    const CollectiveRequest& request,
    const collectives::StagingMemory& staging,
    bool replicated_sums) {
  if (request.fast_order && topology.ranks() > 1)
    return std::make_unique<collectives::LibraryExchange>(setup, staging);
  return std::make_unique<collectives::TreeExchange>(
      setup, collectives::TreeExchange::Options{staging, {.type = request.wire}, replicated_sums});
}

// The exchange of a training step with one bucket, the vector, and one lane for each rank.
class OneBucket {
 public:
  // `sums` receives the sums, `gathered` is the vector whose parts the ranks gather; both may be
  // `vector` itself. With `replicated_sums` the sums are written to the vectors of all ranks.
  OneBucket(const collectives::RankCommunicators& communicators,
            exec::Backend& backend,
            const collectives::Topology& topology,
            const CollectiveRequest& request,
            int64_t elements,
            float* vector,
            float* sums,
            float* gathered,
            bool replicated_sums,
            float* staging)
      : replicated_sums_(replicated_sums),
        mine_(collectives::part_of(
            {0, elements}, topology.part_of(communicators.control.rank()), topology.ranks())),
        exchange_(make_exchange(
            {.communicators = communicators,
             .math = backend,
             .shares = {topology.ranks(), topology.ranks()},
             .topology = topology,
             .gradients = {.data = vector, .elements = elements, .buckets = {{0, elements}}},
             .sums = {sums},
             .measures = {.norm = false}},
            topology,
            request,
            {staging, elements},
            replicated_sums)),
        gather_(communicators,
                backend,
                topology,
                {{0, elements}},
                {.gathered = reinterpret_cast<std::byte*>(gathered)}) {
    if (request.wire == DType::kF32) return;
    sum_all_gather_.emplace(
        communicators,
        backend,
        topology,
        std::vector<collectives::Range>{{0, elements}},
        collectives::SumAllGather::Memory{
            sums, reinterpret_cast<std::byte*>(staging), request.wire},
        collectives::SumAllGather::Items{.rounded = kVector, .floats = {}, .later = {}});
  }

  // The part that this rank sums.
  const collectives::Range& mine() const { return mine_; }

  void reduce_scatter() {
    exchange_->begin_step(nullptr);
    exchange_->bucket_ready(0);
    exchange_->end_lane();
    exchange_->reduce();
  }
  void all_gather() {
    gather_.start(kVector);
    gather_.finish();
  }
  void all_reduce() {
    reduce_scatter();
    if (replicated_sums_) return;
    if (!sum_all_gather_) return all_gather();
    sum_all_gather_->begin_step();
    sum_all_gather_->add_bucket(0);
    sum_all_gather_->finish();
  }

 private:
  static constexpr collectives::GatherItem kVector[] = {{.bucket = 0}};
  bool replicated_sums_;  // then nothing needs to be gathered after a reduce_scatter
  collectives::Range mine_;
  std::unique_ptr<collectives::GradientExchange> exchange_;
  collectives::BucketAllGather gather_;
  std::optional<collectives::SumAllGather> sum_all_gather_;  // set if sums travel in 16 bits
};

// For sums in both orders and all types.
int64_t staging_floats(int64_t elements, const collectives::Topology& topology) {
  const int ranks = topology.ranks();
  return std::max(elements,
                  collectives::staging_elements(
                      elements, topology, collectives::LaneShares{ranks, ranks}, DType::kBF16));
}

double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::ceil(share * last))];
}

}  // namespace

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAllGather: return "all_gather";
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kBroadcast: break;
  }
  return "broadcast";
}

int64_t elements_of(const CollectiveRequest& request, int ranks) {
  const auto size = static_cast<int64_t>(size_of(request.wire));
  return collectives::padded_elements(std::max<int64_t>((request.bytes + size - 1) / size, 1),
                                      ranks);
}

size_t collective_bench_bytes(int64_t elements, const collectives::Topology& topology) {
  return static_cast<size_t>((elements + staging_floats(elements, topology)) * kFloat) +
         2 * plan::kDeviceAlignment;
}

CollectiveBench::CollectiveBench(const collectives::RankCommunicators& communicators,
                                 exec::Backend& backend,
                                 const collectives::Topology& topology,
                                 int64_t max_elements)
    : communicators_(communicators),
      backend_(backend),
      topology_(topology),
      max_elements_(max_elements) {
  const auto take = [&](int64_t elements, const char* what) {
    return reinterpret_cast<float*>(
        backend.allocate(static_cast<size_t>(std::max<int64_t>(elements, 1) * kFloat), what));
  };
  staging_ = take(staging_floats(max_elements_, topology), "what comes from others");
  if (communicators.node == nullptr) {
    vector_ = sums_ = take(max_elements_, "the vector");
    return;
  }
  const auto bytes = static_cast<size_t>(max_elements_ * kFloat);
  communicators.node->allocate(bytes, bytes);
  vector_ = reinterpret_cast<float*>(communicators.node->own());
  sums_ = reinterpret_cast<float*>(communicators.node->common());
}

CollectiveTiming CollectiveBench::time(const CollectiveRequest& request, int repeats) {
  const int ranks = topology_.ranks();
  const int64_t elements = elements_of(request, ranks);
  LOCKSTEP_CHECK(elements <= max_elements_);
  LOCKSTEP_CHECK(request.wire == DType::kF32 || communicators_.node == nullptr);
  const bool in_place = request.fast_order || communicators_.node == nullptr;
  const bool all_reduce = request.collective == Collective::kAllReduce;
  const bool everywhere = !in_place && all_reduce && topology_.nodes == 1;
  collectives::Communicator& slices = communicators_.slices;
  OneBucket bucket({slices, communicators_.control, in_place ? nullptr : communicators_.node},
                   backend_,
                   request.fast_order ? collectives::Topology::flat(ranks) : topology_,
                   request,
                   elements,
                   vector_,
                   in_place || everywhere || !all_reduce ? vector_ : sums_,
                   in_place ? vector_ : sums_,
                   everywhere,
                   staging_);
  const auto run = [&] {
    switch (request.collective) {
      case Collective::kReduceScatter: bucket.reduce_scatter(); break;
      case Collective::kAllGather: bucket.all_gather(); break;
      case Collective::kAllReduce: bucket.all_reduce(); break;
      case Collective::kBroadcast:
        slices.broadcast(
            reinterpret_cast<std::byte*>(vector_), static_cast<size_t>(elements * kFloat), 0);
        break;
    }
    backend_.synchronize();
  };
  exec::HostCopy vector(backend_, vector_, elements);
  std::optional<exec::HostCopy> common;
  if (!in_place && !everywhere) common.emplace(backend_, sums_, elements);
  const bool gathers = request.collective == Collective::kAllGather;
  exec::HostCopy& sums = common ? *common : vector;
  // The buffer that this rank may write before the operation runs.
  exec::HostCopy& input = gathers ? sums : vector;
  const collectives::Range written =
      gathers && common ? bucket.mine() : collectives::Range{0, elements};
  verify(request, elements, bucket.mine(), {vector, sums, input, written}, run);
  const auto refill = [&] {
    // Sums of zeros stay zeros.
    std::fill(input.data() + written.begin, input.data() + written.end, 0.0f);
    input.write();
  };
  const std::vector<double> times = repeat(run, refill, repeats);
  CollectiveTiming timing;
  timing.request = request;
  timing.bytes = elements * static_cast<int64_t>(size_of(request.wire));
  timing.p50_us = percentile(times, 0.5);
  timing.p99_us = percentile(times, 0.99);
  timing.algbw = static_cast<double>(timing.bytes) / timing.p50_us / 1e3;
  timing.busbw = timing.algbw * sent_share(request.collective, ranks);
  return timing;
}

template <typename Run>
void CollectiveBench::verify(const CollectiveRequest& request,
                             int64_t elements,
                             const collectives::Range& mine,
                             const Buffers& buffers,
                             const Run& run) {
  const int ranks = topology_.ranks(), rank = communicators_.control.rank();
  const bool gathers = request.collective == Collective::kAllGather;
  const Numbers numbers(request.wire, ranks);
  // Overwrites the results of earlier operations, so that they do not pass for this one's.
  std::fill(buffers.sums.data() + mine.begin, buffers.sums.data() + mine.end, -1.0f);
  for (int64_t i = buffers.written.begin; i < buffers.written.end; ++i) {
    const bool own = i >= mine.begin && i < mine.end;
    buffers.input.data()[i] = !gathers ? numbers.term(i, rank) : own ? numbers.sum(i) : -1;
  }
  buffers.input.write();
  collectives::run_on_all(communicators_.control, [] {});
  run();
  const bool parts = request.collective == Collective::kReduceScatter;
  const bool sums = request.collective != Collective::kBroadcast;
  exec::HostCopy& output = sums && !parts ? buffers.sums : buffers.vector;
  output.read();
  const collectives::Range found = parts ? mine : collectives::Range{0, elements};
  // No rank continues while another still reads.
  collectives::run_on_all(communicators_.control, [&] {
    for (int64_t i = found.begin; i < found.end; ++i) {
      const float wanted = sums ? numbers.sum(i) : numbers.term(i, 0);
      if (output.data()[i] == wanted) continue;
      throw NumericError("{} of {} floats: element {} is {}, not {}",
                         name_of(request.collective),
                         elements,
                         i,
                         output.data()[i],
                         wanted);
    }
  });
}

// Microseconds of each repetition on the slowest rank. Each repetition first writes the vector, as
// a backward pass would. Operations that are too short for the clock and the barrier run many times
// in a repetition.
template <typename Run, typename Refill>
std::vector<double> CollectiveBench::repeat(const Run& run, const Refill& refill, int repeats) {
  constexpr double kMinMs = 1;
  const auto ranks = static_cast<size_t>(communicators_.control.size());
  const auto mine = static_cast<size_t>(communicators_.control.rank());
  std::vector<double> all(ranks * static_cast<size_t>(repeats));  // (ranks, repeats)
  const auto barrier = [&] {
    communicators_.control.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(double));
  };
  const auto timed = [&](int times) {
    refill();
    barrier();
    const double start = now_ms();
    for (int i = 0; i < times; ++i) run();
    return now_ms() - start;
  };
  timed(1);  // warm-up
  all[mine] = timed(3) / 3;
  barrier();
  const double slowest =
      *std::max_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(ranks));
  const int times = std::clamp(static_cast<int>(kMinMs / std::max(slowest, 1e-6)), 1, 10000);
  std::vector<double> own(static_cast<size_t>(repeats));
  for (double& ms : own) ms = timed(times) / times;
  std::copy(own.begin(), own.end(), all.begin() + static_cast<ptrdiff_t>(mine * own.size()));
  communicators_.control.all_gather(reinterpret_cast<std::byte*>(all.data()),
                                    own.size() * sizeof(double));
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t r = 0; r < ranks; ++r) own[i] = std::max(own[i], all[r * own.size() + i]);
    own[i] *= 1e3;
  }
  return own;
}

}  // namespace lockstep::launcher
