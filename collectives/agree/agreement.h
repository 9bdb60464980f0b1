#pragma once
// Decisions that all ranks take together. If a rank fails, no other one continues, or waits for
// ever.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/base/error.h"

namespace lockstep::collectives {

// An error that every rank throws at the same point, so that all ranks end in order and only rank 0
// needs to report it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Runs `action` on every rank and exchanges the outcomes. If it throws an Error on any rank, every
// rank throws an AgreedError with the code and message of the lowest such rank. The message begins
// with "rank R: " if the action succeeded on other ranks.
void run_on_all(Communicator& communicator, const std::function<void()>& action);

// Runs `action` on rank 0 only. All ranks return together, or all throw rank 0's error.
void run_on_root(Communicator& communicator, const std::function<void()>& action);

// A value that all ranks must have in common: "schedule.lr" is "0.001".
struct Fact {
  std::string name, value;
};

// Returns if all ranks give the same facts. Otherwise every rank throws the same AgreedError with
// `code`: the first fact that differs, its values with the ranks that have each, and then `advice`.
void require_same_facts(Communicator& communicator,
                        const std::vector<Fact>& facts,
                        const std::string& advice,
                        ExitCode code = ExitCode::kUsage);

// Returns the text of rank `root`, on every rank.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root = 0);

// Returns the texts of all ranks, in rank order, on every rank.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text);

// Returns the sum of all ranks' values, on every rank.
int64_t sum_over_ranks(Communicator& communicator, int64_t value);

}  // namespace lockstep::collectives
