#pragma once
// `lockstep plan --advise`: searches the settings that change what a run takes, and prints the
// best.
//
// Not all combinations are planned. First come those of lanes, ZeRO stage, recomputation, loss_rows
// and precision. Of the combinations for which no other one takes less time and less memory, some
// are kept, and go on with other ranks of a node, then ZeRO stages again, the type of moments, the
// type of gradients on the wire, and sizes of buckets, one after the other.

#include "launcher/forecast/planned_run.h"
#include "runtime/base/json.h"
#include "runtime/run/settings.h"

namespace lockstep::launcher {

// A setting of the search, and what is predicted for it.
struct Advice {
  run::Setting setting;  // beside the config and the request
  int ranks = 1, ranks_per_node = 1;
  bool other_ranks = false;  // than the request has
  forecast::Range step_s;
  double needed_bytes = 0;
  bool fits = false;
  forecast::Range run_s;  // of the whole run
  std::optional<forecast::Range> usd, kwh;
};

struct FoundAdvice {
  // All settings that can run and are not worse than another one with fewer changes: those that
  // fit, the fastest first, then the others, those that need least memory first.
  std::vector<Advice> all;
  // The same with LoRA, which trains something else. Empty: the run does not fine-tune, or has
  // LoRA.
  std::vector<Advice> with_lora;
  size_t planned = 0;  // settings that were planned
};

FoundAdvice find_advice(const PlanRequest& request, const PlanPlace& place);

// The three best of those that fit by time, by cost if that is another order, and by memory.
void print_advice(const PlanRequest& request,
                  const PlanPlace& place,
                  const FoundAdvice& found,
                  Json& json);

}  // namespace lockstep::launcher
