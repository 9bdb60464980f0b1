#pragma once
// The page of a run for Prometheus: output.prometheus_port.

#include <memory>

#include "launcher/ranks/session.h"
#include "launcher/run/page_server.h"
#include "runtime/config/run_config.h"
#include "runtime/metrics/prometheus.h"

namespace lockstep::launcher {

class MetricsServer {
 public:
  // Serves a page without steps from now on. Throws ConfigError if it cannot listen.
  MetricsServer(const RunConfig& config, int ranks);
  metrics::PrometheusPage& page() { return page_; }

 private:
  metrics::PrometheusPage page_;
  PageServer server_;  // the last member: it ends before the page
};

// The server of rank 0; null on other ranks, and without a port. All ranks together; throws
// AgreedError.
std::unique_ptr<MetricsServer> serve_metrics(Session& session, const RunConfig& config);

}  // namespace lockstep::launcher
