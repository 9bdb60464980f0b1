#include "tests/fibers/host_stream.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

namespace lockstep::fibers {

struct Piece {
  std::function<void()> work;
  const CUstream_st* stream = nullptr;
  unsigned long number = 0;  // in the order given
  size_t missing = 0;        // pieces that come before it and are not done
  std::vector<PieceRef> next;
  bool done = false;
};

namespace {

// The pieces that nothing holds back.
std::vector<PieceRef> ready;
unsigned long given = 0;
bool working = false;
bool open = false;

void set_open(bool wanted) {
  if (open == wanted) return;
  open = wanted;
  if (guard_memory) guard_memory(wanted);
}

PieceRef add(const CUstream_st* stream,
             const std::vector<PieceRef>& after,
             std::function<void()> work) {
  auto piece = std::make_shared<Piece>();
  piece->work = std::move(work);
  piece->stream = stream;
  piece->number = given++;
  for (const PieceRef& earlier : after) {
    if (done(earlier)) continue;
    earlier->next.push_back(piece);
    ++piece->missing;
  }
  if (piece->missing == 0) ready.push_back(piece);
  return piece;
}

// Streams have changing priorities: now one runs far ahead, now another.
class RandomOrder {
 public:
  explicit RandomOrder(unsigned seed) : random_(seed) {}
  bool before(const Piece& a, const Piece& b) {
    const unsigned long x = priority_of(a.stream), y = priority_of(b.stream);
    return x != y ? x < y : a.number < b.number;
  }
  void next() {
    if (random_() % kChange == 0) priorities_.clear();
  }

 private:
  static constexpr unsigned long kChange = 16;
  unsigned long priority_of(const CUstream_st* stream) {
    const auto [entry, is_new] = priorities_.try_emplace(stream, 0);
    if (is_new) entry->second = random_();
    return entry->second;
  }
  std::mt19937_64 random_;
  std::map<const CUstream_st*, unsigned long> priorities_;
};

std::unique_ptr<RandomOrder> order_from_environment() {
  const char* const seed = std::getenv("FAKE_CUDA_ORDER");
  if (seed == nullptr) return nullptr;
  return std::make_unique<RandomOrder>(static_cast<unsigned>(std::atoi(seed)));
}

std::unique_ptr<RandomOrder> random_order = order_from_environment();

// As CUDA does when it is told to: every call waits for what it has queued.
bool blocking() {
  static const char* const told = std::getenv("CUDA_LAUNCH_BLOCKING");
  return told != nullptr && std::string_view(told) == "1";
}

PieceRef take_ready() {
  if (random_order) random_order->next();
  const auto before = [](const PieceRef& a, const PieceRef& b) {
    return random_order ? random_order->before(*a, *b) : a->number < b->number;
  };
  const auto first = std::min_element(ready.begin(), ready.end(), before);
  PieceRef piece = std::move(*first);
  ready.erase(first);
  return piece;
}

}  // namespace

bool done(const PieceRef& piece) { return piece == nullptr || piece->done; }

bool done(const CUstream_st& stream) {
  return std::all_of(
      stream.after.begin(), stream.after.end(), [](const PieceRef& piece) { return done(piece); });
}

void enqueue(CUstream_st* stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  if (stream->recording) {
    auto& pieces = stream->recording->pieces;
    pieces.push_back({std::move(work), stream->recorded_after, stream});
    stream->recorded_after = {pieces.size() - 1};
    return;
  }
  if (!working) set_open(false);
  stream->after = {add(stream, stream->after, std::move(work))};
  if (blocking()) drain();
}

void enqueue(CUstream_st* stream, const Recording& recording) {
  if (!working) set_open(false);
  const PieceRef begin = add(stream, stream->after, {});
  std::vector<PieceRef> pieces, last = {begin};
  for (const Recording::Piece& recorded : recording.pieces) {
    std::vector<PieceRef> after = {begin};
    for (size_t i : recorded.after) after.push_back(pieces[i]);
    pieces.push_back(add(recorded.stream, after, recorded.work));
    last.push_back(pieces.back());
  }
  stream->after = {add(stream, last, {})};
}

void advance() {
  if (ready.empty() || working) return;
  working = true;
  set_open(true);
  const PieceRef piece = take_ready();
  if (piece->work) std::exchange(piece->work, nullptr)();
  piece->done = true;
  for (const PieceRef& next : std::exchange(piece->next, {})) {
    if (--next->missing == 0) ready.push_back(next);
  }
  if (ready.empty()) set_open(false);
  working = false;
  if (after_piece) after_piece();
}

void use_order(std::optional<unsigned> seed) {
  random_order = seed ? std::make_unique<RandomOrder>(*seed) : nullptr;
}

void drain() {
  while (!ready.empty() && !working) advance();
}

void drop() {
  while (!ready.empty()) {
    const PieceRef piece = std::move(ready.back());
    ready.pop_back();
    piece->work = nullptr;
    piece->done = true;
    for (const PieceRef& next : std::exchange(piece->next, {})) {
      if (--next->missing == 0) ready.push_back(next);
    }
  }
  set_open(false);
}

}  // namespace lockstep::fibers
