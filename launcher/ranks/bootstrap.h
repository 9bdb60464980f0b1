#pragma once
// The ways to join a run; join_run() chooses among them.

#include <memory>
#include <string>

#include "collectives/tcp/options.h"
#include "launcher/ranks/session.h"

namespace lockstep::launcher {

// Whether a launcher with one of MPI's start-up protocols started this process.
bool started_by_mpi_launcher();

// Initialises MPI. It is finalised with the session.
std::unique_ptr<Session> join_mpi_run();

// Joins the other ranks over TCP. Throws CommError, ConfigError.
std::unique_ptr<Session> join_tcp_run(collectives::TcpOptions options);

// The message of a rank that ends with this exit code to the others, which end with the same code.
std::string exit_message(int code, const std::string& why);

}  // namespace lockstep::launcher
