#pragma once
// Decisions that all ranks share. No rank goes on, or waits, while another has failed.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/base/error.h"

namespace lockstep {

// An error that every rank throws at the same point: the ranks can end in order, and rank 0 speaks
// for all.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Runs `action` on every rank, then exchanges the outcome: if any rank threw an Error, every rank
// throws an AgreedError that repeats the one of the lowest such rank, with the same code and
// message ("rank R: " in front where only some ranks failed).
void run_on_all(Communicator& communicator, const std::function<void()>& action);

// Runs `action` on rank 0 only; all ranks return together, or throw rank 0's error together.
void run_on_root(Communicator& communicator, const std::function<void()>& action);

// What a rank holds to be so: "schedule.lr" is "0.001".
struct Fact {
  std::string name, value;
};

// Returns where all ranks give the same facts. Else every rank throws the same AgreedError of
// `code`: the first fact in which a rank differs, both values, the ranks that have each, and then
// `advice`.
void check_same_facts(Communicator& communicator,
                      const std::vector<Fact>& facts,
                      const std::string& advice,
                      ExitCode code = ExitCode::kUsage);

// The text of rank `root` on every rank.
std::string broadcast_text(Communicator& communicator, const std::string& text, int root = 0);

// Every rank's text, in rank order, on every rank.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text);

// The sum of every rank's value, on every rank.
int64_t sum_over_ranks(Communicator& communicator, int64_t value);

}  // namespace lockstep
