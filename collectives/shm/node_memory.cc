// Memory shared by the ranks of a node, and events in it.
//
// Every rank makes an anonymous file for its gradients (pieces_) and one for its signals, and maps
// those of all others. The first rank makes one for the parameters of the node too (common_):
//
//   index 0   piece(0)   signals   common()       every rank maps all of them; which rank writes
//   index 1   piece(1)   signals                  what is up to the callers
//
// A signal is a counter of the events that its rank has reached (kGradients: my gradients of one
// more bucket can be read; ...). signal() increments it, wait() returns once the counters of all
// ranks have reached `count`. The ranks go through the same events in the same order, so a count
// identifies an event. Counters are compared by their difference, so they may wrap around. The
// store and the load order memory: whatever a rank wrote before its signal can be read by those
// that have waited.
//
// A waiter spins, then yields the core, then sleeps in a futex. The order of two accesses makes it
// impossible to miss a wake-up: the waiter increments `sleepers` and then reads `count`, the
// signaller writes `count` and then reads `sleepers`. As both are sequentially consistent, either
// the waiter sees the new count or the signaller sees the sleeper. The kernel lets it sleep only if
// `count` is still the value seen.
//
// Every few milliseconds a sleeper checks whether the awaited process has ended (a pidfd), another
// rank has reported a failure, or the time is up.
#include "collectives/shm/node_memory.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

#include "collectives/agree/agreement.h"
#include "collectives/agree/watchdog_error.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_reader.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {

// On its own cache line. The memory is zero at first.
struct NodeMemory::Signal {
  alignas(64) std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleepers;  // ranks that sleep in the kernel
};

namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free, "shared by processes");

bool reached(const std::atomic<uint32_t>& count, uint32_t wanted) {
  return static_cast<int32_t>(count.load(std::memory_order_acquire) - wanted) >= 0;
}

uint32_t* word_of(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

// Sleeps until the value differs from `seen`, until woken, or for at most `ms`.
void sleep_while(std::atomic<uint32_t>& value, uint32_t seen, int ms) {
  const timespec limit = {0, ms * 1000000L};
  ::syscall(SYS_futex, word_of(value), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& value) {
  ::syscall(SYS_futex, word_of(value), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

FlightOp op_of(NodeMemory::Event event) {
  switch (event) {
    case NodeMemory::Event::kGradients: return FlightOp::kGradients;
    case NodeMemory::Event::kGradientsRead: return FlightOp::kGradientsRead;
    case NodeMemory::Event::kParameters: return FlightOp::kParameters;
    case NodeMemory::Event::kMessages: return FlightOp::kAllGather;
  }
  return FlightOp::kNone;
}

// What is waited for, in errors.
const char* name_of(NodeMemory::Event event) {
  switch (event) {
    case NodeMemory::Event::kGradients: return "gradients";
    case NodeMemory::Event::kGradientsRead: return "use of gradients";
    case NodeMemory::Event::kParameters: return "parameters";
    case NodeMemory::Event::kMessages: return "message";
  }
  return "";
}

// Messages begin at lines that the processor fetches by themselves: it takes two at a time.
size_t message_stride(size_t bytes) { return (bytes + 127) / 128 * 128; }

int descriptor_of_process(int64_t process) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
}

void warn_not_shared(const Communicator& communicator, const std::string& why) {
  if (communicator.rank() == 0)
    log_warn("the ranks of a node send each other messages, as they cannot share memory: {}", why);
}

}  // namespace

std::unique_ptr<NodeMemory> NodeMemory::join(Communicator& communicator, const Topology& topology) {
  if (topology.per_node == 1) return nullptr;
  const std::vector<std::string> hosts = gather_texts(communicator, host_identity());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    // Several hosts may have been given the same node name.
    const size_t first = rank - rank % static_cast<size_t>(topology.per_node);
    if (hosts[rank] == hosts[first]) continue;
    warn_not_shared(communicator,
                    fmt::format("ranks {} and {} are on different hosts", first, rank));
    return nullptr;
  }
  const std::string& mine = hosts[static_cast<size_t>(communicator.rank())];
  std::unique_ptr<NodeMemory> memory(
      new NodeMemory(communicator, topology.groups_of(communicator.rank()).front()));
  memory->oversubscribed_ =
      std::count(hosts.begin(), hosts.end(), mine) > ::sysconf(_SC_NPROCESSORS_ONLN);
  try {
    memory->signals_ = memory->exchange(kEvents * sizeof(Signal), "signals");
  } catch (const AgreedError& error) {
    warn_not_shared(communicator, error.what());
    return nullptr;
  }
  return memory;
}

NodeMemory::NodeMemory(Communicator& communicator, const RankGroup& group)
    : communicator_(communicator),
      group_(group),
      processes_(static_cast<size_t>(group.count), -1) {}

NodeMemory::~NodeMemory() {
  for (const int process : processes_) {
    if (process >= 0) ::close(process);
  }
}

void NodeMemory::allocate(size_t own, size_t common, std::span<const Range> written) {
  constexpr const char* kCommon = "parameters";
  pieces_ = exchange(own, "gradients");
  SharedMapping mine;
  run_on_all(communicator_,
             [&] { mine = SharedMapping::without_pages(index() == 0 ? common : 0, kCommon); });
  common_ = std::move(map_all(std::move(mine)).front());
  run_on_all(communicator_, [&] {
    for (const Range& range : written)
      common_.take_pages(static_cast<size_t>(range.begin), static_cast<size_t>(range.end), kCommon);
  });
  run_on_all(communicator_, [&] {
    if (index() == 0) common_.take_pages(0, common, kCommon);  // what nobody writes
  });
  common_.close_descriptor();
}

void NodeMemory::allocate_messages(size_t bytes) {
  message_bytes_ = bytes;
  messages_ = exchange(2 * message_stride(bytes), "messages");
}

// A copy is written again two messages later. By then every rank has read it: it has sent the next
// message after that.
void NodeMemory::all_gather_messages(std::byte* buffer) {
  const uint32_t count = signalled_[static_cast<size_t>(Event::kMessages)] + 1;
  const size_t copy = count % 2 * message_stride(message_bytes_);
  const auto slot = [&](int i) { return buffer + static_cast<size_t>(i) * message_bytes_; };
  const auto message = [&](int i) { return messages_[static_cast<size_t>(i)].data() + copy; };
  std::memcpy(message(index()), slot(index()), message_bytes_);
  signal(Event::kMessages);
  wait(Event::kMessages, count, message_bytes_);
  for (int i = 0; i < group_.count; ++i)
    if (i != index()) std::memcpy(slot(i), message(i), message_bytes_);
}

// Makes a mapping of `bytes` and maps those of the other ranks of the node; result by index.
std::vector<SharedMapping> NodeMemory::exchange(size_t bytes, const char* what) {
  SharedMapping mine;
  run_on_all(communicator_, [&] { mine = SharedMapping(bytes, what); });
  std::vector<SharedMapping> mappings = map_all(std::move(mine));
  for (SharedMapping& mapping : mappings) mapping.close_descriptor();
  return mappings;
}

// Maps what each rank of the node has made, and passes as `mine`; result by index.
std::vector<SharedMapping> NodeMemory::map_all(SharedMapping mine) {
  std::vector<SharedMapping::Source> sources(static_cast<size_t>(communicator_.size()));
  sources[static_cast<size_t>(communicator_.rank())] = mine.source();
  communicator_.all_gather(reinterpret_cast<std::byte*>(sources.data()),
                           sizeof(SharedMapping::Source));
  std::vector<SharedMapping> mappings(static_cast<size_t>(group_.count));
  run_on_all(communicator_, [&] {
    for (int i = 0; i < group_.count; ++i) {
      if (i == index()) continue;
      const SharedMapping::Source& source = sources[static_cast<size_t>(group_.rank_of(i))];
      mappings[static_cast<size_t>(i)] = SharedMapping(source);
      int& process = processes_[static_cast<size_t>(i)];
      if (process < 0 && source.process != ::getpid())
        process = descriptor_of_process(source.process);
    }
  });
  mappings[static_cast<size_t>(index())] = std::move(mine);
  return mappings;
}

NodeMemory::Signal& NodeMemory::signal_of(int index, Event event) const {
  return reinterpret_cast<Signal*>(
      signals_[static_cast<size_t>(index)].data())[static_cast<size_t>(event)];
}

uint32_t NodeMemory::signal(Event event) {
  Signal& mine = signal_of(index(), event);
  const uint32_t count = ++signalled_[static_cast<size_t>(event)];
  mine.count.store(count, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) > 0) wake_all(mine.count);
  return count;
}

