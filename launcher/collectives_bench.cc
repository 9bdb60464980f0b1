#include "launcher/collectives_bench.h"

#include <algorithm>
#include <cmath>

#include "collectives/reducer.h"
#include "runtime/base/error.h"
#include "runtime/base/time.h"
#include "runtime/plan/plan.h"

namespace lockstep {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t elements_for(int64_t bytes, int ranks) {
  return padded_elements(std::max<int64_t>((bytes + kFloat - 1) / kFloat, 1), ranks);
}

// Share of the vector that each rank must send at the least.
double sent_share(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce: return 2 * others;
    case Collective::kBroadcast: return 1;
    default: return others;
  }
}

// Element i of rank r's vector: sums over any number of ranks stay below 2^24, where floats are
// exact.
float value_of(int64_t i, int rank) { return static_cast<float>(i % 1021 + rank); }
float sum_of(int64_t i, int ranks) {
  return static_cast<float>(ranks * (i % 1021) + int64_t{ranks} * (ranks - 1) / 2);
}

// The reducer of a training step whose only bucket is the vector, with one lane a rank.
class OneBucket {
 public:
  OneBucket(Communicator& slices,
            Communicator& control,
            Backend& backend,
            const Topology& topology,
            bool fast_order,
            int64_t elements,
            float* vector,
            float* staging)
      : vector_(vector),
        reducer_({slices, control},
                 backend,
                 {.lanes = slices.size(),
                  .fast_order = fast_order,
                  .buckets = {{0, elements}},
                  .gather_order = {0},
                  .topology = fast_order ? Topology::flat(slices.size()) : topology,
                  .gradient_buckets = 0},
                 vector,
                 staging) {}

  void reduce_scatter() {
    reducer_.begin_step();
    reducer_.bucket_ready(0);
    reducer_.end_lane();
    reducer_.reduce();
  }
  void all_gather() {
    reducer_.start_gather(reinterpret_cast<std::byte*>(vector_), sizeof(float));
    reducer_.finish_gather();
  }

 private:
  float* vector_;
  Reducer reducer_;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
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

size_t collective_bench_bytes(int64_t bytes, int ranks) {
  const int64_t elements = elements_for(bytes, ranks);
  return static_cast<size_t>((elements + staging_elements({{0, elements}}, ranks)) * kFloat) +
         2 * kDeviceAlignment;
}

CollectiveBench::CollectiveBench(Communicator& slices,
                                 Communicator& control,
                                 Backend& backend,
                                 const Topology& topology,
                                 int64_t most_bytes)
    : slices_(slices),
      control_(control),
      backend_(backend),
      topology_(topology),
      most_elements_(elements_for(most_bytes, slices.size())) {
  const auto take = [&](int64_t elements, const char* what) {
    return reinterpret_cast<float*>(
        backend.allocate(static_cast<size_t>(std::max<int64_t>(elements, 1) * kFloat), what));
  };
  vector_ = take(most_elements_, "the vector");
  staging_ = take(staging_elements({{0, most_elements_}}, slices.size()), "what comes from others");
}

CollectiveTiming CollectiveBench::time(const CollectiveRequest& request, int repeats) {
  const int ranks = slices_.size();
  const int64_t elements = elements_for(request.bytes, ranks);
  LOCKSTEP_CHECK(elements <= most_elements_);
  OneBucket bucket(
      slices_, control_, backend_, topology_, request.fast_order, elements, vector_, staging_);
  const auto run = [&] {
    switch (request.collective) {
      case Collective::kReduceScatter: bucket.reduce_scatter(); break;
      case Collective::kAllGather: bucket.all_gather(); break;
      case Collective::kAllReduce:
        bucket.reduce_scatter();
        bucket.all_gather();
        break;
      case Collective::kBroadcast:
        slices_.broadcast(
            reinterpret_cast<std::byte*>(vector_), static_cast<size_t>(elements * kFloat), 0);
        break;
    }
    backend_.synchronize();
  };
  HostCopy host(backend_, vector_, elements);
  verify(request, elements, host, run);
  const auto refill = [&] {
    std::fill_n(host.data(), elements, 0.0f);  // whose sums stay as they are
    host.write();
  };
  const std::vector<double> times = repeat(run, refill, repeats);
  CollectiveTiming timing;
  timing.request = request;
  timing.bytes = elements * kFloat;
  timing.p50_us = percentile(times, 0.5);
  timing.p99_us = percentile(times, 0.99);
  timing.algbw = static_cast<double>(timing.bytes) / timing.p50_us / 1e3;
  timing.busbw = timing.algbw * sent_share(request.collective, ranks);
  return timing;
}

template <typename Run>
void CollectiveBench::verify(const CollectiveRequest& request,
                             int64_t elements,
                             HostCopy& host,
                             const Run& run) {
  const int ranks = slices_.size(), rank = slices_.rank();
  const int part = request.fast_order ? rank : topology_.part_of(rank);
  const Range mine = part_of({0, elements}, part, ranks);
  // To gather, every rank brings its own part of the sums.
  const bool gathers = request.collective == Collective::kAllGather;
  for (int64_t i = 0; i < elements; ++i) {
    const bool own = i >= mine.begin && i < mine.end;
    host.data()[i] = !gathers ? value_of(i, rank) : own ? sum_of(i, ranks) : -1;
  }
  host.write();
  run();
  host.read();
  const Range found = request.collective == Collective::kReduceScatter ? mine : Range{0, elements};
  for (int64_t i = found.begin; i < found.end; ++i) {
    const bool summed = request.collective != Collective::kBroadcast;
    const float wanted = summed ? sum_of(i, ranks) : value_of(i, 0);
    if (host.data()[i] == wanted) continue;
    throw NumericError("{} of {} bytes: element {} is {}, not {}",
                       name_of(request.collective),
                       elements * kFloat,
                       i,
                       host.data()[i],
                       wanted);
  }
}

// Microseconds of each repetition on the slowest rank, which finds the vector newly written as
// after a backward pass. What takes less than the clock and the barrier deserve is done many times
// in a repetition.
template <typename Run, typename Refill>
std::vector<double> CollectiveBench::repeat(const Run& run, const Refill& refill, int repeats) {
  constexpr double kLeastMs = 1;
  const auto ranks = static_cast<size_t>(control_.size());
  const auto mine = static_cast<size_t>(control_.rank());
  std::vector<double> all(ranks * static_cast<size_t>(repeats));  // (ranks, repeats)
  const auto barrier = [&] {
    control_.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(double));
  };
  const auto timed = [&](int times) {
    refill();
    barrier();
    const double start = now_ms();
    for (int i = 0; i < times; ++i) run();
    return now_ms() - start;
  };
  timed(1);  // warm
  all[mine] = timed(3) / 3;
  barrier();
  const double slowest =
      *std::max_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(ranks));
  const int times = std::clamp(static_cast<int>(kLeastMs / std::max(slowest, 1e-6)), 1, 10000);
  std::vector<double> own(static_cast<size_t>(repeats));
  for (double& ms : own) ms = timed(times) / times;
  std::copy(own.begin(), own.end(), all.begin() + static_cast<ptrdiff_t>(mine * own.size()));
  control_.all_gather(reinterpret_cast<std::byte*>(all.data()), own.size() * sizeof(double));
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t r = 0; r < ranks; ++r) own[i] = std::max(own[i], all[r * own.size() + i]);
    own[i] *= 1e3;
  }
  return own;
}

}  // namespace lockstep
