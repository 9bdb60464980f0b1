#include "collectives/agree/agreement.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/failure.h"
#include "runtime/base/text.h"

namespace lockstep::collectives {
namespace {

// The outcome on one rank. The size is fixed, so that one all-gather carries it.
struct Outcome {
  int32_t code = 0;
  char message[1020] = {};
};

Outcome outcome_of(const std::function<void()>& action) {
  Outcome outcome;
  try {
    action();
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    outcome.code = static_cast<int32_t>(failure.code);
    std::strncpy(outcome.message, failure.message.c_str(), sizeof(outcome.message) - 1);
  }
  return outcome;
}

std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

// Names and values, each followed by a zero byte.
std::string text_of(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    for (const std::string& part : {fact.name, fact.value}) (text += part) += '\0';
  }
  return text;
}

std::vector<Fact> facts_of(const std::string& text) {
  std::vector<Fact> facts;
  std::istringstream stream(text);
  for (Fact fact; std::getline(stream, fact.name, '\0') && std::getline(stream, fact.value, '\0');)
    facts.push_back(fact);
  return facts;
}

// "rank 0", "ranks 0, 2 and 3".
std::string list_of_ranks(const std::vector<size_t>& ranks) {
  std::vector<std::string> numbers;
  for (const size_t rank : ranks) numbers.push_back(std::to_string(rank));
  return fmt::format("rank{} {}", plural(ranks.size()), joined_with("and", numbers));
}

const std::string* value_of(const std::vector<Fact>& facts, const std::string& name) {
  const auto found =
      std::find_if(facts.begin(), facts.end(), [&](const Fact& fact) { return fact.name == name; });
  return found == facts.end() ? nullptr : &found->value;
}

// "schedule.lr is 0.001 on ranks 0 and 2, 0.002 on rank 1"; empty if all ranks have the same value.
std::string difference_in(const std::string& name, const std::vector<std::vector<Fact>>& ranks) {
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;  // value, ranks that have it
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string* const found = value_of(ranks[rank], name);
    const std::string value = found == nullptr ? "not given" : *found;
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (group == groups.end()) {
      groups.push_back({value, {rank}});
    } else {
      group->second.push_back(rank);
    }
  }
  if (groups.size() == 1) return "";
  std::string text;
  for (const auto& [value, holders] : groups)
    text += fmt::format("{} {} on {}", text.empty() ? " is" : ",", value, list_of_ranks(holders));
  return name + text;
}

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

void require_same_facts(Communicator& communicator,
                        const std::vector<Fact>& facts,
                        const std::string& advice,
                        ExitCode code) {
  if (communicator.size() == 1) return;
  const std::string mine = text_of(facts);
  std::vector<uint64_t> hashes(static_cast<size_t>(communicator.size()));
  hashes[static_cast<size_t>(communicator.rank())] = hash_text(mine);
  communicator.all_gather(bytes_of(hashes.data()), sizeof(uint64_t));
  if (std::count(hashes.begin(), hashes.end(), hashes[0]) == communicator.size()) return;
  std::vector<std::vector<Fact>> ranks;
  for (const std::string& text : gather_texts(communicator, mine)) ranks.push_back(facts_of(text));
  for (const std::vector<Fact>& rank : ranks) {  // names that rank 0 lacks come last
    for (const Fact& fact : rank) {
      const std::string difference = difference_in(fact.name, ranks);
      if (!difference.empty())
        throw AgreedError(code, fmt::format("the ranks differ: {}; {}", difference, advice));
    }
  }
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

}  // namespace lockstep::collectives
