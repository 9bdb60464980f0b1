#pragma once
// What `launch` and its agents, one on each host, say to each other over the agents' standard input
// and output.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

enum class MessageKind : uint8_t {
  kHello,   // agent: it is there; text: JSON {"host", "port", "build", "undead"}: a port that is
            // free there; which of --given-up are still there, and their states
  kStart,   // launch: ranks to start, after kConfig; text: JSON of StartOrder
  kBegun,   // agent: `rank` runs, as process `value`
  kOutput,  // agent: `rank` has written text to its stream `value`, 1 or 2
  kEnded,   // agent: `rank` has ended; `value`: its exit code, or 128 + a signal
  kSignal,  // launch: signal `value` for every rank
  kUndead,  // agent: `rank`, process `value`, is there some seconds after SIGKILL; text: JSON
            // {"state", "started"}, of process_state.h
  kConfig,  // launch: the config's text for all ranks that are to start
  kBeat     // both: it lives
};

struct Message {
  MessageKind kind = MessageKind::kBeat;
  int32_t rank = -1;
  int32_t value = 0;
  std::string text;
};

std::string encode(const Message& message);

// What an agent is to start, in the folder and with the variables ("NAME=VALUE") that are given.
struct StartOrder {
  std::string folder;
  std::vector<std::string> words;  // of the command, the same for all ranks
  struct Rank {
    int rank = 0;
    std::vector<std::string> variables;
  };
  std::vector<Rank> ranks = {};
  double silence_s = 0;  // after which without a word of `launch` the agent ends them; 0: never
  double blocked_s = 0;  // after which it kills one that the kernel keeps from running; 0: never
};
std::string to_text(const StartOrder& order);
StartOrder start_order_from(const std::string& text);

// Takes bytes as they come and gives whole messages.
class MessageReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // Throws CommError where the bytes are no messages, as what a shell's start-up files print.
  std::optional<Message> next();

 private:
  std::string bytes_;
};

}  // namespace lockstep::launch