void NodeMemory::wait(Event event, uint32_t count, size_t bytes) {
  FlightRecorder& recorder = FlightRecorder::here();
  const FlightOp op = op_of(event);
  const uint64_t number = recorder.begin_waiting(op, bytes);
  for_each_partner(
      group_, communicator_.rank(), [&](int from, int) { wait_for(from, event, count); });
  recorder.end(number, op, bytes);
}

// Waits for one rank: spins, then yields the core to other processes, then sleeps.
void NodeMemory::wait_for(int index, Event event, uint32_t count) const {
  constexpr int kSpins = 2000;  // some tens of microseconds
  constexpr double kYieldMs = 2;
  constexpr int kSleepMs = 5;  // how soon the end of the other process is noticed
  Signal& signal = signal_of(index, event);
  for (int spin = 0; spin < (oversubscribed_ ? 1 : kSpins); ++spin) {
    if (reached(signal.count, count)) return;
    pause_briefly();
  }
  for (const double start = now_ms(); now_ms() - start < kYieldMs;) {
    if (reached(signal.count, count)) return;
    communicator_.progress();  // with other nodes
    sched_yield();
  }
  signal.sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (const double start = now_ms();;) {
    const uint32_t seen = signal.count.load(std::memory_order_seq_cst);
    if (reached(signal.count, count)) break;
    communicator_.progress();
    require_live_peer(index, event, now_ms() - start);
    sleep_while(signal.count, seen, kSleepMs);
  }
  signal.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// Throws if a failure is known. A failure that a rank has reported comes before the state of its
// process.
void NodeMemory::require_live_peer(int index, Event event, double waited_ms) const {
  communicator_.check();
  throw_watchdog_error();
  const auto fail = [&](const std::string& what) {
    throw CommError("rank {}: {}", communicator_.rank(), what);
  };
  const std::string peer = fmt::format("rank {} on {}", group_.rank_of(index), host_name());
  pollfd process = {processes_[static_cast<size_t>(index)], POLLIN, 0};
  if (process.fd >= 0 && ::poll(&process, 1, 0) > 0)
    fail(fmt::format("lost {}: its process has ended{}", peer, last_seen(group_.rank_of(index))));
  const double limit_s = communicator_.timeout_s();
  if (limit_s > 0 && waited_ms > limit_s * 1000)
    fail(fmt::format("nothing moved for {:g} s in shared memory; waiting for the {} of {}",
                     limit_s,
                     name_of(event),
                     peer));
}

}  // namespace lockstep::collectives
