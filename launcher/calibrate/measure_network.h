#pragma once
// Measures the network between the hosts of a run, as a link of a hardware file.

#include "launcher/ranks/session.h"
#include "runtime/config/hardware.h"

namespace lockstep::launcher {

// The link "network", over which the ranks of a training run on these hosts would send gradients:
// moves the session to the transport that such a run chooses. Takes some exchanges of 16 MiB a
// host. Collective; the same on every rank. Throws the same AgreedError on all ranks if they are
// on one host.
Link measure_network(Session& session);

// Makes `link` the network of the hardware, in place of an earlier one of this name.
void set_network(Hardware& hardware, const Link& link);

}  // namespace lockstep::launcher
