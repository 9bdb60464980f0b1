#include "launcher/doctor/examine.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "collectives/agree/agreement.h"
#include "collectives/agree/clock_offset.h"
#include "launcher/doctor/fields.h"
#include "launcher/doctor/host_pairs.h"
#include "launcher/doctor/read_gpus.h"
#include "launcher/doctor/read_host.h"
#include "launcher/doctor/read_network.h"
#include "launcher/ranks/transport.h"
#include "runtime/base/host.h"
#include "runtime/cpu/device.h"

namespace lockstep::doctor {
namespace {

// The time of day, unlike now_ms(), whose zero is another one on every host.
double time_of_day_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

RankFacts read_rank(launcher::Session& session, const ExamineOptions& options) {
  RankFacts facts;
  facts.host = host_name();
  facts.machine = host_identity();
  facts.local_rank = session.local_rank();
  facts.local_ranks = session.local_ranks();
  facts.cpus = read_cpus();
  facts.memory = read_memory();
  facts.limits = read_limits();
  facts.start = read_start(session, options.why_apart);
  facts.network = read_network(session.networks());
  if (facts.local_rank == 0) facts.gpus = read_gpus(options.copies_s, options.gpu_limit_s);
  if (session.communicator().rank() == 0)
    facts.disk = read_disk(options.run_dir, options.disk_limit_s);
  return facts;
}

}  // namespace

RunFacts examine(launcher::Session& session, const ExamineOptions& options) {
  RankFacts mine = read_rank(session, options);
  launcher::choose_transport(session, CommConfig::Transport::kAuto, cpu::make_device()->ops());
  collectives::Communicator& communicator = session.communicator();
  const collectives::ClockOffset offset =
      collectives::measure_clock_offset(communicator, time_of_day_ms);
  mine.clock_ahead_s = -offset.add_ms / 1000;
  mine.clock_within_s = offset.within_ms / 1000;
  RunFacts run;
  if (communicator.size() > 1) run.transport = communicator.name();
  const std::vector<std::string> machines = collectives::gather_texts(communicator, mine.machine),
                                 names = collectives::gather_texts(communicator, mine.host);
  if (std::set(machines.begin(), machines.end()).size() > 1)
    run.pairs = time_host_pairs(communicator, machines, names, options.exchanges_s);
  for (const std::string& text :
       collectives::gather_texts(communicator, json_of(mine).dump({.replace_invalid = true})))
    run.ranks.push_back(from_json<RankFacts>(Json::parse(text)));
  return run;
}

}  // namespace lockstep::doctor
