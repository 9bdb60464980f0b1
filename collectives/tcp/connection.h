#pragma once
// One rank's connection to one other: a stream of frames each way.
//
// A frame is a header and its bytes. Both ends queue the same operations in the same order, so a
// frame's place in the stream says which operation it belongs to; the header says it again, so that
// ranks that do not agree about what they are doing find out instead of mixing up bytes. Sending
// reads from, and receiving writes to, the buffers of the operation: nothing is copied.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collectives/communicator.h"
#include "collectives/tcp/socket.h"
#include "runtime/base/error.h"

namespace lockstep {

enum class FrameKind : uint32_t {
  kExchange = 1,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kGoodbye,  // the sender has ended in order; nothing follows
  kFailure,  // the sender has noticed a failure; the bytes say which
  kAbort     // a rank has failed, and has told the user why; the bytes say who
};

// A rank has failed and has told the user why.
class ReportedError : public CommError {
 public:
  using CommError::CommError;
};

struct FrameHeader {
  uint32_t magic = 0;
  FrameKind kind = FrameKind::kGoodbye;
  uint64_t sequence = 0;  // number of the operation
  uint64_t bytes = 0;
};

std::string text_of(const FrameHeader& header);

// Frames that are still to be moved, oldest first. At most one frame an operation and direction.
class FrameQueue {
 public:
  struct Frame {
    FrameHeader header;
    std::byte* data = nullptr;
    size_t moved = 0;  // sending counts the header too
    int operation = 0;
  };
  bool empty() const { return count_ == 0; }
  Frame& front() { return frames_[first_]; }
  // Whether a frame of the operation is still to be moved.
  bool has(int operation) const;
  void push(const Frame& frame);
  void pop();

 private:
  std::array<Frame, Communicator::kMaxPending> frames_{};
  size_t first_ = 0, count_ = 0;
};

class Connection {
 public:
  // How many frames each operation still waits for, over all connections.
  using Outstanding = std::array<int, Communicator::kMaxPending>;

  // `rank` and `name`, "rank 2 on node1", are the other end's; `own_name` is this one's.
  Connection(
      Socket socket, int rank, std::string name, std::string own_name, Outstanding& outstanding);

  const std::string& name() const { return name_; }
  int descriptor() const { return socket_.descriptor(); }

  void queue_send(const FrameHeader& header, const std::byte* data, int operation);
  void queue_receive(const FrameHeader& header, std::byte* data, int operation);

  // Moves what can be moved without waiting; returns the bytes. Throws CommError that names the
  // other end where it is gone, has failed (ReportedError: and the user knows), or does something
  // else.
  size_t progress();
  // What poll() should wait for; 0 for nothing.
  short wanted_events() const;
  // Whether an operation that has been queued waits for the other end's bytes, or for it to take
  // ours.
  bool waits_to_receive(int operation) const { return receiving_.has(operation); }
  bool waits_to_send(int operation) const { return sending_.has(operation); }

  // Whether the other end is there, as far as this one has read.
  // It has said that it has failed, and why: its process lives, or lived long enough for that.
  bool has_told_failure() const { return failure_bytes_ > 0 && failure_bytes_ == failure_.size(); }
  bool is_open() const { return socket_.is_open() && !at_end_; }

  // Throws CommError where what has been sent is repeated, and the other end's host has answered
  // nothing for minutes. It answers whether the rank reads or not.
  void check_host();

  // Ends the stream to the other rank: in order (kGoodbye), or with kFailure or kAbort and the
  // text, which cannot be said in the middle of a frame.
  void end_sending(FrameKind kind, const std::string& text);
  // Reads and drops what still comes; true once the other end has ended its stream too. Does not
  // wait.
  bool drain();
  void close() { socket_.close(); }

 private:
  size_t progress_sending();
  size_t progress_receiving();
  size_t receive(std::byte* data, size_t bytes);
  bool receive_control_frame(size_t& moved);
  void check_expected();
  [[noreturn]] void lost(const char* why);

  Socket socket_;
  int rank_;
  std::string name_, own_name_;
  Outstanding& outstanding_;
  FrameQueue sending_, receiving_;
  FrameHeader arriving_;  // header under way, or of the frame under way
  size_t arriving_bytes_ = 0;
  std::string failure_;  // text of a kFailure frame under way
  size_t failure_bytes_ = 0;
  bool said_goodbye_ = false;  // the other end
  bool at_end_ = false;        // its stream
};

}  // namespace lockstep
