#pragma once
// The messages between `launch` and its agents, one on each host, over the agents' standard input
// and output.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

enum class MessageKind : uint8_t {
  kHello,       // agent: ready; text: JSON {"host", "port", "build", "undead"}: a port that is free
                // there; the processes of --given-up that still exist, with their states
  kStart,       // launch: ranks to start, after kConfig; text: JSON of StartOrder
  kBegun,       // agent: `rank` has started, as process `value`
  kOutput,      // agent: `rank` has written the text to its stream `value`, 1 or 2
  kEnded,       // agent: `rank` has ended; `value`: its exit code, or 128 + a signal
  kSignal,      // launch: send signal `value` to every rank
  kUnkillable,  // agent: `rank`, process `value`, still exists some seconds after SIGKILL; text:
                // JSON {"state", "started"} of process_state.h
  kConfig,      // launch: the config's text for all ranks to be started
  kBeat         // both: the sender is alive
};

struct Message {
  MessageKind kind = MessageKind::kBeat;
  int32_t rank = -1;
  int32_t value = 0;
  std::string text;
};

std::string encode(const Message& message);

// What an agent has to start: the command, its folder, and the ranks with their variables
// ("NAME=VALUE").
struct StartOrder {
  std::string folder;
  std::vector<std::string> words;  // of the command, the same for all ranks
  struct Rank {
    int rank = 0;
    std::vector<std::string> variables;
  };
  std::vector<Rank> ranks = {};
  double silence_s = 0;  // time without a message after which the agent kills the ranks; 0: never
  double blocked_s = 0;  // time blocked in the kernel after which it kills a rank; 0: never
};
std::string to_text(const StartOrder& order);
StartOrder start_order_from(const std::string& text);

// Collects bytes as they arrive and returns complete messages.
class MessageReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // Throws CommError if the bytes are not messages, such as output of a shell's start-up files.
  std::optional<Message> next();

 private:
  std::string bytes_;
};

}  // namespace lockstep::launch
