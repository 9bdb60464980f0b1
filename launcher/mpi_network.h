#pragma once

#include "launcher/session.h"

namespace lockstep {

// What Open MPI has chosen to send messages through between hosts, as its control variables tell:
// each component that is in use has some. Unknown of other MPI libraries. After MPI_Init.
Session::Network mpi_network();

// The networks that Open MPI was told to keep to (btl_tcp_if_include); empty where it was not.
std::string mpi_networks_to_use();

}  // namespace lockstep
