#pragma once
// One rank's connection to another: a stream of frames in each direction.
//
// A frame is a header and its bytes. Both ends queue the same operations in the same order, so a
// frame's position in the stream determines its operation. The header names the operation too, so
// that ranks that run different operations find out instead of mixing up bytes. Frames are sent
// from, and received into, the buffers of the operation: nothing is copied.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collectives/communicator.h"
#include "collectives/tcp/socket.h"
#include "runtime/base/error.h"

namespace lockstep::collectives {

enum class FrameKind : uint32_t {
  kExchange = 1,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kGoodbye,  // the sender has ended normally; nothing follows
  kFailure,  // the sender has noticed a failure; the bytes are its text
  kAbort     // a rank has failed and has reported it to the user; the bytes are its text
};

// A rank has failed and has reported it to the user.
class ReportedError : public CommError {
 public:
  using CommError::CommError;
};

struct FrameHeader {
  uint32_t magic = 0;
  FrameKind kind = FrameKind::kGoodbye;
  uint64_t sequence = 0;  // of the operation
  uint64_t bytes = 0;
};

std::string text_of(const FrameHeader& header);

// Frames that are still to be moved, oldest first. At most one for each operation and direction.
class FrameQueue {
 public:
  struct Frame {
    FrameHeader header;
    std::byte* data = nullptr;
    size_t moved = 0;  // includes the header when sending
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
  // The number of frames that each operation still waits for, over all connections.
  using Outstanding = std::array<int, Communicator::kMaxPending>;

  // `rank` and `name`, "rank 2 on node1", are the other end's; `own_name` is this rank's.
  Connection(
      Socket socket, int rank, std::string name, std::string own_name, Outstanding& outstanding);

  const std::string& name() const { return name_; }
  int descriptor() const { return socket_.descriptor(); }

  void queue_send(const FrameHeader& header, const std::byte* data, int operation);
  void queue_receive(const FrameHeader& header, std::byte* data, int operation);

  // Moves what can be moved without waiting; returns the number of bytes. Throws CommError, which
  // names the other end, if that is gone, has failed (ReportedError if that has been reported to
  // the user), or runs another operation.
  size_t progress();
  // The events to poll for; 0 for none.
  short wanted_events() const;
  // Whether a queued operation waits for bytes from the other end, or for the other end to take
  // bytes.
  bool waits_to_receive(int operation) const { return receiving_.has(operation); }
  bool waits_to_send(int operation) const { return sending_.has(operation); }

  // Whether the other end has reported its failure, as far as this rank has read. If so, its
  // process lives, or lived long enough to do so.
  bool has_reported_failure() const {
    return failure_bytes_ > 0 && failure_bytes_ == failure_.size();
  }
  bool is_open() const { return socket_.is_open() && !at_end_; }

  // Throws CommError if sent bytes are being retransmitted and the other end's host has answered
  // nothing for minutes. The host answers whether or not the rank reads.
  void require_answering_host();

  // Ends the stream to the other rank: normally (kGoodbye), or with kFailure or kAbort and the
  // text. The text is not sent if a frame has been sent only in part.
  void end_sending(FrameKind kind, const std::string& text);
  // Reads and drops what still arrives; returns true once the other end has ended its stream too.
  // Does not wait.
  bool drain();
  void close() { socket_.close(); }

 private:
  size_t progress_sending();
  size_t progress_receiving();
  size_t receive(std::byte* data, size_t bytes);
  bool receive_control_frame(size_t& moved);
  void require_expected();
  [[noreturn]] void lost(const char* why);

  Socket socket_;
  int rank_;
  std::string name_, own_name_;
  Outstanding& outstanding_;
  FrameQueue sending_, receiving_;
  FrameHeader arriving_;  // header of the frame that arrives
  size_t arriving_bytes_ = 0;
  std::string failure_;  // text of the kFailure or kAbort frame that arrives
  size_t failure_bytes_ = 0;
  bool got_goodbye_ = false;  // from the other end
  bool at_end_ = false;       // the other end's stream has ended
};

}  // namespace lockstep::collectives
