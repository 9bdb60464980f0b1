#include "collectives/watch/recorded_communicator.h"

#include <array>

#include "runtime/base/flight_recorder.h"

namespace lockstep::collectives {
namespace {

class RecordedCommunicator final : public Communicator {
 public:
  explicit RecordedCommunicator(Communicator& inner)
      : inner_(inner), recorder_(FlightRecorder::here()) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const char* name() const override { return inner_.name(); }

  int start_exchange(const SliceExchange& exchange) override {
    return started(
        FlightOp::kExchange, exchange.bytes, [&] { return inner_.start_exchange(exchange); });
  }
  int start_all_gather(std::byte* buffer,
                       size_t bytes,
                       const RankGroup& group,
                       std::span<const int> counts) override {
    return started(FlightOp::kAllGather, bytes, [&] {
      return inner_.start_all_gather(buffer, bytes, group, counts);
    });
  }
  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
    return started(FlightOp::kReduceScatter, bytes, [&] {
      return inner_.start_reduce_scatter(send, receive, elements);
    });
  }
  void wait(int handle) override {
    const Pending& pending = pending_[static_cast<size_t>(handle)];
    recorder_.wait(pending.number, pending.op, pending.bytes);
    inner_.wait(handle);
    recorder_.end(pending.number, pending.op, pending.bytes);
  }
  void broadcast(std::byte* buffer, size_t bytes, int root) override {
    const uint64_t number = recorder_.begin_waiting(FlightOp::kBroadcast, bytes);
    inner_.set_bucket(recorder_.bucket());
    inner_.broadcast(buffer, bytes, root);
    recorder_.end(number, FlightOp::kBroadcast, bytes);
  }
  void set_bucket(int bucket) override { inner_.set_bucket(bucket); }
  void progress() override { inner_.progress(); }
  double timeout_s() const override { return inner_.timeout_s(); }
  void set_files_timeout_s(double seconds) override { inner_.set_files_timeout_s(seconds); }
  void check() override { inner_.check(); }

 private:
  struct Pending {
    uint64_t number = 0;
    FlightOp op = FlightOp::kNone;
    size_t bytes = 0;
  };

  template <typename Start>
  int started(FlightOp op, size_t bytes, Start start) {
    const uint64_t number = recorder_.begin(op, bytes);
    inner_.set_bucket(recorder_.bucket());
    const int handle = start();
    pending_[static_cast<size_t>(handle)] = {number, op, bytes};
    return handle;
  }

  Communicator& inner_;
  FlightRecorder& recorder_;
  std::array<Pending, kMaxPending> pending_{};
};

}  // namespace

std::unique_ptr<Communicator> make_recorded(Communicator& inner) {
  return std::make_unique<RecordedCommunicator>(inner);
}

}  // namespace lockstep::collectives
