#include "tests/fibers/host_stream.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::fibers {

struct Piece {
  Work work;
  const CUstream_st* stream = nullptr;
  unsigned long number = 0;  // in the order given
  size_t missing = 0;        // pieces that come before it and are not done
  unsigned long asked = 0;   // how often it was not done
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

// How often each stream had nothing left to do. With FAKE_CUDA_COUNT=1 in the environment, prints
// this at the end for the stream that was given most.
class StreamCounts {
 public:
  StreamCounts() : prints_(std::getenv("FAKE_CUDA_COUNT") != nullptr) {}
  ~StreamCounts() {
    if (!prints_ || counts_.empty()) return;
    const Count& most = std::ranges::max_element(counts_, {}, [](const auto& entry) {
                          return entry.second.given;
                        })->second;
    std::fprintf(
        stderr, "stand-in: a stream of %lu pieces ran dry %lu times\n", most.given, most.dry);
  }
  void give(const CUstream_st* stream) {
    Count& count = counts_[stream];
    ++count.given;
    ++count.left;
  }
  void finish(const CUstream_st* stream) {
    Count& count = counts_[stream];
    if (--count.left == 0) ++count.dry;
  }

 private:
  struct Count {
    unsigned long given = 0, left = 0, dry = 0;
  };
  bool prints_;
  std::map<const CUstream_st*, Count> counts_;
};
StreamCounts stream_counts;

PieceRef add(const CUstream_st* stream, const std::vector<PieceRef>& after, Work work) {
  stream_counts.give(stream);
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

struct Hang {
  unsigned long launch = 0;  // of a graph, from 1; 0: outside of graphs
  std::string piece;         // its number, from 1; x4: exchange 4, from 0; last
};
const Hang& hang() {
  static const Hang told = [] {
    const char* const text = std::getenv("FAKE_CUDA_HANG");
    const std::string all = text == nullptr ? "0:0" : text;
    return Hang{std::stoul(all), all.substr(all.find(':') + 1)};
  }();
  return told;
}

size_t hanging_piece(const Recording& recording) {
  const auto& pieces = recording.pieces;
  if (hang().piece == "last") return pieces.size() - 1;
  if (hang().piece[0] != 'x') return std::stoul(hang().piece) - 1;
  size_t exchange = std::stoul(hang().piece.substr(1)), i = 0;
  for (; i < pieces.size(); ++i)
    if (pieces[i].exchange && exchange-- == 0) break;
  return i;
}

// Prints the first exchange of the graph that cannot be reached if this piece hangs.
void report_hang(const Recording& recording, size_t piece) {
  std::vector<bool> held(recording.pieces.size());
  size_t exchanges = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    const Recording::Piece& recorded = recording.pieces[i];
    held[i] = i == piece || std::ranges::any_of(recorded.after, [&](size_t j) { return held[j]; });
    if (!recorded.exchange) continue;
    if (held[i]) break;
    ++exchanges;
  }
  std::fprintf(stderr,
               "stand-in: piece %zu of %zu hangs, before the graph's exchange %zu\n",
               piece + 1,
               held.size(),
               exchanges);
}

void enqueue_work(CUstream_st* stream, Work work, bool exchange) {
  if (stream->recording) {
    auto& pieces = stream->recording->pieces;
    pieces.push_back({std::move(work), stream->recorded_after, stream, exchange});
    stream->recorded_after = {pieces.size() - 1};
    return;
  }
  if (!working) set_open(false);
  static unsigned long pieces = 0;
  static const unsigned long hangs = hang().launch == 0 ? std::stoul(hang().piece) : 0;
  if (++pieces == hangs) work = [] { return false; };
  stream->after = {add(stream, stream->after, std::move(work))};
  if (blocking()) drain();
}

PieceRef take_ready() {
  if (random_order) random_order->next();
  const auto before = [](const PieceRef& a, const PieceRef& b) {
    if (a->asked != b->asked) return a->asked < b->asked;
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
  enqueue_work(
      stream, [once = std::move(work)] { return once(), true; }, /*exchange=*/false);
}

void enqueue_exchange(CUstream_st* stream, Work work) {
  if (stream != nullptr) return enqueue_work(stream, std::move(work), /*exchange=*/true);
  while (!work()) {
  }
}

void enqueue(CUstream_st* stream, const Recording& recording) {
  if (!working) set_open(false);
  static unsigned long launches = 0;
  const bool hangs = ++launches == hang().launch;
  const size_t hanging = hangs ? hanging_piece(recording) : recording.pieces.size();
  if (hangs) report_hang(recording, hanging);
  const PieceRef begin = add(stream, stream->after, {});
  std::vector<PieceRef> pieces, last = {begin};
  for (const Recording::Piece& recorded : recording.pieces) {
    std::vector<PieceRef> after = {begin};
    for (size_t i : recorded.after) after.push_back(pieces[i]);
    const bool good = pieces.size() != hanging;
    pieces.push_back(add(
        recorded.stream, after, good ? recorded.work : [] { return false; }));
    last.push_back(pieces.back());
  }
  stream->after = {add(stream, last, {})};
}

void hold(CUstream_st* stream, std::shared_ptr<void> what) {
  if (stream->recording) stream->recording->held.push_back(std::move(what));
}

void advance() {
  if (ready.empty() || working) return;
  working = true;
  set_open(true);
  const PieceRef piece = take_ready();
  if (piece->work && !piece->work()) {
    ++piece->asked;
    ready.push_back(piece);
    working = false;
    return;
  }
  piece->work = nullptr;
  piece->done = true;
  stream_counts.finish(piece->stream);
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
