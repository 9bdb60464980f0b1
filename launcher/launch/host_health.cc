#include "launcher/launch/host_health.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::launch {
namespace {

using Names = std::vector<std::string>;

bool has(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

void add(Names& names, const std::string& name) {
  if (!has(names, name)) names.push_back(name);
}

Names hosts_at_fault(const StartEnd& end) {
  Names names = end.lost_hosts;
  if (const RankEnd* const first = first_to_fail(end)) add(names, first->listed);
  return names;
}

// Whether the rank got a signal to save and stop, or was ended by one that came too early or twice.
bool was_asked_to_stop(const RankEnd& rank, const std::vector<int>& signalled) {
  return rank.code == 128 + SIGTERM || std::ranges::find(signalled, rank.rank) != signalled.end();
}

}  // namespace

HostHealth::HostHealth(const std::vector<launcher::HostSlots>& hosts, const WantedRanks& wanted)
    : wanted_(wanted) {
  for (const launcher::HostSlots& host : hosts) hosts_.push_back({.slots = host});
}

std::vector<launcher::HostSlots> HostHealth::present(double now_s) {
  const bool all = std::exchange(take_all_, false) || !can_do_without({}, now_s);
  std::vector<launcher::HostSlots> present;
  for (const Host& host : hosts_)
    if (all || host.out_until_s <= now_s) present.push_back(host.slots);
  return present;
}

// Whether ranks can be started on the hosts that are neither left out at this time nor in `names`.
bool HostHealth::can_do_without(const Names& names, double now_s) const {
  int slots = 0;
  for (const Host& host : hosts_)
    if (host.out_until_s <= now_s && !has(names, host.slots.name)) slots += host.slots.slots;
  return ranks_for(wanted_.ranks, slots, wanted_.fewer) > 0;
}

Names HostHealth::drained(const StartEnd& end, double now_s) const {
  Names asked, all;
  for (const RankEnd& rank : end.ranks) {
    add(all, rank.listed);
    if (was_asked_to_stop(rank, end.signalled)) add(asked, rank.listed);
  }
  const bool some = !end.stop_requested && wanted_.fewer && asked.size() < all.size();
  return some && can_do_without(asked, now_s) ? asked : Names();
}

double HostHealth::leave_out(Host& host, double now_s) {
  const double pause_s =
      std::min(kLongestPauseSeconds, kFirstPauseSeconds * std::exp2(host.pauses++));
  host.out_until_s = now_s + pause_s;
  host.strikes = kStrikes - 1;
  return pause_s;
}

HostHealth::Notes HostHealth::note(const StartEnd& end, double lasted_s, double now_s) {
  take_all_ = end.ranks.empty();
  const Names at_fault = hosts_at_fault(end);
  Notes notes;
  for (Host& host : hosts_) {
    const std::string& name = host.slots.name;
    if (has(end.drained, name)) {
      notes.left_out = true;
      notes.lines.push_back(fmt::format(
          "host {}: its ranks got a signal to stop; the run continues without this host for "
          "at least {:g} s",
          name,
          leave_out(host, now_s)));
      continue;
    }
    if (!has(at_fault, name)) {
      const bool took_part =
          std::ranges::any_of(end.ranks, [&](const auto& rank) { return rank.listed == name; });
      if (took_part) host.strikes = 0;
      if (took_part && lasted_s > kLongStartSeconds) host.pauses = 0;
      continue;
    }
    if (lasted_s > kLongStartSeconds) host.strikes = 0;
    if (++host.strikes < kStrikes || hosts_.size() == 1) continue;
    const std::string what =
        fmt::format("host {} was the first to fail in {} starts in a row", name, host.strikes);
    if (!wanted_.fewer) {
      notes.lines.push_back(what + "; without --allow-fewer the run needs it");
    } else if (!can_do_without({name}, now_s)) {
      notes.lines.push_back(what + "; the other hosts have too few slots to continue without it");
    } else {
      notes.left_out = true;
      notes.lines.push_back(fmt::format(
          "{}; the run continues without it for at least {:g} s", what, leave_out(host, now_s)));
    }
  }
  return notes;
}

}  // namespace lockstep::launch
