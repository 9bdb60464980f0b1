#pragma once
// Predicts a training step on described hardware: the ops of its lanes, the sums, the exchange and
// what of it is hidden, and the update.
//
// One step of the rank with the most lanes is simulated. Two resources work side by side: the rank
// computes, and its links carry one bucket after the other. An op waits for the parameters that it
// reads; a bucket is ready once the op that completes it is done; the update waits for all buckets.
// A message of n bytes among g ranks takes a latency for each doubling of g, and (g - 1) / g of n
// at the link's rate; over nodes, first within a node and then between them, as ranks exchange
// (collectives/layout/topology.h). The simulation runs with the least times and with the most.

#include <string>
#include <vector>

#include "launcher/forecast/op_times.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::forecast {

struct Place {
  const Hardware* hardware = nullptr;
  const Link* link = nullptr;     // between the devices of a node; null: shared memory
  const Link* network = nullptr;  // between nodes; null: unknown, taken as no cost
  int ranks_per_node = 1;
  int threads = 1;  // of a rank, on CPUs
  // The standard deviation of a rank's step over ranks and time, as a share of it. The slowest of n
  // ranks is sqrt(2 ln n) of them behind.
  Range spread = {0.002, 0.01};
  const std::vector<KnownTime>* known = nullptr;  // in place of predictions
};

// What takes a step's time.
struct ForecastPart {
  std::string name;
  Range seconds;
  bool measured = false;
  cuda::KernelWork kernels;  // on a GPU
};

// Equal products of a step, and the least time of one of them.
struct ForecastProduct {
  std::string name;  // of the first op that has it
  Product product;
  int64_t count = 0;
  double least_seconds = 0;
};

struct StepForecast {
  Range step;
  Range compute;  // the ops of all lanes
  Range sums;     // gradients of lanes and of ranks that share memory; the rest of a step
  Range update;
  Range exchange;  // on the links, hidden or not
  Range exposed;   // waits for the links
  Range stragglers;
  Range loading;  // of a step's samples: beside the step on GPUs, by the same cores on CPUs
  double least_seconds = 0;               // of the ops, at the peak rates
  double model_flops = 0;                 // of a rank's samples: the numerator of MFU
  Range mfu;                              // of the peak in which products are computed
  double measured_share = 0;              // of compute, by measured ops
  std::vector<ForecastPart> ops;          // by kind, those that take longest first
  std::vector<ForecastProduct> products;  // those that take longest first
  cuda::KernelWork lane_sums;             // on a GPU: what adds up the gradients of a rank's lanes
};

StepForecast forecast_step(const run::PreparedRun& prepared, const Place& place);

}  // namespace lockstep::forecast
