#pragma once
// Plans a run for a number of ranks on described hardware, and predicts it there.

#include <optional>
#include <string>
#include <vector>

#include "launcher/command_line/common_options.h"
#include "launcher/forecast/forecast_text.h"
#include "launcher/forecast/hardware_option.h"

namespace lockstep::launcher {

// What is planned, as the command line has it.
struct PlanRequest {
  CommonOptions common;
  std::string on;       // the hardware; empty: this machine
  std::string on_flag;  // the flag that names it
  std::string network;  // the name of a link, or its Gbit/s; empty: that of the hardware
  int ranks = 1;
  int ranks_per_node = 0;  // 0: the devices of a node of the hardware; without hardware, all ranks
  double bucket_mib = 0;   // above 0: in place of comm.bucket_mib
  forecast::RunTerms terms;
};

// The hardware and the links of a request. Links may lie in it, so it is not copied.
struct PlanPlace {
  PlannedHardware hardware;
  Link made;  // from --network
  const Link* network = nullptr;
  const Link* link = nullptr;
  std::string device;  // "cpu" or "cuda"; as the request has it if no hardware is named
  int ranks_per_node = 1;

  PlanPlace() = default;
  PlanPlace(const PlanPlace&) = delete;
  PlanPlace& operator=(const PlanPlace&) = delete;

  // Whether the time of a run can be predicted.
  bool predicts() const { return !hardware.hardware.name.empty(); }
};

// Finds the hardware that the request names. Throws ConfigError.
void find_place(const PlanRequest& request, PlanPlace& place);

struct PlannedRun {
  run::PreparedRun prepared;
  std::string choices = {};  // precision and lanes, with the reasons
  std::optional<forecast::Forecast> forecast = std::nullopt;

  double needed_bytes = 0, available_bytes = 0;  // of a device or, on CPUs, a host
  bool fits() const { return needed_bytes <= available_bytes; }
};

// The placement of the request's ranks on nodes.
collectives::Topology placed_ranks(const PlanRequest& request, const PlanPlace& place);

// Predicts a run that has been prepared for the request's ranks.
PlannedRun plan_prepared(const run::PreparedRun& prepared,
                         const PlanRequest& request,
                         const PlanPlace& place);

// Plans the run of a config that has been read with the request's options. Throws ConfigError and
// DataError.
PlannedRun plan_opened(const run::OpenedConfig& opened,
                       const PlanRequest& request,
                       const PlanPlace& place);

// The same with `set` after the request's own --set.
PlannedRun plan_run(const PlanRequest& request,
                    const PlanPlace& place,
                    const std::vector<std::string>& set = {});

}  // namespace lockstep::launcher
