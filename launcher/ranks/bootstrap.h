#pragma once
// The ways into a run, each for join_run() to choose.

#include <memory>
#include <string>

#include "collectives/tcp/options.h"
#include "launcher/ranks/session.h"

namespace lockstep {

// True where a launcher that speaks MPI's start-up protocols started this process.
bool started_by_mpi_launcher();

// Initialises MPI; it is finalised with the session.
std::unique_ptr<Session> join_mpi_run();

// Meets the other ranks over TCP. Throws CommError, ConfigError.
std::unique_ptr<Session> join_tcp_run(TcpOptions options);

// What a rank that ends with this exit code tells the others; they end with the same one.
std::string last_words(int code, const std::string& why);

}  // namespace lockstep
