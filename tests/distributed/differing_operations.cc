// Ranks of which the last one, at one point, does something else than the others: what a defect of
// the program, or other programs on some hosts, would come to. Started by
// differing_operations_test.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "launcher/ranks/session.h"
#include "launcher/ranks/transport.h"
#include "launcher/run/watch_run.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"

namespace lockstep::test {
namespace {

constexpr size_t kBytes = 4096;

// One of several operations, and what differs in it.
void operate(collectives::Communicator& communicator, const std::string& difference, bool differs) {
  const auto ranks = static_cast<size_t>(communicator.size());
  std::vector<std::byte> one(ranks * kBytes), other(ranks * kBytes);
  const auto exchange = [&](size_t bytes) {
    communicator.wait(
        communicator.start_exchange({one.data(), other.data(), bytes, communicator.everyone()}));
  };
  const auto gather = [&](size_t bytes) {
    communicator.wait(communicator.start_all_gather(one.data(), bytes, communicator.everyone()));
  };
  if (!differs) {
    exchange(kBytes);
    gather(kBytes / 2);
    exchange(kBytes / 4);
  } else if (difference == "kind") {
    exchange(kBytes);
    exchange(kBytes / 2);
    exchange(kBytes / 4);
  } else if (difference == "size") {
    exchange(kBytes);
    gather(kBytes / 2 - 8);
    exchange(kBytes / 4);
  } else if (difference == "order") {
    gather(kBytes / 2);
    exchange(kBytes);
    exchange(kBytes / 4);
  } else if (difference == "skipped") {
    exchange(kBytes);
    exchange(kBytes / 4);
  }
}

void run(const std::string& difference, const std::string& folder, double timeout_s, bool tcp) {
  const std::unique_ptr<launcher::Session> session = launcher::join_run();
  init_log("info", session->communicator().rank(), session->communicator().size());
  try {
    RunConfig config;
    config.output.run_dir = folder;
    config.comm.timeout_s = config.comm.files_timeout_s = timeout_s;
    if (tcp) session->move_to_tcp({});
    const launcher::RunWatch watch(*session, config, /*on_gpu=*/false);
    FlightRecorder::here().begin_phase(FlightPhase::kTraining);
    collectives::Communicator& communicator = session->communicator();
    const bool last = communicator.rank() == communicator.size() - 1;
    for (int64_t step = 0; step < 10'000'000; ++step) {
      FlightRecorder::here().begin_step(step);
      operate(communicator, difference, last && step == 1000);
    }
    std::fprintf(stderr, "nobody has noticed\n");
    std::_Exit(1);
  } catch (const Error& error) {
    session->await_turn_to_report(error.what());
    std::fprintf(
        stderr, "lockstep: rank %d: error: %s\n", session->communicator().rank(), error.what());
    session->abort(static_cast<int>(error.code()), error.what());
  }
}

}  // namespace
}  // namespace lockstep::test

// kind|size|order|skipped FOLDER TIMEOUT_S MPI|TCP
int main(int argc, char** argv) {
  if (argc != 5) return 2;
  lockstep::test::run(argv[1], argv[2], std::atof(argv[3]), argv[4] == std::string("TCP"));
}
