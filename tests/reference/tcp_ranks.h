#pragma once
// Ranks as threads of one process that talk TCP over this host.

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/tcp/tcp_communicator.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::testing {

// Options of `ranks` ranks that meet through `file`.
inline std::vector<collectives::TcpOptions> tcp_ranks(int ranks, const std::string& file) {
  std::vector<collectives::TcpOptions> options(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    collectives::TcpOptions& mine = options[static_cast<size_t>(rank)];
    mine.rank = rank;
    mine.size = ranks;
    mine.file = file;
    mine.version = "1.2.3";
    mine.limits.rendezvous_s = 60;
    mine.limits.operation_s = 60;
  }
  return options;
}

// Runs body(communicator) on a thread for each of the options; returns the message that each rank
// ended with, empty for none.
inline std::vector<std::string> run_tcp_ranks(
    const std::vector<collectives::TcpOptions>& options,
    const std::function<void(collectives::TcpCommunicator&)>& body) {
  std::vector<std::string> errors(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        body(*collectives::make_tcp_communicator(options[i]));
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// What run_tcp_ranks returns where no rank failed.
inline std::vector<std::string> no_errors(size_t ranks) { return std::vector<std::string>(ranks); }

}  // namespace lockstep::testing
