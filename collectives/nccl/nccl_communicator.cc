#include "collectives/nccl/nccl_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/agree/agreement.h"
#include "collectives/nccl/check.h"
#include "collectives/nccl/device_wait.h"
#include "collectives/nccl/preparation.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {
namespace {

constexpr double kEndSeconds = 10;  // how long the destructor waits for the other ranks

// A stream and its events. Declared so that they are destroyed last, also if the constructor
// throws.
class StreamAndEvents {
 public:
  explicit StreamAndEvents(const NcclCheck& check_) {
    int least = 0, greatest = 0;
    LOCKSTEP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    LOCKSTEP_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    for (auto* events : {&ready, &done}) {
      for (cudaEvent_t& event : *events)
        LOCKSTEP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
  }
  StreamAndEvents(const StreamAndEvents&) = delete;
  StreamAndEvents& operator=(const StreamAndEvents&) = delete;
  ~StreamAndEvents() {
    for (auto* events : {&ready, &done}) {
      for (cudaEvent_t event : *events) cudaEventDestroy(event);
    }
    cudaStreamDestroy(stream);
  }

  cudaStream_t stream = nullptr;  // for communication; high priority
  // For each handle: `compute` has produced the input; the operation is complete.
  std::array<cudaEvent_t, Communicator::kMaxPending> ready{}, done{};
};

// Ends a group of calls that an exception has left open; within an open group an abort would do
// nothing.
struct OpenGroup {
  explicit OpenGroup(const NcclLibrary& of) : library(&of) {}
  ~OpenGroup() {
    if (library != nullptr) library->group_end();
  }
  OpenGroup(const OpenGroup&) = delete;
  OpenGroup& operator=(const OpenGroup&) = delete;
  const NcclLibrary* library;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Communicator& control,
                   CUstream_st* compute,
                   const NcclOptions& options,
                   const NcclLibrary& library)
      : library_(library),
        options_(options),
        rank_(control.rank()),
        size_(control.size()),
        check_(library, rank_),
        compute_(compute),
        wait_(compute, options.first_timeout_s, options.operation_timeout_s, options.waited) {
    const ncclUniqueId id = prepare_nccl(control, options, library);
    queue_.emplace(check_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      LOCKSTEP_NCCL(comm_init_rank_config, &comm_, size_, id, rank_, &config);
      settle(options_.init_timeout_s, "connect the ranks");
    } catch (const CommError&) {
      failed_ = true;
      end();
      throw;
    }
  }
  ~NcclCommunicator() override { end(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* name() const override { return "nccl"; }

  int start_exchange(const SliceExchange& exchange) override {
    return start_pairs(FlightOp::kExchange,
                       exchange.group,
                       exchange.receive,
                       exchange.bytes,
                       exchange.counts,
                       [=](int to, size_t array) { return exchange.slice(to, array); });
  }

  int start_all_gather(std::byte* buffer,
                       size_t bytes,
                       const RankGroup& group,
                       std::span<const int> counts) override {
    if (group != everyone() || !counts.empty()) {
      const std::byte* const mine = buffer + slots_before(counts, group.index_of(rank_)) * bytes;
      return start_pairs(FlightOp::kAllGather, group, buffer, bytes, counts, [=](int, size_t k) {
        return mine + k * bytes;
      });
    }
    return start(FlightOp::kAllGather, [=, this](cudaStream_t stream) {
      const std::byte* mine = buffer + static_cast<size_t>(rank_) * bytes;  // in place, for NCCL
      if (bytes > 0) LOCKSTEP_NCCL(all_gather, mine, buffer, bytes, ncclInt8, comm_, stream);
    });
  }

  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    return start(FlightOp::kReduceScatter, [=, this](cudaStream_t stream) {
      const size_t count = static_cast<size_t>(elements);
      if (count > 0)
        LOCKSTEP_NCCL(reduce_scatter, send, receive, count, ncclFloat32, ncclSum, comm_, stream);
    });
  }

  void wait(int handle) override {
    const auto slot = static_cast<size_t>(handle);
    LOCKSTEP_CHECK(pending_[slot]);
    pending_[slot] = false;
    queue([this, slot] { LOCKSTEP_CUDA(cudaStreamWaitEvent(compute_, queue_->done[slot], 0)); });
  }

  void broadcast(std::byte* buffer, size_t bytes, int root) override {
    wait(start(FlightOp::kBroadcast, [=, this](cudaStream_t stream) {
      if (bytes > 0) LOCKSTEP_NCCL(broadcast, buffer, buffer, bytes, ncclInt8, root, comm_, stream);
    }));
  }

  void set_bucket(int bucket) override { bucket_ = bucket; }

  void check() override {
    ncclResult_t state = ncclSuccess;
    LOCKSTEP_NCCL(comm_get_async_error, comm_, &state);
    if (state != ncclSuccess && state != ncclInProgress) {
      failed_ = true;
      check_.nccl(state, comm_, "an operation under way", __FILE__, __LINE__);
    }
    const DeviceWait::State wait = wait_.check();
    failed_ = failed_ || wait.error != cudaSuccess || wait.exceeded_s > 0;
    check_.cuda(wait.error, "work queued on the GPU", __FILE__, __LINE__);
    if (wait.exceeded_s > 0)
      throw CommError("{}: the GPU has not finished its work within {:g} s: {}",
                      check_.who(),
                      wait.exceeded_s,
                      where_it_hangs());
  }

 private:
  // Sends slice(i, k), for each k of this rank's count, to each other index i of the group, and
  // receives what those send.
  template <typename Slice>
  int start_pairs(FlightOp op,
                  const RankGroup& group,
                  std::byte* receive,
                  size_t bytes,
                  std::span<const int> counts,
                  Slice slice) {
    return start(op, [=, this](cudaStream_t stream) {
      if (bytes == 0) return;
      const size_t mine = count_of(counts, group.index_of(rank_));
      LOCKSTEP_NCCL(group_start);
      OpenGroup open(library_);
      for_each_partner(group, rank_, [&](int from, int to) {
        for (size_t k = 0; k < mine; ++k)
          LOCKSTEP_NCCL(send, slice(to, k), bytes, ncclInt8, group.rank_of(to), comm_, stream);
        std::byte* const slots = receive + slots_before(counts, from) * bytes;
        for (size_t k = 0; k < count_of(counts, from); ++k)
          LOCKSTEP_NCCL(
              recv, slots + k * bytes, bytes, ncclInt8, group.rank_of(from), comm_, stream);
      });
      open.library = nullptr;
      LOCKSTEP_NCCL(group_end);
    });
  }

  // Queues the calls of `body` on the communication stream, behind what `compute` has queued so
  // far.
  template <typename Body>
  int start(FlightOp op, Body body) {
    if (failed_) throw CommError("{}: NCCL has failed before", check_.who());
    size_t slot = 0;
    while (slot < kMaxPending && pending_[slot]) ++slot;
    LOCKSTEP_CHECK(slot < kMaxPending, "more than {} operations under way ", kMaxPending);
    const uint64_t label = DevicePoint::label(op, bucket_);
    queue([this, slot, label, body] { start_in(slot, label, body); });
    pending_[slot] = true;
    return static_cast<int>(slot);
  }

  template <typename Body>
  void start_in(size_t slot, uint64_t label, Body body) {
    try {
      LOCKSTEP_CUDA(cudaEventRecord(queue_->ready[slot], compute_));
      LOCKSTEP_CUDA(cudaStreamWaitEvent(queue_->stream, queue_->ready[slot], 0));
      if (options_.mark) options_.mark(queue_->stream, label);
      body(queue_->stream);
      settle(options_.operation_timeout_s, "start an operation");
      if (options_.mark) options_.mark(queue_->stream, label);
      LOCKSTEP_CUDA(cudaEventRecord(queue_->done[slot], queue_->stream));
    } catch (const CommError&) {
      failed_ = true;
      throw;
    }
  }

  template <typename Work>
  void queue(Work work) {
    if (options_.outside) {
      options_.outside(std::move(work));
    } else {
      work();
    }
  }

  // A call on a non-blocking communicator may continue in the background, and the next call must
  // wait until it has finished. This does not wait for queued work.
  void settle(double timeout_s, const char* what) {
    const double start = now_ms();
    for (int round = 0;; ++round) {
      ncclResult_t state = ncclSuccess;
      LOCKSTEP_NCCL(comm_get_async_error, comm_, &state);
      if (state == ncclSuccess) return;
      failed_ = true;  // if check_ throws
      check_.nccl(state, comm_, what, __FILE__, __LINE__);
      if (now_ms() - start > timeout_s * 1000)
        throw CommError(
            "{}: NCCL did not {} within {:g} s; check that the hosts reach each other: "
            "NCCL_SOCKET_IFNAME names the network, firewalls must let its ports through, and "
            "NCCL_DEBUG=INFO shows what NCCL tries",
            check_.who(),
            what,
            timeout_s);
      constexpr int kSpins = 100, kWatch = 64;
      if (round % kWatch == kWatch - 1 && options_.watch) options_.watch();
      failed_ = false;
      if (round > kSpins) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // What this rank alone knows.
  std::string where_it_hangs() const {
    const DevicePoint at =
        DevicePoint::of(options_.reached == nullptr ? 0 : options_.reached->load());
    if (at.inside())
      return fmt::format("it is in the {}, and another rank is late or hangs", text_of(at));
    if (at.count > 0) return fmt::format("it hangs in a computation after the {}", text_of(at));
    return "another rank is late or hangs";
  }

  // Destroys NCCL's communicator: normally or, if something has failed or the other ranks do not
  // end too, by aborting it. If an exception is being thrown, it aborts at once, so that the error
  // is reported soon.
  void end() {
    if (comm_ == nullptr) return;
    failed_ = failed_ || std::uncaught_exceptions() > 0;
    if (!failed_) {
      try {
        LOCKSTEP_NCCL(comm_finalize, comm_);
        settle(kEndSeconds, "end");
      } catch (const CommError&) {
        failed_ = true;
      }
    }
    if (failed_) {
      library_.comm_abort(comm_);
    } else {
      library_.comm_destroy(comm_);
    }
    comm_ = nullptr;
  }

  const NcclLibrary& library_;
  NcclOptions options_;
  int rank_, size_;
  NcclCheck check_;
  CUstream_st* compute_;
  std::optional<StreamAndEvents> queue_;
  ncclComm_t comm_ = nullptr;
  std::array<bool, kMaxPending> pending_{};
  int bucket_ = -1;
  bool failed_ = false;
  DeviceWait wait_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control,
                                                     CUstream_st* compute,
                                                     const NcclOptions& options) {
  const NcclLibrary* library = nullptr;
  run_on_all(control, [&] { library = &nccl_library(); });
  return make_nccl_communicator(control, compute, options, *library);
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& control,
                                                     CUstream_st* compute,
                                                     const NcclOptions& options,
                                                     const NcclLibrary& library) {
  return std::make_unique<NcclCommunicator>(control, compute, options, library);
}

}  // namespace lockstep::collectives
