#include "launcher/doctor/host_pairs.h"

#include <algorithm>
#include <utility>

#include "collectives/agree/agreement.h"
#include "launcher/doctor/fields.h"
#include "runtime/base/time.h"

namespace lockstep::doctor {
namespace {

using collectives::Communicator;
using collectives::RankGroup;

constexpr size_t kMaxRounds = 64;
constexpr size_t kFirstBytes = size_t{1} << 20, kMaxBytes = size_t{16} << 20;

// The exchanges of one rank with its partner of a round. A rank without a partner makes the same
// operations in a group of its own: all ranks must call as many.
class Exchanges {
 public:
  Exchanges(Communicator& communicator, const RankGroup& group)
      : communicator_(communicator), group_(group) {}

  // Milliseconds for `bytes` each way.
  double time(size_t bytes) {
    const size_t room = group_.count == 1 ? 1 : 2 * bytes;
    sent_.resize(std::max(room, sent_.size()));
    received_.resize(sent_.size());
    const double begin_ms = now_ms();
    communicator_.wait(
        communicator_.start_exchange({sent_.data(), received_.data(), bytes, group_}));
    return now_ms() - begin_ms;
  }

  // The larger of the two ranks' numbers.
  double agree(double mine) {
    std::vector<double> both(static_cast<size_t>(group_.count), mine);
    communicator_.wait(communicator_.start_all_gather(
        reinterpret_cast<std::byte*>(both.data()), sizeof(double), group_));
    return *std::ranges::max_element(both);
  }

 private:
  Communicator& communicator_;
  RankGroup group_;
  std::vector<std::byte> sent_, received_;
};

// The first megabyte also empties the buckets of networks that limit the rate but let bursts pass.
HostPair time_pair(Communicator& communicator, const RankGroup& group, double target_ms) {
  constexpr int kSmall = 10, kLarge = 3;
  constexpr size_t kSmallBytes = 8;
  Exchanges exchanges(communicator, group);
  HostPair pair;
  exchanges.agree(0);  // both begin together
  double best_ms = exchanges.time(kSmallBytes);
  for (int i = 1; i < kSmall; ++i) best_ms = std::min(best_ms, exchanges.time(kSmallBytes));
  pair.round_trip_ms = 2 * exchanges.agree(best_ms);
  const double first_ms = exchanges.agree(exchanges.time(kFirstBytes));
  const double wanted = static_cast<double>(kFirstBytes) * target_ms / std::max(first_ms, 1e-3);
  const size_t bytes = static_cast<size_t>(
      std::clamp(wanted, static_cast<double>(kFirstBytes) / 4, static_cast<double>(kMaxBytes)));
  best_ms = 0;
  for (int i = 0; i < kLarge; ++i) {
    const double ms = exchanges.time(bytes);
    if (i == 0 || ms < best_ms) best_ms = ms;
  }
  constexpr double kBitsPerByte = 8, kPerGbit = 1e6;  // bits per millisecond
  pair.gbit = static_cast<double>(bytes) * kBitsPerByte / std::max(exchanges.agree(best_ms), 1e-3) /
              kPerGbit;
  return pair;
}

}  // namespace

std::vector<std::vector<std::pair<int, int>>> rounds_of_pairs(int count) {
  const int even = count + count % 2;  // with an odd count, who meets the last one has a break
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round + 1 < even; ++round) {
    auto& pairs = rounds.emplace_back();
    const auto add = [&](int a, int b) {
      if (a < count && b < count) pairs.emplace_back(std::min(a, b), std::max(a, b));
    };
    add(round, even - 1);
    for (int distance = 1; distance < even / 2; ++distance)
      add((round + distance) % (even - 1), (round + even - 1 - distance) % (even - 1));
  }
  return rounds;
}

std::vector<HostPair> time_host_pairs(Communicator& communicator,
                                      const std::vector<std::string>& machines,
                                      const std::vector<std::string>& names,
                                      double limit_s) {
  std::vector<int> first;  // rank of each host
  for (auto it = machines.begin(); it != machines.end(); ++it)
    if (std::find(machines.begin(), it, *it) == it)
      first.push_back(static_cast<int>(it - machines.begin()));
  auto rounds = rounds_of_pairs(static_cast<int>(first.size()));
  rounds.resize(std::min(rounds.size(), kMaxRounds));
  constexpr double kParts = 5;  // of a round's time that one exchange takes, with a margin
  const double target_ms =
      limit_s * 1000 / static_cast<double>(std::max<size_t>(rounds.size(), 1)) / kParts;
  const int me = communicator.rank();
  std::vector<HostPair> mine;
  for (const auto& pairs : rounds) {
    RankGroup group{me, 1, 1};
    for (const auto& [low, high] : pairs) {
      const int a = first[static_cast<size_t>(low)], b = first[static_cast<size_t>(high)];
      if (me == a || me == b) group = {a, b - a, 2};
    }
    HostPair pair = time_pair(communicator, group, target_ms);
    if (group.count == 1 || me != group.first) continue;
    pair.a = names[static_cast<size_t>(group.rank_of(0))];
    pair.b = names[static_cast<size_t>(group.rank_of(1))];
    mine.push_back(pair);
  }
  std::vector<HostPair> all;
  for (const std::string& text :
       collectives::gather_texts(communicator, json_of(mine).dump({.replace_invalid = true}))) {
    const auto of_rank = from_json<std::vector<HostPair>>(Json::parse(text));
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  return all;
}

}  // namespace lockstep::doctor
