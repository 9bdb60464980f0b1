#pragma once
// Streams, events and graphs of the stand-in for CUDA on the host. Work is a graph: each piece
// comes after the one before it in its stream, and after the events that the stream was told to
// wait for. It is done only when the host waits or asks, piece by piece, in one of the orders that
// the graph allows: what reads host memory too late, is given host memory that changes too early,
// or relies on an order that no event makes goes wrong here as it would on a GPU. A stream that is
// being captured records its work instead. FAKE_CUDA_ORDER=N in the environment takes the Nth
// order; without it the work is done in the order given. FAKE_CUDA_HANG=G:P makes piece P of the
// Gth launch of a graph hang, both counted from 1 (G:x4: its exchange 4, from 0; G:last), or the
// Pth piece outside of graphs if G is 0. FAKE_CUDA_COUNT=1 prints how often a stream ran dry, that
// is waited for the host.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

struct CUstream_st;

namespace lockstep::fibers {

// A piece of work that is queued. Null stands for one that was done long ago.
struct Piece;
using PieceRef = std::shared_ptr<Piece>;

// A piece's work, which returns whether it is done: if not, it is asked again while others go on.
using Work = std::function<bool()>;

// What is recorded instead of being done. A piece names those that it comes after by number.
struct Recording {
  struct Piece {
    Work work;
    std::vector<size_t> after;
    const CUstream_st* stream;
    bool exchange = false;  // among ranks
  };
  std::vector<Piece> pieces;
  bool broken = false;                      // by a call that a capture does not allow
  std::vector<std::shared_ptr<void>> held;  // by the graphs of what is recorded
};

}  // namespace lockstep::fibers

struct CUstream_st {
  // What the next piece of work comes after: pieces, and while captured numbers of recorded ones.
  std::vector<lockstep::fibers::PieceRef> after;
  std::shared_ptr<lockstep::fibers::Recording> recording;  // while captured
  std::vector<size_t> recorded_after;
  bool origin = false;  // of the capture, not joined to it
};

namespace lockstep::fibers {

// Queues or records `work`; at once without a stream.
void enqueue(CUstream_st* stream, std::function<void()> work);
// The same for an exchange among ranks, which must not keep the host from other work.
void enqueue_exchange(CUstream_st* stream, Work work);
// Queues all that was recorded, as one piece of the stream's work.
void enqueue(CUstream_st* stream, const Recording& recording);
// Where the stream is being captured, keeps `what` as long as the graph or one made of it lives.
void hold(CUstream_st* stream, std::shared_ptr<void> what);
// Whether all that the stream was given is done.
bool done(const CUstream_st& stream);
bool done(const PieceRef& piece);
// Does one piece of queued work, of any stream.
void advance();
// Does everything that is queued.
void drain();
// Takes the seed's order from here on; without one, the order given.
void use_order(std::optional<unsigned> seed);
// Drops everything that is queued, as a fault does.
void drop();
// Whether this thread captures work.
bool capturing();
// Called before queued work begins and after it has been done, to open and close memory.
inline std::function<void(bool open)> guard_memory;
// Milliseconds that work has taken on the GPU that is played, besides what it takes here; part of
// the time that events note.
inline double spent_ms = 0;
// Called after each piece of work.
inline std::function<void()> after_piece;
// Called after each launch of a kernel, with the place of the call; also in cuda_on_host.h.
inline std::function<void(const std::source_location& where)> after_launch;

}  // namespace lockstep::fibers
