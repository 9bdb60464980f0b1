#include "collectives/agreement.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

// What one rank reports: fixed size, so that one all-gather carries it.
struct Outcome {
  int32_t code = 0;
  char message[1020] = {};
};

Outcome outcome_of(const std::function<void()>& action) {
  Outcome outcome;
  const auto fail = [&](ExitCode code, const char* message) {
    outcome.code = static_cast<int32_t>(code);
    std::strncpy(outcome.message, message, sizeof(outcome.message) - 1);
  };
  try {
    action();
  } catch (const Error& error) {
    fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    fail(ExitCode::kMemory, "out of memory");
  } catch (const std::exception& error) {
    fail(ExitCode::kInternal, error.what());
  }
  return outcome;
}

std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

void run_on_all(Communicator& communicator, const std::function<void()>& action) {
  std::vector<Outcome> outcomes(static_cast<size_t>(communicator.size()));
  outcomes[static_cast<size_t>(communicator.rank())] = outcome_of(action);
  communicator.all_gather(bytes_of(outcomes.data()), sizeof(Outcome));
  const auto failed = [](const Outcome& outcome) { return outcome.code != 0; };
  const auto first = std::find_if(outcomes.begin(), outcomes.end(), failed);
  if (first == outcomes.end()) return;
  const bool everywhere = std::all_of(outcomes.begin(), outcomes.end(), failed);
  const std::string who = everywhere ? "" : fmt::format("rank {}: ", first - outcomes.begin());
  throw AgreedError(static_cast<ExitCode>(first->code), who + first->message);
}

void run_on_root(Communicator& communicator, const std::function<void()>& action) {
  Outcome outcome;
  if (communicator.rank() == 0) outcome = outcome_of(action);
  communicator.broadcast(bytes_of(&outcome), sizeof(outcome), 0);
  if (outcome.code != 0) throw AgreedError(static_cast<ExitCode>(outcome.code), outcome.message);
}

std::string broadcast_text(Communicator& communicator, const std::string& text, int root) {
  uint64_t size = text.size();
  communicator.broadcast(bytes_of(&size), sizeof(size), root);
  std::string result = communicator.rank() == root ? text : std::string(size, '\0');
  communicator.broadcast(bytes_of(result.data()), size, root);
  return result;
}

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text) {
  const size_t ranks = static_cast<size_t>(communicator.size()),
               me = static_cast<size_t>(communicator.rank());
  std::vector<uint64_t> sizes(ranks);
  sizes[me] = text.size();
  communicator.all_gather(bytes_of(sizes.data()), sizeof(uint64_t));
  const size_t slot = *std::max_element(sizes.begin(), sizes.end());
  std::string buffer(slot * ranks, '\0');
  std::copy(text.begin(), text.end(), buffer.begin() + static_cast<std::ptrdiff_t>(me * slot));
  communicator.all_gather(bytes_of(buffer.data()), slot);
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r) texts.push_back(buffer.substr(r * slot, sizes[r]));
  return texts;
}

int64_t sum_over_ranks(Communicator& communicator, int64_t value) {
  std::vector<int64_t> values(static_cast<size_t>(communicator.size()));
  values[static_cast<size_t>(communicator.rank())] = value;
  communicator.all_gather(bytes_of(values.data()), sizeof(int64_t));
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace lockstep
