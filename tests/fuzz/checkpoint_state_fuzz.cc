// state.textproto under a checksum that is right: finds fields that are believed, and texts that do
// not survive a round trip.

#include "runtime/base/checksum.h"
#include "runtime/checkpoint/format/shards.h"
#include "runtime/checkpoint/format/state.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

// The text without its last line, which holds the checksum.
std::string body_of(const std::string& text) { return text.substr(0, text.rfind("self_checksum")); }

}  // namespace

std::vector<std::string> seed_inputs() {
  checkpoint::CheckpointState state;
  state.step = 5;
  state.ranks = 2;
  state.optimizer = "adamw";
  state.moments = {"exp_avg"};
  state.flat_elements = 8;
  state.layout = {{"w", {2, 3}, 0}, {"b", {}, 6}};
  state.best_metric = 0.5;
  state.extra = {{"key", "value"}};
  state.files = {{checkpoint::kModelFile, 64, 1, {{"w", 6, 2}, {"b", 1, 3}}},
                 {checkpoint::optimizer_file_name(0, 2), 64, 1, {{"exp_avg.0", 4, 2}}},
                 {checkpoint::optimizer_file_name(1, 2), 64, 1, {{"exp_avg.4", 4, 2}}}};
  return {body_of(checkpoint::to_text(state)),
          body_of(checkpoint::to_text(checkpoint::CheckpointState{}))};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  std::string body(reinterpret_cast<const char*>(data), size);
  if (!body.ends_with('\n')) body += '\n';
  try {
    const checkpoint::CheckpointState state = checkpoint::parse_state(
        body + "self_checksum: \"" + to_hex(hash_text(body)) + "\"\n", "input");
    checkpoint::find_inconsistencies(state);
    const std::string text = checkpoint::to_text(state);
    if (checkpoint::to_text(checkpoint::parse_state(text, "again")) != text)
      fuzz::fail("the state changes when saved again");
  } catch (const CheckpointError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos)
      fuzz::fail("a message of two lines");
  }
  return 0;
}
